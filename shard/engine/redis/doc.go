// Package redis is the engine for Redis from 6.2 on and for Valkey: how an agent asks such
// a node about itself, closes it for writes, promotes it and leads it.
//
// # Fences
//
// A fence is the server's own condition min-replicas-to-write, which it checks for every
// command that writes before it starts it: also for commands that wait in its
// queue, and for connections that are made later. Closed asks for more replicas than
// there can be; armed asks for some, with a min-replicas-max-lag of 1 second. An armed
// fence closes when the last replica's connection closes, and otherwise
// 1 to 3 seconds after its last acknowledgement: the server counts both in whole
// seconds.
//
// What it counts, it counts once a second. A server that was stopped and continues first serves
// the commands that wait on connections which it had before, and looks at its replicas
// afterwards: for that moment an armed fence may be open, however long the server
// was stopped. Only killing it before its place is given away is sure against that.
//
// A fence is not kept on disk: a server that is restarted comes back open, but for one
// that is started with [StartArgs].
//
// # Detaching
//
// A replica that is to leave its primary, and to keep the right to a partial
// copy from the next one, must not be told REPLICAOF NO ONE: that starts a
// history of its own. It is told to follow 127.0.0.1 port 0, where nothing can listen. It
// keeps what it has and where it stood, refuses writes, and logs a failed attempt every second.
//
// A primary that is detached or led elsewhere keeps its own history in the same way, and
// its clients are disconnected, so that none continues reading from it unawares.
//
// # Pausing
//
// CLIENT PAUSE … WRITE lets commands that write wait, [Node.TryWrite] as well. A closed fence is
// checked before: with both, new writes are refused at once instead of waiting, and so are those
// that waited, when the pause ends.
//
// # What it needs
//
// Plain servers: no cluster mode, no Sentinel. The user needs the rights in [Rights]. The
// same user and password are what replicas give their primary; an engine with a
// password sets masteruser and masterauth, and one with TLS sets tls-replication. None of this
// is written to the server's configuration file.
//
// # What it does not promise
//
// It is tried with Redis 7.0 and 6.2.14 and with Valkey 9.1.2, without TLS on the latter two.
//
// Numbers are the server's own: a link's input and a follower's lag are whole seconds.
// A server in a script that does not end answers BUSY to everything, and its
// fence cannot be changed.
//
// A write probe deletes a key that does not exist, so that the server checks whether it may
// write. A server that is at its maxmemory answers it, although it refuses
// commands that need memory: its replicas would, too.
//
// # How it fails
//
// With the errors of [shard.Engine]. Connections are made when they are needed, one for each
// purpose, so that an exchange that hangs does not hold up the fence. Nothing
// is retried, but for a connection that turns out to be closed: see package wire. A server that hung reads what lies in its
// sockets before it accepts a connection and reads that: the order that [shard.Engine] promises.
package redis

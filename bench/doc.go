// Command bench measures Understudy on real servers, beside the systems that it
// is compared with, in one run on one machine.
//
// It prints a table of figures, each with the bound it is meant to keep, and
// writes the same as JSON. It judges nothing by itself: a figure is a fact about
// the machine that it was taken on, and a bound that does not hold is shown as
// such, not as a failure. The command fails only when something could not be
// measured at all.
//
// Sections (see -only), of leases:
//
//	handover   a primary stops gracefully: until its successor's work starts
//	takeover   a primary is killed with SIGKILL: until its successor's work starts
//	cost       renewing and acquiring with 1, 1,000 and 100,000 leases, against
//	           an update of a single row in the same database
//	crowd      1,000 instances on one PostgreSQL, and 100 standbys that wake
//	footprint  an idle server's memory, and the size of the binary
//
// and of queues:
//
//	rate       messages delivered in a second, beside River's jobs that make the
//	           same request in no order
//	enqueue    transactions that enqueue, with and without a dispatcher to be told
//	latency    enqueueing until the first byte is at the target
//	backlog    a million messages that wait
//	snapshot   a transaction that stays open for minutes beside
//	claims     an instance of a queue stops or is killed: until the next delivers
//	           its keys
//
// and of jobs:
//
//	lag        ten thousand jobs on ten instances: how late their runs start
//	river      … the same with River's periodic jobs
//	gocron     … and with gocron
//
// and of the cache:
//
//	hot        a key that a peer has, asked for as often as it answers, beside a bare
//	           echo and a bare HTTP server
//	cold       300 keys at once that nobody has, on all peers
//	busy       the same while every core is busy
//	lost       the peer that fetches is killed or stopped: until another fetches
//	reload     restart with 100,000 entries, and the memory that they take
//
// and of the monitor:
//
//	intake     heartbeats that are stored in a second: in arrays, by ping URLs, and one in
//	           each request; and what one costs
//	silence    a source's limit passes: until the sink has the alarm; 10,000 at once
//	killed     one of two instances is killed: until its sources are watched again
//	million    a million sources with a heartbeat each minute: start, processor, memory
//
// and of shards, three redis-servers with an agent each, beside three with as many Sentinels:
//
//	node        the primary's process is killed: until the next has accepted a write
//	host        … and its agent with it
//	silent      both are stopped; then they go on
//	hung        only the process is stopped; then it goes on, if it still can
//	crash       the primary is killed under load: what is lost of what it acknowledged
//	switchover  beside Sentinel's own, and that of the server
//	agent       what an agent needs
//	many        killed beside 999 shards of simulated agents on the same store
//
// What queues deliver goes to a sink, an HTTP server in a process of its own, that
// knows what each key's next message must be, and counts what comes twice or out
// of order.
//
// Every contender is a process of its own, started from this same program, and
// stamps its moments with the host's boot-time clock, so that moments of two
// processes can be subtracted. All servers keep what they acknowledge: PostgreSQL
// with fsync, Redis with appendfsync always, SQLite with synchronous FULL, etcd
// with its defaults, all in the same directory's file system (TMPDIR).
package main

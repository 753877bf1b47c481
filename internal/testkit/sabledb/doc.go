// Package sabledb is a stand-in for SableDB in tests, as a node of a shard and as a store. It does what
// a real one was measured to do, and is as unkind:
//
//   - CLUSTER NODES is empty; a replica tells nobody's address.
//   - Each REPLICAOF copies everything, and leaves the replica with numbers of its own. Its place in its
//     primary's numbers is in changes.seq in its database folder.
//   - A write that changes nothing uses a number and is not sent.
//   - A primary that is led nowhere refuses writes, continues sending what it has, and lists nobody.
//   - A replica with updates under way when its primary dies never connects again.
//   - A connection's next EXEC carries out its earlier transactions again. WATCH is checked before EXEC waits for its turn.
//   - Reading in EXEC what the same EXEC wrote, EXISTS, and HMGET of a missing field break the connection.
//   - LOCK and UNLOCK isolate; a lock ends with its connection.
//   - A crash loses up to 250 ms of writes.
//
// With UNDERSTUDY_SABLEDB=PATH the nodes are processes of that program instead.
package sabledb

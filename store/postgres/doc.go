// Package postgres keeps sessions, leases, claims, queues and the history in PostgreSQL
// 12 or later, in a schema of its own beside the tables of the application.
//
// # What it promises
//
// Every operation is one autocommitted statement and one round trip: a call of a
// function in the schema, which takes its locks, then reads the clock, then
// decides. (The end of a session with thousands of leases takes several: the first
// makes all of them free, the others record it.) The clock is clock_timestamp(),
// never the time at which a transaction or statement began. A renewal writes one
// row and nothing that is indexed; it waits only for whoever is ending that very
// session. A claim that a plain look at the rows can refuse takes no lock.
//
// Nothing is kept in a server's session: no prepared statement, no SET. So it
// works behind a pooler in transaction mode. There LISTEN is deaf: [Store.Watch]
// notices the pooler, reports errors.ErrUnsupported, and changes are found by
// polling alone, which costs at most one interval.
//
// It opens two connections of its own, one of which only sessions may use, and
// one more while Watch runs. It never uses a pool of the application's.
//
// # Enqueueing
//
// Batches are enqueued in the application's own transactions, through [Enqueue] or
// in SQL from any language:
//
//	SELECT understudy.enqueue('orders', 'customer-7', payload);
//	SELECT understudy.enqueue(queue => 'orders', key => 'customer-7', payload => …, id => …, content_type => …);
//
// returns the id, a random one if none is given, or null if the queue has a batch of
// this id already. INSERT and COPY into understudy.batch (queue, key, id, payload,
// content_type) do as well; there a duplicate is an error. A queue that was not
// made is refused with SQLSTATE US002, by the function at once and otherwise at COMMIT.
//
// Nothing is locked before COMMIT. Then a deferred trigger numbers all batches of the
// transaction: it locks the tails of their keys, in the order of the keys, so that
// whoever enqueues to one of these keys meanwhile waits for the end of this commit,
// and is behind it. A key that had nothing to do is made ready, and one dispatcher
// that sleeps is notified; a busy one never is.
//
// At REPEATABLE READ and above a commit may fail with SQLSTATE 40001, when others
// have enqueued to the same key since the transaction began, and must be tried
// again; nothing is lost or out of order. What moves the lock to before the end of the
// commit makes others wait, as for the guard below: SET CONSTRAINTS ALL
// IMMEDIATE, which also gives up the order of the keys and with it the freedom from
// deadlocks, and a commit that waits for a standby. PREPARE TRANSACTION may be
// refused by the server, because of the notification.
//
// # Claims and queues
//
// The row of a key in understudy.claim is where takes, begins and results meet.
// While batches are delivered it is locked and not written: what changes is in the row
// of each batch, which is written twice, on its own page. Nothing that a
// dispatcher calls reads batches that are over. Functions on queues and claims need READ
// COMMITTED; where a pooler hides from the server that connections ask for it, and
// the role's default is another, they take a transaction of three statements.
//
// A transaction that is held open for long keeps the server from reusing what it
// might still see. Keys that always have something to do go on as before; a key
// that becomes idle and ready again and again costs more each time, until it ends.
//
// # The guard
//
// A transaction of the application's may require that its term is current:
//
//	SELECT understudy.require_term('role', 'billing', 1767323045000);
//
// It may be called from any client, at any isolation level, best as the last
// statement before COMMIT. At COMMIT a deferred trigger locks the lease's row and
// refuses the commit with SQLSTATE US001 unless the lease is held under that term.
// Until then nothing is locked: an open transaction holds up neither a renewal
// (which never touches that row) nor a takeover. At REPEATABLE READ and above the
// transaction must have begun after the lease was taken, and a takeover since then
// is reported as SQLSTATE 40001; when it is tried again it meets US001. See
// [Store.RequireTerm].
//
// Three things move the lock to before the end of the commit, so that a takeover
// has to wait; none makes two primaries. SET CONSTRAINTS ALL IMMEDIATE after the
// call takes it at once. PREPARE TRANSACTION keeps it until COMMIT PREPARED. A
// commit that waits for a synchronous standby keeps it that long.
//
// # Rights
//
// The program's own role must own the schema, or have USAGE on it, EXECUTE on
// its functions, and SELECT, INSERT, UPDATE and DELETE on its tables and USAGE
// and SELECT on its sequences; only Migrate needs to create. A role that only
// guards its transactions needs no more than
//
//	GRANT USAGE ON SCHEMA understudy TO app;
//
// because require_term and its trigger run with the rights of the owner; and that
// is enough for understudy.enqueue too. A role that enqueues with INSERT or COPY
// needs besides it
//
//	GRANT INSERT (queue, key, id, payload, content_type) ON understudy.batch TO app;
//	GRANT USAGE ON SEQUENCE understudy.batch_n TO app;
//
// and cannot read or change anything by it. A role that only looks on needs that and SELECT on the view understudy.heartbeats.
//
// # The monitor
//
// A source is a row in each of three tables: monitor_beat, which every beat writes
// and no index follows; monitor_due, which a look moves; monitor_source, which
// changes when something becomes of it. The first two have autovacuum settings of
// their own. The views vnf_table_1, vnf_table_2 and hb_common show what the tables
// of these names held in the system that they come from; grant SELECT on them to who reads
// those. vnf_table_2 joins all sources, and is not for every second.
//
// # Shards
//
// What is decided about a shard is a row in shard_row, what an agent reports one in
// shard_node, which is written on its own page and followed by no index. Reports, decisions and
// locks of one shard come one after the other, each until its commit; those of different shards
// do not meet. A report is one round trip and shows the whole shard. One that says nothing new but
// numbers (transactions, keys, lags), and is not told, is answered before it is on disk: a crash of the
// server may lose such reports of its last second, as if the agent had been late, and no others. The revision of a row is
// at least the clock in microseconds, so that a database that lost its newest transactions, or
// was put back to a backup, gives no revision twice: who decides on what he read before gets
// shard.ErrChanged. All who wait for commands share one connection that listens; behind
// a pooler they ask, up to about twice a second.
//
// # What it does not promise
//
//   - Leases that survive what the database itself loses: a crash with
//     synchronous_commit or fsync off, a failover to an asynchronous standby, a
//     restored backup. For up to T there may then be two holders, of which the
//     later has the higher term. [Store.Inspect] warns of the settings.
//   - That a request is not applied after its caller gave up. Waiting for locks
//     ends with the caller's deadline, and a cancelled call is cancelled on the
//     server too; but a server that was itself paused may still serve what it had
//     received. A late claim names what it saw, and takes nothing that moved since.
//
// # How it fails
//
// A server that cannot be reached, is starting, or has become a replica is
// lease.ErrUnavailable; the connection to a replica is given up, so that a URL
// with several hosts finds the new primary. A statement that the server answered
// with an error was rolled back: lease.ErrUnavailable too, or lease.ErrInvalid
// when the values were at fault, or dispatch.ErrNoQueue. A deadline or a broken connection after sending
// is lease.ErrUnknown. Deadlocks and serialization failures are tried again
// within the deadline. A call without a deadline gets one of 10 s.
package postgres

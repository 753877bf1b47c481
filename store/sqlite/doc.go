// Package sqlite keeps sessions, leases, claims, queues and the history in an
// SQLite file: the store to start with, without a server, for all processes of one host.
//
// # What it promises
//
//   - The file (mode 0600), its directory (0700) and its schema make themselves,
//     also when many processes start at once. A schema that is newer than the program
//     is refused. Everything in it is called understudy_…, so that it can live in a file of the
//     user's own, except for the views heartbeats and, unless the file had tables of these names,
//     batches, batch_statuses, service_id_claims, vnf_table_1, vnf_table_2 and hb_common.
//   - Every operation is one transaction, written through to the disk before it
//     is acknowledged. It reads the clock after it got the file's write lock, so
//     that no wait makes it believe in a time that has passed.
//   - Sessions are judged by the host's boot-time clock, which nobody can step.
//     A session belongs to the run of the kernel, by its boot id, in which it was
//     last renewed. After a reboot the clock says nothing about it: its leases
//     are shown as Foreign, and can be taken by whoever has counted its whole
//     timeout on a clock of its own and has not seen it move. If it does move,
//     two kernels share the file, and the contender gives up with
//     lease.ErrTwoHosts.
//   - A renewal costs the same whatever the session holds, and waits for no more than two other
//     transactions of its own process, however many of them want to write.
//
// # What it does not promise
//
//   - Several hosts. SQLite's locks and shared memory hold within one kernel, on
//     a local disk. Network file systems are refused where Linux tells them
//     apart; on FUSE and on other systems that is left to the user. On a host
//     without a boot id (systems other than Linux) the wall clock judges, and
//     steps of it cost what they cost on the other stores.
//   - Fairness between processes. One transaction writes at a time; a call that waits for another process tries
//     again after random pauses of 1 to 15 ms. A commit takes as long as the disk needs to
//     sync. Timeouts of 5 s and more leave room for that.
//   - A second SQLite library, such as a driver that uses cgo, in a process that has the Store open. File locks
//     belong to the process: where one library closes the file, it drops the locks of the other, or deletes the log.
//     In such a process use modernc.org/sqlite, as this package does, or [Store.Guarded]; in any other, any client.
//   - Survival of the file's removal. When the path no longer names the file that
//     was opened, every write fails until the program is restarted, because
//     others may have made a new file with holders of its own.
//
// # Guarding the user's own transactions
//
// An INSERT into the view understudy_guard, by any SQLite client of another process, rolls the
// transaction back unless the lease is held under the term that it names. It
// takes the write lock of the store's file, so that from there to the commit
// nobody can take the lease over:
//
//	BEGIN;
//	UPDATE invoice SET paid = 1 WHERE id = 7;
//	INSERT INTO understudy_guard VALUES ('role', 'billing', 1700000000000);
//	COMMIT;
//
// [Guard] and [Store.Guarded] do so from Go. The guard asks whether the term is
// current, not what time it is: until someone takes the lease over, its last
// holder's effects come before those of any other.
//
// The price of that lock: while a transaction holds it, no session that is kept
// in the same file can be renewed. A transaction that writes to the store's file
// for longer than T−I costs every holder its trust, and one that is longer than
// T lapses their sessions, though nobody can take their leases before it ends; so does a
// process that is stopped while it holds the lock, until it is continued or
// killed. Hence:
//
//   - Keep the user's data in a file of its own, ATTACH the store's, and let the
//     guard be the last statement before COMMIT. Then the store is locked for as
//     long as a commit takes, and a transaction that is paused before its guard
//     holds up nobody: neither a renewal nor a takeover. Each file is committed
//     by itself, and the guard changes nothing in the store's, so that a crash
//     cannot part them.
//   - In one file, write last and guard at once. A transaction that has only read
//     holds up nobody; its first write fails as busy (SQLITE_BUSY_SNAPSHOT) if
//     anything, a renewal for instance, was written since it began to read.
//   - [Store.Guarded] rolls back what takes longer than one interval.
//
// # Queues
//
// A message exists from the commit of the transaction that enqueued it, and the
// order of a key is that of these commits: one transaction writes at a time, so
// that the numbers it gives are in order. [Enqueue] does it from Go, with
// modernc.org/sqlite where the Store is open; every other client inserts into a view. What has the id of a
// message that is there is left out; id and content_type may be left out; a queue that
// was not made, and what dispatch.Message does not allow, is refused:
//
//	BEGIN;
//	UPDATE invoice SET sent = 1 WHERE id = 7;
//	INSERT INTO understudy_enqueue (queue, key, id, payload)
//	VALUES ('invoices', 'customer-12', 'invoice-7', '{"total": 30}');
//	COMMIT;
//
// With not_before_us, in microseconds since 1970, the message is not sent before that time, and is in a table of its own
// until then.
//
// It takes the write lock of the store's file, like the guard above: enqueue last,
// and commit at once. Unlike the guard it changes the store's file. When that
// is attached to another, SQLite commits the two one after the other, and a crash
// between may leave the one without the other. For an outbox that never parts from the
// data, keep the user's tables in the store's file.
//
// Keys are ready, delayed and pruned by the wall clock, which foreign clients have
// too. When it is stepped back, what was to be ready by then waits for as long
// as the step at most; what is enqueued after the step does not. Windows are counted
// on the boot-time clock. After a reboot the steps of before hold nobody up, and the
// sessions of before count as lapsed when the wall clock says so.
//
// The keys of a queue are deleted with it alone, because their numbers must not start
// again: a queue with a new key for every message grows by some hundred bytes for each.
// An operator's view of all queues reads the row of every key.
//
// # The monitor
//
// The store time goes by the boot-time clock, and over a reboot by the wall clock: that time
// was blind. A heartbeat is one update by row id; sources are counted by triggers on what
// seldom changes. Sources with a label are found by reading each of their check.
//
// # Shards
//
// A report is one transaction: it writes the record and reads the view. Records age by the
// boot-time clock; those of another boot count as silent, and its locks and
// commands as expired. A call that waits for a command reads every 20 ms, and
// writes nothing meanwhile.
//
// # How it fails
//
// A file that others keep locked, a full disk, missing permissions and damage
// are lease.ErrUnavailable: nothing was applied, and what was acknowledged stays.
// When space returns, everything continues. A commit that the disk refused to sync
// is lease.ErrUnknown, because it may come back after a crash. Calls whose
// context has no deadline get one of 10 s. A call that got the lock is not
// interrupted: it takes as long as its commit. The end of a session that held
// thousands of leases, the trimming of the history and the pruning of queues work in
// portions, between which others get the lock. An exchange of a queue holds it for about
// 40 µs for each message, and reads 16 MiB of payloads at most: what has no room
// is left for the next exchange.
//
// Watch looks whether anything was committed when the kernel reports a write to the log (Linux), and every 20 ms,
// and reads only what is new. Of more than a thousand changes at once it says only that there were some.
//
// Opening a file switches it to write-ahead logging; beside it lie a log (-wal)
// and an index of the log (-shm) that belong to it. Each Store that was ever
// opened leaves a few hundred bytes behind when it is closed: its driver's
// functions are never taken back.
package sqlite

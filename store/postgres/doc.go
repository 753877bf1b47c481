// Package postgres keeps sessions, leases, claims, queues, the monitor, shards and the history in
// PostgreSQL 13 or later, in a schema of its own beside the tables of the application.
//
// # What it promises
//
// An operation on sessions, leases, claims, queues, the monitor or shards is one autocommitted statement and one round trip: if
// it changes something, usually a call of a function that takes its locks, then reads the clock, then decides. Reads take no locks,
// and Leave, Append and Trim have nothing to decide: they are plain statements. A few take more statements, each complete in
// itself:
//
//   - the end of a session with thousands of leases: the first frees all of them, the others record it;
//   - a claimer that falls asleep: the second looks for free keys again;
//   - the first start or renewal of a session on a connection, which rehearses a hand-over (functions/README.md), and the first Enqueue on it;
//   - lists of jobs and tokens: one reads the clock.
//
// A change of a job or token is a transaction of several round trips, two for a job: Go decides what becomes of it (a job's lease is still given
// by the function acquire, in the first round trip), while an advisory lock keeps
// others from the same job, or from all tokens. One that acquires a job's lease has also locked the lease, its own session and
// that of the holder before. A process that stops or is cut off in between keeps these locks until its call would have ended, or
// its session ends: then the server ends its connection (bound_transaction in common.sql), and it gets lease.ErrUnavailable or
// lease.ErrUnknown.
//
// A single statement commits when its answer has been sent. If the answer is larger than the buffers between (some MB, of Exchange of
// a queue with large messages) and the process stops or is cut off before it has read it, the keys of that call stay locked until the
// server ends the connection: after 10 s on Linux (tcpSettings in pool.go), or the URL's tcp_user_timeout. Behind a pooler or on a Unix
// socket the server never ends it.
//
// The clock is clock_timestamp(), never the time at which a transaction or statement started. A renewal writes one row and
// nothing that is indexed; it waits only for who ends that very session, or looks whether it has ended to take a lease of its own. Acquire of a
// lease that was seen held takes no lock when a plain read can refuse it.
//
// Nothing that a result depends on is kept in a server's session (but which listener has a place, watch.go): no prepared
// statement, no SET, no search_path; names are written out. So it works behind a pooler in transaction mode. LISTEN does not work there:
// [Store.Watch] recognises the pooler and reports errors.ErrUnsupported, and changes are found by
// polling alone, which costs at most one interval.
//
// It opens Config.Connections (2): one is reserved for starting and renewing sessions. Listeners open more: one for each call of
// Watch, and one that all that wait for commands of shards share. It never uses a pool of the application's.
//
// # Where things are
//
// The ports are methods of Store, or of a type that has it (claims, queue, queueAdmin, monitors, registry, commands, jobs, tokens),
// which Store returns. A method and its function have files and names that match, mostly: ClaimKeys (claims.go) calls claim_keys
// (functions/claims.sql), UpdateRow of shards (shard_registry.go) shard_update_row (functions/shard.sql).
//
//	port                              Go                                          functions/
//	lease.Store, sessions             session.go, renewals.go                     session.sql, renewals.sql
//	lease.Store, leases               lease.go, watch.go                          lease.sql
//	lease.Roster, lease.StateStore    roster.go, state.go                         roster.sql, state.sql
//	history.Log                       history.go                                  (statements)
//	claim.KeyTable                    claims.go, ready_floor.go                   claims.sql
//	dispatch.Queue                    queue.go, queue_prune.go, queue_scheduled.go  the same
//	dispatch.Admin                    queue_admin.go, queue_lists.go              queue_admin.sql
//	(enqueueing)                      enqueue.go                                  entry/enqueue.sql, enqueue.sql
//	(the guard)                       guard.go                                    entry/guard.sql, guard.sql
//	(all of the monitor)              monitor.go                                  monitor.sql
//	monitor.HeartbeatStore            monitor_intake.go                           monitor_intake.sql
//	monitor.Detection                 monitor_detection.go, monitor_apply.go,     the same
//	                                  monitor_groups.go, monitor_sweep.go
//	monitor.Admin                     monitor_config.go, monitor_admin.go,        the same
//	                                  monitor_lists.go
//	shard.Registry                    shard_registry.go, shard_digest.go          shard.sql
//	shard.Commands                    shard_commands.go, shard_watch.go           shard.sql
//	job.Store, access.Table           jobs.go, access.go                          (transactions)
//	store.Admin, store.Checkups       open.go, migrate.go, rules.go, inspect.go,  (statements)
//	                                  checkup.go                                  migrations/, retired.txt
//
// query.go runs statements, on the connections of pool.go; errors.go gives errors their meaning, values.go converts values.
// common.sql has the rules that every function keeps, and what all use; monitor.sql what the monitor's use. functions/README.md
// says what names in SQL mean, and how to add a column or a function.
//
// A setting: Config (open.go) ← store/open: Options (open.go), openPostgres (servers.go) ← internal/instance Host.Open ←
// internal/server (server.go, page.go) or internal/shardagent (run.go) ← internal/settings. These call open.Open themselves:
// cmd/understudy/store.go, doctor.go, internal/instance/afterwards.go, internal/settings/complete.go. Or it is an option of the URL (parseURL), which then must not reach the server.
//
// # Where things are decided
//
// The caller sets the deadline of a call, and nearly all do: lease.Timing.CallTimeout, storeTimeout of monitor (flush.go),
// callTimeout of dispatch (dispatcher.go), claim (holder.go), CallTimeout of internal/instance, the API's Timeout. A setting for it
// belongs there. callTimeout (pool.go) is for calls without one; listen (watch.go) always uses it. Retries share the deadline.
// lock_timeout is 9/10 of what is left of it (withLockTimeout in query.go; exec has none, and waits until the deadline).
//
// A renewal is the UPDATE of session in renew_session and renew_sessions (renewals.sql). RenewSession (renewals.go) sends one alone
// if none was sent shortly before, and lets those that follow share a statement. Programs in other languages come to renew_session by
// renew and acquire in entry/lease.sql.
//
// A takeover is decided by acquire (lease.sql), in up to two passes:
//
//  1. takes no lock; most requests for a lease that was seen held end there, with any verdict but a new term. It is left out for a lease that the contender has
//     seen free;
//  2. locks the lease and both sessions (only its own one where the contender saw none), and is the only one that writes.
//
// Each reads the clock, and gives the first verdict that fits:
//
//	no_session  the contender's own session has lapsed
//	taken       its session holds the lease already
//	held        acquisition_reason gives no reason why another may take the lease
//	taken       it gives one (vacant, successor, or lapsed: the holder's session), and assign_lease writes the new term
//
// A session has lapsed if it was ended, its deadline has passed, or p_waited says so: any of the three is enough here. p_waited is an
// argument: the contender has counted the holder's whole timeout (T) by its own clock. The same rule is
// [lease.Expectation.Permits] (SQLite, memory) and store/redis/scripts/lease_acquire.lua: all three change together.
//
// That the contender's own clock agrees is decided before, in Go: it sends no request before it has counted the remaining time
// (lease/takeoverpolicy.go). Who of those that wait asks first is decided there too (Contender.turn in lease/contender.go, by the place
// in the waiting list, count_waiting in lease.sql). That is only an order of asking: the first who asks gets the lease, and acquire in
// entry/lease.sql takes no turn. An order that must hold belongs in acquisition_reason and its copies as well. A step forward of the server's clock by more than T
// ends every session, but gives no lease away early; a step back delays a takeover by T at most.
//
// Of claims the server's clock decides alone. A ready key whose holder has lapsed can be claimed at once, unless a step is in
// progress: then only after its hold (the function step_ends_at: hold_until of the claim, and in a queue hold of the head).
// claim_lapsed_keys finds the holder in the table member, and passes over a session that is locked, as by a renewal. [claim.Row.IsFree] is the same rule in Go: change both. After a step back of the
// clock such keys, and those that become ready later, wait for as much longer.
//
// A contender learns in three ways that a lease is free. What frees or takes a lease notifies (notify_change in common.sql), of a
// job's lease only if a session waits for it. The first in line listen for that, and others while few do (watch.go). A renewal returns the leases that its session waits for
// (waits in renewals.sql). A lapse sends no notification: the contender asks when its own timer has run out. See lease.Contender and
// ADR 0050.
//
// Which ready key is claimed next is decided by claim_keys (claims.sql): those of lapsed sessions, in no particular
// order, then those that have been free for a while (p_linger), then up to p_fresh others, in these two groups the one that became
// ready first (ready_at, along the index claim_free); one group if p_fresh covers the limit or p_linger is 0. A scan of free keys starts
// at p_from (ready_floor.go), but for a full one about once a second. Which of the claimed ones is sent next is decided by addStarts of package
// dispatch. Keys are ordered, never messages of several keys; of a key, exchange (queue.sql) delivers the lowest number (head).
//
// What becomes of a message is decided by dispatch/rule.go. record_results writes it to the row of the message, and exchange what
// follows for the key: its ready_at and blocked (queue.sql). An operator's action is decided in apply_to_unfinished and
// retry_dead_lettered (queue_admin.sql).
//
// What becomes of a source is decided by monitor/rule.go. monitor_apply_transitions makes the transition if the source, its last
// heartbeat and its check are unchanged (its parent and path may have changed), monitor_start_and_end_alarms writes the alarm,
// monitor_notify the messages for sinks (monitor_apply.sql).
//
// # Versions
//
// Migrations hold tables. A program brings its functions with it (functions/), its function set: it creates them in the schema
// under names that begin with a hash of their text, and calls only its own set. So programs of two versions work side by side,
// each by its own functions on the same rows.
//
// Entry points (entry/) are what others use by a name that stays: enqueue, enqueue_at, enqueue_all,
// require_term, acquire, renew, release and state, the bodies of the triggers check_term and number_batches, and the views. There is
// one of each, so that a trigger also handles rows that the other version inserts: it must stay compatible with it, as the functions
// must. Entry points call the set installed last, which may be an older one that was dropped and created again. If no program has used
// that set for seven days, the next program that opens the store makes them call its own. If a later version has added a column to a
// view, its entry points stay.
//
// The table rule_set names the function sets. Opening the store records that a set is used, at most once an
// hour, and a session records the set of its program. A start drops the sets that no program
// opened the store with, and of which no session lived, for seven days, but for its own and the one that entry points call; a process that does not
// find its functions any more creates them again. The functions of version 11 and earlier came from
// migrations; they are the set with the empty hash, under the same rule.
//
// Tables change in two steps (see [store.Step]). The version of a step is its place in migrations/, from 1; the number
// in its file's name only gives the order: it may leave gaps, and may repeat (then the rest of the name orders). An expanding step only adds, and its first line names
// the oldest program version that can use the store after it ("-- readers: 11"); such a program goes on, and can be
// started again. That number is the oldest version whose programs lose and spoil nothing if they neither know nor
// write what the step adds: as a rule 11, the last that had its functions from migrations; a greater one only if programs without
// an earlier step would spoil this one. Functions of the version that adds a column must not need what the version before
// does not write. A contracting step removes or changes something, at least one version after the
// last program that used it, and raises the greatest version in the table migration: older programs then
// refuse the store with store.ErrSchema. fault.TestFaultUpgrade runs the version before beside this one.
// While an open transaction uses what a migration changes, that waits for little more than deadlock_timeout at a time, because all who come later wait behind
// it, and in the end fails with lease.ErrUnavailable.
//
// # Claims and queues
//
// Claims, starts and results of a key meet in its row in understudy.claim. Deliveries lock that row
// and do not write it: what changes is in the row of each message, which is written twice, on its own
// page. Nothing that a dispatcher calls reads messages that are finished. Functions on queues,
// claims and shards need READ COMMITTED; where a pooler hides from the server that connections ask for it, and the
// role's default is another, they take a transaction of three statements, which the server ends with the call's
// deadline if the process stops in between.
//
// A transaction that stays open for long keeps the server from reusing what it might still see. Keys that
// always have work continue as before; a key that becomes idle and ready again and again costs more
// each time, until it ends.
//
// # Rights
//
// The program's own role must own the schema, or have USAGE on it, EXECUTE on its functions,
// SELECT, INSERT, UPDATE and DELETE on its tables, and USAGE and SELECT on its sequences. Migrate,
// and the first start of a version with new functions, need to create: run `understudy store
// migrate` as the owner before such a role starts a new version. A program that starts no session and whose role cannot create
// must be restarted once a week: its start alone records that its functions are in use, and unused ones are dropped. A role that only guards its
// transactions, or enqueues through understudy.enqueue, needs no more than
//
//	GRANT USAGE ON SCHEMA understudy TO app;
//
// because these functions and triggers run with the rights of the owner, and PUBLIC may insert into the view message, as
// [Enqueue] does, call nextval of batch_n for that, and read the names of queues: where PUBLIC may not call enqueue, revoke
// that too. To hold roles in SQL it also
// needs EXECUTE on acquire, renew, release and state, which PUBLIC does not have. To enqueue with INSERT or
// COPY into the table it also needs
//
//	GRANT INSERT (queue, key, id, payload, content_type) ON understudy.batch TO app;
//	GRANT USAGE ON SEQUENCE understudy.batch_n TO app;
//
// and can read or change nothing with that. To read roles it needs SELECT on the view understudy.heartbeats.
//
// # The monitor
//
// A source is a row in each of three tables: monitor_beat, which every heartbeat writes and no index
// follows; monitor_due, which a check moves; monitor_source, which changes when the source's state
// does. The first two have autovacuum settings of their own. The views vnf_table_1, vnf_table_2 and
// hb_common show what the tables of these names held in the system that they come from; grant SELECT on
// them to its readers. vnf_table_2 joins all sources: do not read it every second.
//
// # Shards
//
// What is decided about a shard is a row in shard_row, what an agent reports one in shard_node,
// which is written on its own page and followed by no index. Reports, decisions and locks of one
// shard come one after the other, each until its commit; those of different shards do not meet. A
// report is one round trip and shows the whole shard. One in which only numbers are new
// (transactions, keys, lags), and of which no agent is notified, is answered before it is on disk: a crash
// of the server may lose such reports of its last second, as if the agent had been late, and no
// others. The revision of a row is at least the clock in microseconds, so that a database that lost
// its newest transactions, or was restored, gives no revision twice: a decision on what was read
// before gets shard.ErrChanged. All that wait for commands share one connection that listens; behind
// a pooler they poll, up to about twice a second.
//
// # What it does not promise
//
//   - Leases that survive what the database itself loses: a crash with synchronous_commit or fsync
//     off, a failover to an asynchronous standby, a restored backup. For up to T there may then be
//     two holders, of which the later has the higher term. [Store.Inspect] warns of the settings.
//   - More of a synchronous standby than that it has what was acknowledged. A call that is cancelled while its commit waits for the
//     standby (the deadline of its caller has passed, and the driver cancels it) is lease.ErrUnknown, but has committed here, where
//     every read shows it. A contender that reads back finds that it holds the lease; if the database then fails over to a standby
//     that has not got it, there may be two holders until the first one's trust ends, less than T after its last renewal that was
//     acknowledged.
//   - That a request is not applied after its caller gave up. Waiting for locks ends with the
//     caller's deadline, and a cancelled call is cancelled on the server too; but a server that was
//     itself paused may still serve what it had received. A late request for a lease names what it saw, and takes
//     nothing that moved since.
//
// # How it fails
//
// A server that cannot be reached, is starting, or has become a replica is lease.ErrUnavailable;
// the connection to a replica is closed, so that a URL with several hosts finds the new primary. A
// statement that the server answered with an error was rolled back: lease.ErrUnavailable too, or
// lease.ErrInvalid when the values were at fault, or dispatch.ErrNoQueue. A deadline or a broken
// connection after sending is lease.ErrUnknown. Deadlocks and serialization failures are tried
// again within the deadline. A call without a deadline gets one of 10 s.
package postgres

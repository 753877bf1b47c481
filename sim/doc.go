// Package sim runs whole clusters in one process, in virtual time, from a seed: real keepers, campaigns,
// dispatchers, caches, monitors and shard agents, with faults drawn at random and a judge that knows the truth.
//
// # Roles
//
// [Run] has three to five instances on one store. Each instance has a clock whose rate is off by up to
// lease.Timing.RateTolerance and whose wall clock is stepped, and a link to the store that delays, reorders,
// duplicates and loses messages, answers late, and is cut one way or both. Instances are
// killed, stopped and started again; the store is paused and its clock stepped.
// A fenced run also freezes instances at any point, for up to 4·T, and restores
// the store from a backup of up to an hour ago. The judge checks:
//
//   - Without freezes and restores: no lease is given away before the work of its
//     last holder has returned, and no effect of a term follows an effect of a
//     later term.
//   - With them, at a ledger that refuses lower terms: every term belongs to one
//     session, and the newest holder is never refused.
//   - No running work has a live context past its session's deadline in the store,
//     in true time (unless the store lost the session).
//   - Terms never fall, and no session is renewed past its deadline by the
//     store's clock.
//   - Once faults stop there is a primary within T + I after the pending calls have
//     timed out, plus one T if the store's clock was stepped; and it stays. After an
//     outage in which every session lapsed there is one as soon as requests are tried again.
//   - A primary finds the state that was written last, and nobody writes it under an older term.
//   - Work that ends after its session is reported, and no other (without freezes).
//
// # Queues
//
// [RunQueue] has two to five dispatchers, users who enqueue, an operator, and a target with a network of its
// own. The target deduplicates by ID or not, answers status queries or not, compares terms or not, decides later, forgets,
// and is slow, down, busy, or silent before or after it acted. The store is the one in memory,
// which is fast; TestQueuesInABubble of package store/sqlite runs dispatchers on a file. The judge checks:
//
//   - At the store: a key is claimed only when it is free, or its holder has lapsed and the second window of its step has
//     passed. Only one message of a key is started at a time, the first one that has not ended, by the holder of the newest
//     term. Exactly the results of that holder count. An interrupted message is resolved first; a blocked one
//     waits for the operator.
//   - At the target: every submission belongs to a step; no two overlap; a message of unknown outcome is not sent again
//     where that is unsafe, nor while another instance has the key within the second window. Each message takes effect
//     once, and the messages of a key in order. Senders that were frozen past their second window are
//     counted separately.
//   - Between them: a message recorded as committed took effect, one recorded as invalid was refused.
//   - Once faults stop, every message is delivered or shown to the operator with a reason,
//     and delivered after the operator has acted; nothing is lost.
//
// A target that does not deduplicate acts on a request within the submission's
// deadline or never, and the store's clock is stepped only beside a target that does. Without
// this nothing could be promised.
//
// # Jobs
//
// [RunJob] has two to five instances that offer a job, a quarter of the time with a crontab where clocks change. They are killed, cut off,
// frozen and stopped around its times; the store is paused and its clock stepped; an operator triggers and pauses it. Each decides
// from what it has read and writes if the job is still the same, which leaves most room for faults. The judge knows every scheduled time and every start, and checks:
//
//   - No attempt starts twice, none that was not declared safe, none before its time, none under a term that is not the newest; no two
//     runs are on at once, unless instances were frozen.
//   - What is stored is true: a run that succeeded did, one that was missed or skipped was never started.
//   - Each scheduled time has exactly one run, and once faults stop it starts within T + I and the time that the run before takes.
//
// [DrawJobYear] draws a year of one: a crontab of hours, days or months in one of ten zones, some year between 2000 and 2030, and outages of
// up to 20 days.
//
// # Caches
//
// [RunCache] has one to seven machines of cache/protocol, and peers that are added and removed, each on a host with
// clocks, a disk and links of its own. Boot clocks run at rates that differ by 0.2 %, wall clocks are off by seconds and
// stepped by up to two hours. Links delay, lose, reorder and duplicate messages, are cut silently in either direction, and
// break. A process is stopped, killed, or killed with its host, and starts again with its storage, without it, or never had any. A
// disk is slow, fails, and loses the last copies; an origin is slow, fails and hangs. The same seed always gives the same
// run. The judge checks at every step:
//
//   - No two fetches of a key at once. A fetch runs until it returns, is aborted, or its time has ended on its own
//     host's boot clock. Fetches of a process that was stopped past that time are counted separately, and so is everything
//     after a live peer was reported dead. Clocks must run at rates that differ by less than a tenth, and a peer whose
//     storage was lost must know that and abstain.
//   - No two fetches of a key in one term, unless a peer with a part in the first has lost its storage since; none
//     in a term that was given up; none without the votes of a majority of a list of members that all of them have.
//   - One vote per peer and term, unless its candidate has given the term up or the
//     voter has lost its storage; nothing is asked, voted or followed above the stored ceiling
//     of terms.
//   - No copy is replaced by an older one. A value fetched before a removal started is
//     not held, accepted or served by a peer that has confirmed the removal, as long as clocks
//     differ by at most Timings.Skew and no term is further ahead of them than
//     restarts move it (after a removal, the next one is).
//   - Every Get is answered once, with what it asked for, and at most the
//     keep-alive interval after its end.
//   - A peer that finds no majority connected is no candidate. No peer is a candidate more than
//     2·(1 s / CandidateMin + 1) + N times for a key within a second, sends more than
//     (N−1)·(2 + Source / (2·Repeat)) questions in an election or more than two
//     answers to a question, or fetches again before its back-off has ended.
//   - Once faults stop, every key has a fresh copy at every member within 2·Source +
//     Ping + Fetch + 1.1·FailMax + 2·Hello + 5 s. Then all members have the same list,
//     none abstains or is partitioned, a refresh reaches all, and in the end only copies are
//     remembered.
//
// # Monitors
//
// [RunMonitor] has two to five instances, each with a real intake, watcher and claims, and sources that send heartbeats,
// fall silent, fail, run and flap. Heartbeats are lost, late, out of order and repeated, and senders' clocks are wrong by
// hours. Instances are killed, stopped, frozen, cut off and started again, and all of them are down for ten minutes. The
// store is down for as long, slow, hangs, loses answers, and its clock is stepped by hours; a message router is down; checks
// are changed, paused and removed. The store is the one in memory, and an SQLite file in some runs. The judge keeps its own
// record of what was acknowledged, probed and configured, and checks:
//
//   - No alarm is raised before the source's limit, plus the blind time of its path, has passed since its last acknowledged
//     heartbeat; none for a source that is not evaluated; none although a heartbeat was stored after the evaluation.
//   - While all is well, an outage raises its alarm within its limit, the claims' first window and 2 s
//     (after a blind period: its limit and 10 s more). An alarm ends as soon after its source is well again,
//     its check was removed, or the source was retired. Pauses end, and groups are reported.
//   - Every sink receives every alarm, ONSET and ABATED in turn, each once, with one ID.
//   - Acknowledged heartbeats are stored; in the end no alarm is open, and nothing waits or is left over.
//
// # Shards
//
// [RunShard] has two, three or five nodes of shardtest.World, each with a real agent.Agent on a host with clocks, disk and
// links of its own, clients that write to every node all the time, and the store in memory. Nodes and agents are killed,
// stopped and started again, together and with their host. Nodes hang and then execute what they had received, lag, lose
// their data, and cannot write. Hosts are split, and each link is cut in each direction: between nodes, from an agent to a node,
// between agents, to the store. The store is down for minutes, slow, loses answers, and its clock is stepped.
// Commands are late and lost; orchestrators die after a step; operators switch over, force, pause and forget. The judge
// knows every acknowledged write and every decision, and checks:
//
//   - No write is accepted under an epoch after the first write of a later one. Writes that only an armed fence
//     could refuse are counted separately: those of a node whose agent is dead or was started less than 2·T ago,
//     and of a node that hung and could not be killed.
//   - A new primary has every write that each replica had which had left the old primary and could be promoted. A
//     switchover loses nothing, also one that went back. In the end all nodes have what the shard kept.
//   - A node that is reported as standing still does.
//   - No primary is replaced unasked that accepts writes and has been followed by a replica with a reporting agent
//     for 2·T.
//   - One primary and one plan per epoch; epochs never fall. No plan chooses a node that its orchestrator had read is dead.
//   - Once faults stop, the shard is settled within a minute + 12·T, or says that no node can be promoted
//     after data was lost, and is settled when an operator has chosen one; it stays settled, and a switchover succeeds.
//
// Only supervised nodes lose data there: if another node came back empty as a primary, its replicas would
// copy that from it.
//
// # Proof of the checks
//
// Each check must catch a [Twin], [QueueTwin], [CacheTwin], [MonitorTwin] or [ShardTwin] that is broken on purpose.
//
// # What it does not do
//
// Except for caches, the same seed draws the same faults, but goroutines that are
// ready at the same instant run in any order: a failing seed may have to be run
// a few times.
package sim

// Package sim runs whole clusters of real keepers, campaigns, dispatchers, caches, monitors and shards
// in one process, under virtual time, from a seed.
//
// A run of a role ([Run]) has three to five instances on one store. Every instance has its own
// clock, whose rate is off by up to lease.Timing.RateTolerance and whose wall
// clock is stepped, and its own link to the store, which delays, reorders,
// duplicates, loses, answers late and is cut, one way or both. Instances are
// killed, stopped and started again; the store is paused and its clock stepped.
// A fenced run also freezes instances at any point, for up to 4·T, and restores
// the store from a backup of up to an hour ago.
//
// # What is checked
//
//   - Without freezes and restores: no lease is given away while the work of its
//     last holder has not returned, and no effect of a term follows one of a
//     later term.
//   - With them, at a ledger that refuses lower terms: every term belongs to one
//     session, and the newest holder is never refused.
//   - No running work finds its context alive past the deadline that its
//     session has in the store, counted in true time (unless the store lost it).
//   - Terms never fall, and no session is renewed past its deadline by the
//     store's clock.
//   - Once faults stop there is a primary within T + I, counted from when the
//     calls that were under way have timed out, and one T more if the store's
//     clock was stepped; and then it stays.
//
// A run of a queue ([RunQueue]) has two to five dispatchers, users who enqueue, a
// person who looks in, and a target with a network of its own: one that recognises
// ids or not, can be asked or not, compares terms or not, decides later, forgets,
// is slow, down, busy, silent before or after it acted. The store is the one in memory,
// because a database cannot run in a bubble. Of it is checked:
//
//   - At the store: a key is taken only from nobody, or from one who lapsed and
//     past the second window of a step; one batch of a key at a time is started, the
//     first that is not over, by the holder of the newest term; only its results
//     count, and they do; what was interrupted is asked for; what waits for a person
//     waits.
//   - At the target: no submission without a step, no two at once, none that
//     nobody knows the fate of again where that is not safe, none while another
//     has the key within the second window; each batch takes effect once, and those
//     of a key in order. Senders that were frozen past their second window are
//     counted apart.
//   - Both agree: what is recorded as committed took effect, what as invalid was
//     refused.
//   - Once faults stop, every batch is delivered or shown to a person with a reason,
//     and delivered when the person has acted; nothing is lost.
//
// A target that does not recognise ids acts on a request within the submission's
// deadline, or never; the store's clock is stepped only beside one that does. Without
// this nothing could be promised.
//
// A run of caches ([RunCache]) has one to seven machines of cache/protocol, and peers
// that are added and removed, each on a host with clocks, a disk and links of its own.
// Boot clocks run at rates that differ by 0.2 %, wall clocks are off by seconds and
// are stepped, by up to two hours. Links delay, lose, reorder and duplicate, are cut
// in either direction without a word, and break; a process is stopped, killed, killed
// with its host, and starts again with its storage, without, or never had any; a disk
// is slow, fails, and loses the last copies; a source is slow, fails and hangs. Of it
// is checked, at every step:
//
//   - No two fetches of a key at once, whatever befalls the cluster. A fetch is under
//     way until it returns, is aborted, or its time is over on its own host's boot clock:
//     those whose process was stopped past that time are counted apart, and so is
//     everything once a peer was reported dead that lives. Besides, clocks must run at
//     rates that differ by less than a tenth, and a peer whose storage was lost must
//     know that it has none to trust: it abstains.
//   - No two fetches of a key in one term, unless someone who had a part in the first
//     has lost its storage since; none in a term that was given up; none without the
//     votes of a majority of a configuration that everyone knows alike.
//   - One vote per peer and term, unless its candidate has given the term up, or the
//     voter has lost its storage; nothing is asked, voted or followed above the ceiling
//     of terms that is stored.
//   - No copy is replaced by an older one. What was fetched before a removal began is
//     not held, taken or served by a peer that has confirmed it, as long as clocks
//     are no further apart than Timings.Skew, and no term further ahead of them all than
//     restarts take it (after a removal, the next is).
//   - Every Get is answered once, with what it asked for, and no later than the
//     keep-alive interval after its end.
//   - A peer that finds no majority connected does not stand; none stands more than
//     2·(1 s / CandidateMin + 1) + N times for a key within a second, sends more than
//     (N−1)·(2 + Source / (2·Repeat)) questions in an election or more than two
//     answers to a question, or fetches again before its back-off has ended.
//   - Once faults stop, every key has a fresh copy at every member within 2·Source +
//     Ping + Fetch + 1.1·FailMax + 2·Hello + 5 s; then all members agree on the members,
//     nobody abstains or is partitioned, a refresh comes to all, and in the end nobody
//     remembers anything but copies.
//
// Nothing there runs beside anything else: the same seed does exactly the same.
//
// A run of a monitor ([RunMonitor]) has two to five instances, each with a real inlet, watcher and
// claims, and sources that beat, fall silent, fail, run, and flap; beats are lost, late, out of
// order and said again, and senders' clocks are wrong by hours. Instances are killed, stopped,
// frozen, cut off and started again, all of them are down for ten minutes; the store is down for as long, slow,
// hangs, loses answers, and its clock is stepped by hours; a message router is down; what is
// expected is changed, paused and removed. The store is the one in memory, and an SQLite file in some runs.
// By books of its own, of what was acknowledged, proven and configured, the judge checks:
//
//   - No alarm is raised of a source before its limit has passed since its last acknowledged
//     beat, with the time that its path was blind; none of what is not judged; none although a
//     beat was stored after it was looked at.
//   - While all is well, an outage is alarmed within its limit + the claims' first window + 2 s
//     (with blindness since: its limit + 10 s more), and an alarm ends as soon after its source is well again,
//     its event was removed, or it was to be retired; pauses end, and groups are reported.
//   - Every sink is told of every alarm, ONSET and ABATED in turn, each once, under one id.
//   - What was acknowledged is stored; in the end nothing stands, waits or is left over.
//
// A run of a shard ([RunShard]) has two, three or five nodes of shardtest.World, each with a real
// agent.Agent on a host with clocks, disk and links of its own, clients that write to every node all
// the time, and the memory store. Nodes and agents are killed, stopped and started again, together
// and with their host; nodes hang and do what they had received when they continue, lag, lose their data, and
// cannot write; hosts are split, and each way is cut by itself: between nodes, from an agent to a node,
// between agents, to the store; the store is down for minutes, slow, loses answers, and its clock is stepped;
// commands are late and lost; orchestrators die after a step; people switch, force, pause and forget. The judge
// knows every acknowledged write and every decision, and checks:
//
//   - No write is accepted under an epoch after the first of a later one. Those that only an armed fence
//     could refuse are counted apart: of a node whose agent is dead, or was started less than 2·T ago,
//     or that hung and could not be killed.
//   - What a new primary lacks, no replica has that had left the old one and was fit; a
//     switchover, and one that went back, lose nothing; what the shard kept is on all nodes in the end.
//   - What says that it stands still does.
//   - No primary is replaced unasked that accepts writes and is followed by a replica whose agent
//     reports, for 2·T.
//   - One primary per epoch; epochs never fall.
//   - Once faults stop, the shard is settled within a minute + 12·T, or says that nobody is
//     suitable after data was lost, and is settled when a person has chosen; and then it stays.
//
// Only supervised nodes lose data there: the replicas of one that comes back empty by itself as a primary
// copy that from it.
//
// Each check is proven by a [Twin], [QueueTwin], [CacheTwin], [MonitorTwin] or [ShardTwin], broken on
// purpose, that it must catch.
//
// # What it does not do
//
// Except for caches, the same seed draws the same faults, but goroutines that are
// ready at the same instant run in any order, so that a failing seed may have to be run
// a few times.
package sim

// Package fault runs whole understudy processes against real servers while they
// are killed, paused, cut off, slowed down, filled up and stepped in time, and
// judges what was lost.
//
// # How
//
//	Cluster ── Node (understudy role run …) ── watchers ── worker ── its grandchild
//	              │ Proxy                                      │          │
//	            Server                                       ledger     ledger
//
// A [Cluster] starts nodes on one store, each through a [Proxy] of its own. The
// program that they guard is the worker (folder worker): it and a grandchild
// that has left its session append an effect to one shared file
// (package worker/ledger) every few
// milliseconds for as long as they live. Nothing checks the term there: the file
// shows what would have happened to a resource that believes everyone. After
// the scenario, [Judge] reads it beside the store's history.
//
// A [Fleet] is instances of the queueworker (folder queueworker) that deliver one
// queue to a [QueueTarget] in the test's process, which remembers every request and
// answers badly. A [Feed] are users who enqueue in transactions of their own. Under
// [QueueChaos] the workers kill and stop themselves at every step of a batch's way (gates
// around the ports), besides random troubles. [JudgeQueue] looks at what the users
// committed, at the store's records and at the target's requests.
//
// [Jobs] are hosts that offer one job: a [Cluster] of understudy job run, whose worker also tells which run it starts, and that it came to
// its end. [JobChaos] kills, stops and pauses them around the due times. Package job/jobtest has the judge: it looks at what was started, and at what the store says of
// it, and the simulation asks it, too.
//
// [Peers] are the members of a cache: understudy cache serve, or the cacheworker
// (folder cacheworker), which waits at gates, has a wall clock that can be set, and can
// have a source that does what it must not. Their source is an [Origin] in the test's
// process, or a program that asks it; it knows of a caller that has gone from the
// kernel, before its own goroutines do. [CacheLoad] asks all the time and remembers what it was
// told; [JudgeCache] reads that beside the origin's calls. Links are cut in a [Network]
// of namespaces, as root, and disks are small mounts that nobody else sees.
//
// A [Shard] is redis-servers, each supervised by an understudy shard agent of its own; node and
// agent can be hurt apart. [ShardLoad] writes to every node all the time, whoever is its
// primary. A write's node tells, in the same transaction, under which lineage it accepted it and how far that
// stands. [ShardChaos] makes one fault after the other, and waits until the shard is well again by
// itself, or has several overlap ([ShardChaos.Compose]); where links are cut, in a [Network], the writers still reach every
// node. [JudgeShard] reads what was
// acknowledged beside the lineages of the shard's row.
//
// [Monitors] are instances of understudy monitor run, each at an address of its own, which
// tell an [AlarmSink] or more in the test's process. A [Beater] is sources that beat at
// any of them; it remembers every attempt, and some of its sources fall silent until
// every sink knows. [MonitorChaos] strikes at random, until the outages that there are then have come to their end in
// spite of it; in the end every source has one more outage from end to end. [JudgeMonitor] reads what was beaten beside the store's alarms
// and what each sink was told.
//
// A [Soak] is three servers with all parts at once, on one store, under [SoakChaos] for hours, while [SoakUsers] use them.
//
// # What the judges promise
//
// Judge, of roles:
//
//   - late: no effect of a term stands after the first effect of a later term.
//     The order is that of the file (O_APPEND), so that no clock is involved.
//   - terms: no two instances have effects under one term, and the history's
//     terms grow with every acquisition.
//   - overlap: the time in which one term had effects, on the host's boot clock,
//     does not touch that of another.
//   - gap: the subject was not without effects for longer than the scenario
//     allows.
//   - history: every term that had effects was acquired, in the history, by the
//     instance that had them.
//
// JudgeQueue:
//
//   - lost: what was committed is in the store, and what the store calls committed
//     took effect.
//   - ghost: what was rolled back, or refused, was not delivered.
//   - commit: batches of one user and key have numbers in the order of the commits.
//   - order: of a key, the next batch was started when the one before was over, under
//     terms that do not fall.
//   - effect: effects of a key are in the order of the numbers.
//   - twice: no batch took effect twice where ids are recognised, or where nobody
//     allowed it to be sent again.
//   - blind: what the target may have was not sent again, at a target that forgets and
//     does not recognise ids, unless a person said so.
//   - shown: what is not over waits for a person, or behind such a batch.
//
// The effects of a job's programs are judged as those of roles are.
//
// JudgeCache:
//
//   - overlap: while the source is called for a key, nobody else calls it for that key.
//   - terms: no term has two calls of a key, and terms grow from call to call.
//   - ghost: what is given in a term is what the source gave to the call of that term.
//   - older: a peer gives nothing older, by term and expiry, than it has given before in
//     the same life.
//   - unfit: a copy expires after what was asked for; a new value was fetched, at least
//     in part, after the question, or a few seconds before by another peer.
//   - return: what was removed, and fetched before, is given no more by who has confirmed
//     the removal.
//
// Calls of a peer that was stopped by a signal while they ran, or just before, are
// counted apart: their overlaps cannot be helped, but their terms must differ. A call that
// was given up before the origin saw it is none.
//
// JudgeMonitor:
//
//   - false: no alarm is raised of a source that had a beat stored, and had sent it,
//     within its limit before, nor before its outage began.
//   - ghost: an alarm ends by a beat that may have been stored since it was raised, and
//     sinks are told of nothing but alarms.
//   - twice: a source has one alarm at a time.
//   - order: of a source, every sink is told ONSET and ABATED in turn, by the first time
//     that each came, and those of one alarm together.
//   - lost: every sink is told of every alarm, and of its end; what is quiet has one. Under random troubles, too, an outage
//     comes to its end at every sink.
//   - shown: what beats has none that stands.
//
// JudgeShard:
//
//   - late: no write is accepted under a lineage after the first one of a later
//     lineage. What was sent to a node while it was stopped was accepted when it went on.
//   - stranger: every write stands under a lineage that the row named.
//   - dropped: what lies within a lineage's end, where the next primary began, is there in the end;
//     of the last lineage, all is.
//   - copied: what all replicas had acknowledged is there in the end.
//
// Writes that a primary alone had are lost with it, and counted. So are those that a node
// accepts in the round in which it continues after a hang that nobody may end, or before its
// armed fence closes when nobody else is left to close it.
//
// Requests of a worker that was paused past its second window are counted apart:
// nobody can recall them. Ledgers are told no term, so that beside them workers are
// paused for less.
//
// Every rule is shown ledgers that break it, and must say so. It is also shown a
// real one: of a node whose guard and watchers are all stopped at once, which no
// guard can help.
//
// [SoakUsers.Judge] has these judges look at the role, the job, the calls of the cache's source and what users were given of them, and the
// alarms. It has one of its own of the queue: of a key, messages come in order, and all that were stored do. In the end, when all is
// well again, an outage has to come to its end, and no source that beats may stand in alarm.
//
// # What it does not promise
//
// How late an alarm comes under random troubles has no bound but that it comes while they last.
//
// A soak does not judge writes to its shard, which a failover may lose, nor whether the sink was told of each alarm: of those that
// the store has dropped, only what was told is known.
//
// That a rule was tried by a fault: a scenario waits for what its fault should
// bring about (a takeover, a loss) and fails if that never comes. The wall clock
// of this host is left alone: the simulation steps it, and so does the cacheworker for
// itself.
//
// # How it fails
//
// A test that fails prints what its nodes and servers said, and the seed where
// there is one. Every process is ended by its id when the test ends, and
// [Leftovers] finds what is still there. It runs on Linux only.
package fault

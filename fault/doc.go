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
// shows what would have happened to a resource that believes everybody. After
// the scenario, [Judge] reads it beside the store's history.
//
// A [Fleet] is instances of the queueworker (folder queueworker) that deliver one
// queue to a [QueueTarget] in the test's process, which remembers every request and
// answers badly. A [Feed] are users who enqueue in transactions of their own. Under
// [QueueChaos] the workers kill and stop themselves at every step of a batch's way (gates
// around the ports), besides random troubles. [JudgeQueue] looks at what the users
// committed, at the store's records and at the target's requests.
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
//   - order: of a key, the next batch was begun when the one before was over, under
//     terms that do not fall.
//   - effect: effects of a key are in the order of the numbers.
//   - twice: no batch took effect twice where ids are recognised, or where nobody
//     allowed it to be sent again.
//   - blind: what the target may have was not sent again, at a target that forgets and
//     does not recognise ids, unless a person said so.
//   - shown: what is not over waits for a person, or behind such a batch.
//
// Requests of a worker that was paused past its second window are counted apart:
// nobody can recall them. Ledgers are told no term, so that beside them workers are
// paused for less.
//
// Every rule is shown ledgers that break it, and must say so. It is also shown a
// real one: of a node whose guard and watchers are all stopped at once, which no
// guard can help.
//
// # What it does not promise
//
// That a rule was tried by a fault: a scenario waits for what its fault should
// bring about (a takeover, a loss) and fails if that never comes. The wall clock
// of this host is left alone: the simulation steps it.
//
// # How it fails
//
// A test that fails prints what its nodes and servers said, and the seed where
// there is one. Every process is ended by its id when the test ends, and
// [Leftovers] finds what is still there. It runs on Linux only.
package fault

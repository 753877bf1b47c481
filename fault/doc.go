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
// # What the judge promises
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

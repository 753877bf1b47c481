// Package shard keeps one primary per shard of a database: it notices that the
// primary is gone, chooses the best replica, promotes it, and makes sure that the old
// one accepts nothing any more.
//
// A shard is a primary and its replicas, each a node: a database server that this
// package does not replace. An agent (package shard/agent) runs beside every node. The agents
// meet in a [Registry], which a store keeps; any of them that sees that the primary is lost
// takes the failover lock and becomes the orchestrator of one [Plan].
//
// This package is the pure part: records, and rules without goroutines or I/O. [Judge] says whether
// a primary can be replaced, [NextAction] what an orchestrator does next, and [Decide] what an agent
// does with its own node. [Admin] serves operators.
//
// # Files
//
//	judge.go, opinions.go, acknowledge.go             whether the primary can be replaced; what other agents know of
//	                                                  it; who may still acknowledge its writes
//	planner.go, plan_start.go, plan_phases.go         what the orchestrator does next: start a plan, or continue it
//	choose.go                                         which replica is promoted
//	decide.go, saved_state.go, appendlog.go           what an agent does with its own node
//	row.go, row_changes.go, lineage.go                what is decided about a shard, and what agents change of it
//	record.go, view.go, command.go, promise.go        what agents report, read, order and promise
//	registry.go, engine.go, process.go, hooks.go      ports: store, node, process, a user's programs
//	admin.go, endpoint.go, status.go                  for operators, clients and pages
//
// The documentation of package agent follows a failover through both packages, and says where a new condition for one goes.
//
// # Who is the primary
//
// The shard's [Row] names it, and an epoch, which only grows. The row changes by
// compare-and-set alone ([Registry.UpdateRow]). A node becomes the primary, and is opened for writes, only after
// its agent
//
//   - has promoted it while it was fenced,
//   - holds the shard's lease, under a session that it renews only after the node
//     has answered a write probe, and
//   - has written itself into the row, under the epoch of the plan that names it (at a bootstrap or resumption a new one).
//
// One that the row names already is opened again with the lease alone, after [Decide] was asked again.
//
// A plan that was replaced by a later one has lost the right to the last step: so at
// most one node is opened per epoch, whatever its agents and orchestrators do.
//
// # When a primary is lost
//
// [Judge] is the rule. Two signals are needed: the session of its agent has lapsed by the
// judge's own count ([lease.TakeoverPolicy]), and no live agent gets an answer from the node. A replica with input
// from it since then vetoes. That its agent saw the process end is proof by itself, and needs no
// waiting. Silence is no proof: it must last as long as the node's own fence takes to close, or for the timeout T if the node
// answered after the lapse or its agent lives. It counts only when so many replicas have left the primary, or are proven dead, that
// the rest cannot satisfy that fence. A primary also counts as lost once its peers have found its fence closed for T
// while its own agent was silent: that one closed it, and died before it could say so.
//
// # Fences
//
// A fence is a condition in the node itself. It is armed beforehand (Redis: min-replicas-to-write): an armed
// primary whose replicas do not acknowledge refuses writes, so that one that is cut off closes by itself. It is closed by
// the agent, at the end of its trust in the session; a node that hangs, so that it cannot be closed, is killed by then. An
// armed fence that would close because too
// few replicas are left is disarmed only after the record says so, and a primary that is
// silent behind a disarmed fence is not replaced without an operator. An agent that is without the store for T, and
// has promised nothing, detaches its replica: its acknowledgements may be all that keeps open the fence of a primary
// which lost its agent.
//
// # What it promises
//
// No node accepts a write under an epoch after the first one accepted under a later
// epoch, except for what is listed below. A healthy primary is not deposed because its
// agent died, its store is down, or clocks were stepped. What a replica had that was chosen
// is not lost, and among those that can be reached the one with the most is chosen. One that
// answers late, before the chosen one was written into the row, and has more, makes it give
// way once.
// A primary that was restarted continues only when no member that lives has more of its lineage than it has itself. One
// that was restarted from an append-only log does not tell where it stands: if its log is shorter than the members' agents
// saw it while it led, it stays closed until an operator chooses.
// A store that came back empty is given the shard by whoever knows the highest epoch of those that report within T, and
// data that diverged from that is kept until an operator gives it up.
// A switchover loses nothing. Whatever dies on the way, the next orchestrator brings
// the shard to one primary.
//
// # What it does not promise
//
// Replication is asynchronous: what the primary acknowledged and no replica had is lost
// with it. Where the agent cannot act, because it is dead, stopped together with its node, or told not to
// kill, the armed fence alone closes the node, and that leaves two gaps. One that is cut off
// accepts writes for up to three seconds after the last acknowledgement of a replica that reached it, which can be
// later than the first write of its successor. One that hangs accepts, at the moment when it continues, what
// waited on connections that it had before: Redis looks at its clock only after that round.
//
// # How it fails
//
// A shard without a suitable replica stays without a primary, and the [Action] says
// why, node by node, and which command would force it. While the store is down nothing
// fails over; a primary continues as long as the agents of all other members promise
// not to replace it, and closes its fence otherwise.
package shard

// Package agent runs the agent of a shard beside its node: it reports the node, holds the shard's lease for it while
// it is the primary, keeps its fence, carries commands out, and orchestrates a plan when it holds the failover lock.
// What it does follows from the pure rules of package shard; that package says what those promise.
//
// # Shape
//
// An [Agent] joins components in one loop ([Agent.Run]). Each component has a small state of its own, which only the
// loop touches; whatever may take time runs in the background and posts its result back. In the order of a turn:
//
//	probe        asks the own node about itself (nodeProbe); the process that it runs in (supervisor)
//	death        reports that the own node is dead, and gives the lease up (reconciler.declareDeath); closes an open
//	             primary that the agent was started beside, once others may replace it (closeWithoutLease);
//	             detaches a replica whose agent is without the store (detachWithoutStore)
//	lease        keeps a session while the node is, or becomes, the primary (sessions, by package lease's keeper,
//	             renewed only after a write probe), notices that the shard's lease was lost (shardLease.update; tasks of the
//	             reconciler take and release it), and judges whether anybody's lease can be taken (leaseWatch)
//	promises     lets a primary continue while the store is down
//	otherShards  lets the components from peer to save run only when the store takes its record, and no other shard has the node
//	peer         asks whether the primary answers, when that is another node (peerProbe)
//	reconcile    carries out the [shard.Decision] about the own node, or a command (reconciler, inbox): one task at
//	             a time
//	arm, members keeps what is the primary's to keep: its armed fence (armer), the members (membership)
//	orchestrate  carries out what the planner wants done (orchestrator), under the failover lock (failoverLock)
//	save         saves what must survive a restart (saver)
//	report       sends the node's record, and gets the shard's view back (reporter, viewCache)
//	shutdown     hands a primary over when the agent is told to stop, and ends the loop (stop.go)
//
// Beside the loop, a goroutine of its own closes the fence when trust ends (fence, trust), so that nothing else that
// hangs is in its way.
//
// # How a failover goes
//
// The primary's host is cut off. There, fence.run closes the fence when trust ends (tryClose; onHung has a node that hangs
// killed). On each other host:
//
//  1. leaseWatch counts out the session's T; the turn at its end finds that the lease can be taken.
//  2. peerProbe probes the primary, and reporter reports the opinion at once.
//  3. orchestrator gives the view to [shard.NextAction], if it may act (mayAct: the view is fresh, no promise forbids it,
//     and after a gap everyone has had T to report again). Only members' agents orchestrate: others get an empty Action.
//  4. [shard.Judge] (shard/judge.go) decides whether the primary can be replaced. It can be on one signal that is proof
//     ([shard.Finding].Proved): its agent saw the process end, or its fence is closed and it is quarantined, it loads and the
//     lease could be taken for T, or its agent has been gone for T. Otherwise there must be two signals and no veto: the session
//     has lapsed, and no member's agent gets an answer from the primary; a replica that still hears from it is a veto
//     (secondOpinion). If all are refused, that is enough. If it is only silent, judgeSilence also wants an armed fence, silence
//     for FenceDelay, and too few replicas that may still acknowledge; without the first or the last it is Stuck.
//  5. planner.next (shard/planner.go) fails a plan under way if the store has lost what was decided last (lostDecisions).
//     Without a plan, it starts or refuses an operator's request (startRequested), or blocks a failover for lost decisions.
//     Otherwise startAutomatic (shard/plan_start.go) starts one, unless failover is paused, the shard is flapping, a failover
//     failed a moment ago, or there is no candidate. For a primary that is silent and that nothing proves closed (Stuck),
//     startAutomatic is called, too, only to return the reason (Blocked). One agent takes the failover lock and writes a plan
//     under a new epoch (phase detaching).
//  6. reconciler of each replica carries out "detach"; reporter reports where its data stands still. A replica whose
//     agent is without the store gets no command: detachWithoutStore (follow.go), also in the turn, detaches it. Meanwhile
//     the orchestrator closes an old primary whose agent is silent (fenceAt, fenceOldPrimary). It detaches replicas whose
//     agents are silent, if the finding rests on the armed fence alone (detachAt, RestsOnFence; detachReplicas).
//  7. planner.detaching (shard/plan_phases.go) waits for the replicas' answers, for Policy.Patience at most, and then until
//     the old primary is certain to be closed (awaitDetached). A forced plan does not wait for that certainty; another
//     plan fails if it does not come. Then choosePrimary (shard/choose.go) chooses, and orchestrator writes the chosen node
//     into the plan (phase promoting). The node of a switchover is chosen before it starts, in startRequested.
//  8. reconciler of that node carries out "promote" (promote.go): call the hook, close the fence, promote, take the
//     lease, write the row, open. If a better candidate has left the old primary since then ([shard.Plan.LaterBetterCandidate]), it does
//     not write the row, and does not open. The row that it writes ([shard.Row.WithNewPrimary]) names its node as the primary and
//     moves the plan to phase following: the promoted agent starts that phase, not the orchestrator.
//  9. orchestrator sees phase following in the row, sends the others "follow", and ends the plan.
//
// The turn starts each step with a call into one component; a task then runs beside the loop, and its result starts another turn.
//
// # Where a condition for a failover goes
//
// It depends on who sees it:
//
//	the primary's own agent   the node ends: supervisor, reconciler.declareDeath; the node cannot write: sessions.checkNode,
//	                          reconciler.giveUpUnwritable (lead.go). A new one goes beside giveUpUnwritable, which closes
//	                          the fence and gives the lease up. Judge finds the node quarantined for as long as carryOut
//	                          (reconcile.go) keeps it so
//	the agent, from the data  [shard.Decide] quarantines the node, as after a restart that lost data (shard/decide.go)
//	other agents              peerProbe makes an [shard.Opinion] of it, which each agent reports; gatherOpinions
//	                          (shard/opinions.go) counts them, and [shard.Judge] makes the [shard.Finding]. A failover that
//	                          an operator asks for needs that, too, unless it is forced
//	nobody: a limit           startAutomatic (shard/plan_start.go), as [shard.Policy].FlapLimit (for Go programs only)
//	nobody: the candidate     unfitReason (shard/choose.go), as MaxLag: see below
//	nobody: a time            startAutomatic, by a field of Row, as Row.Paused, which holds for all agents. Only the store's
//	                          clock (View.Now) is the same for all, and a time of day needs a time zone
//	nobody: a wait            startAutomatic compares a new field of [shard.Policy] with TakeableFor (0 while the lease
//	                          cannot be taken), and returns what is left as Action.Wait
//
// A connection that other agents see refused is a signal, not proof. If all agents that are asked are refused, the primary can be replaced
// whether its fence is armed or not, and FlapLimit applies. If one of them gets no answer, a refusal counts as silence.
//
// A check in startAutomatic does not stop an operator's request, the hand-over of an agent that stops (stop.go), a plan
// under way, or the plans that take its place (replacePlan, returnToOldPrimary).
//
// If startAutomatic returns Blocked for a primary that its own agent keeps closed, the shard stays without a primary. So the
// same check must keep giveUpUnwritable (lead.go) from closing it: in [shard.View].HasSuccessor if it depends on the candidate,
// as MaxLag, and beside Row.Paused in lead.go if on the shard. After a restart, decideBySavedState and longerCopy
// (shard/decide.go) also keep a primary closed, because it may have lost data. They look at neither Policy nor Row.Paused.
//
// # Where a condition for the candidate goes
//
// unfitReason says why choosePrimary does not choose a node, also for an operator's request. (If the request names the node and
// forces it, only whether the node answers counts.) What it reads from the node's [shard.Record] holds for all callers of
// choosePrimary: `--priority 0` already means that a node is never promoted by itself. What it reads from a [shard.Policy], as
// MaxLag, holds only for callers that have one: startAutomatic, startRequested, planner.detaching and HasSuccessor. These
// have none:
//
//	decideBySavedState (shard/decide.go)    a primary that was restarted stays closed for a replica that has as much
//	View.Successor (shard/choose.go)        what the API shows; whether an agent that stops asks for a hand-over (stop.go)
//	LaterBetterCandidate (shard/choose.go)  a node that is being promoted gives way (promote.go)
//
// longerCopy (shard/decide.go), which also keeps a restarted primary closed, does not call unfitReason at all: it compares
// data, also with nodes that are never promoted (priority 0). It stays so for any new condition of a node, such as its zone: a
// primary that skipped such a node would continue with less than a member has; it is closed until an operator chooses.
//
// # Where a setting goes
//
//   - its flag: a field of Settings in internal/shardagent/flags.go, copied by configure and checked by complete;
//   - its bounds: [Config.ValidateSettings], which flags and file share;
//   - a line in internal/settings/example.yaml, of which docs/understudy.yaml is made: go test ./internal/settings -run
//     TestReference -update;
//   - a scene in shard/testdata: planner_script_test.go reads the words of a row and a node, planner_scene_test.go those
//     of a plan, a request and a Policy;
//   - docs/shard.md if most people need it, docs/shard-runbook.md for a text of what is blocked, CHANGELOG.md always.
//
// A [shard.Policy] is each agent's own, so such a flag must be the same on all. That of the agent with the failover lock
// decides about the plan; that of the node's own agent about giveUpUnwritable (MaxLag), and how long a command may take
// (startCommand: Patience, HookTimeout). api.ViewShard asks the planner with a Policy of its own, all defaults but FenceDelay: what
// the API, the metrics and the doctor show as blocked knows nothing of a field that agents set.
//
// A setting of one node that the others must know goes the way of Priority: Config, record.go, [shard.Record], choose.go, and
// then api (apitype/shard.go, shardview.go, shardmetrics.go, openapi.json), internal/doctor/shards.go, cmd/understudy/shardshow.go
// and web/nodes.js. A field of Row goes the way of Paused (grep for it): shard (row.go, admin.go, checks), the same files of api and
// shards.go, shardwrite.go and client/shards.go there, internal/attention, shard/sentinel, cmd/understudy, web, docs. shard/shardtest proves that stores keep both kinds.
//
// Two settings exist for how long a primary may be silent or gone: T (Timing.Timeout), after which its session has lapsed,
// and [Config].RestartGrace, in which its process may be back before its death is reported. leaseWatch only reports when a
// lease can be taken: no wait belongs there.
//
// What takes time in a promotion has four limits: of the task, in startCommand (command_tasks.go) and lead (lead.go); of the
// plan, in promoting (shard/plan_phases.go); and of an orchestrator that is taken to live, in hasLiveOrchestrator
// (shard/planner.go). [shard.Policy].HookTimeout, of the hooks (hooks.go), is in all but lead's, which calls none before it promotes.
//
// # What is open, armed or closed
//
//	field                 what it is                     set by                             relied on by
//	fence.mayBeOpen       this agent opened it, took it  fence, around SetFence; adoptOpen,  the guard that closes it in time,
//	                      over, or found it open and     closeSilent; nodeEnded ends it     isTrusted, promises, lead, armer
//	                      silent; not seen closed since
//	probe.state.Fence     as the node says; armed with   nodeProbe; armer and releaseHeld,  reconciler, armer
//	                      other Needs counts as open     at once after SetFence
//	probe.announcedFence  what is about to be opened     openNode; a probe that saw it      Record.Fence
//	                                                     ends it
//	armer.armed           a promise, ahead of disarming  armer; openNode, closeUnless-      armer, openNode, Record.Armed
//	                      and behind arming; it may      SameRun, stepDown, declareDeath,
//	                      outlast a fence that closes    a restart of the node
//	Record.Fence          announcedFence, or state's     record                             Judge: Closed is a promise
//	Record.Armed          armer.armed                    record                             Judge: only an armed fence
//	                                                                                        closes by itself
//
// # How it fails
//
// Errors of the store and the node are retried with a pause, and logged when they start, change and end. [Agent.Run]
// ends only with its context. An agent that is killed leaves node, session and record as they are: the session lapses
// after T, and the next agent with the same data folder continues.
package agent

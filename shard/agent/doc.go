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
//	             renewed only after a write probe), takes and releases the shard's lease (shardLease), and
//	             judges whether anybody's lease can be taken (leaseWatch)
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
//     and after a gap everyone has had T to report again). There [shard.Judge], secondOpinion and judgeSilence
//     (shard/judge.go) decide whether the primary can be replaced: two signals, no veto. planner.next (shard/planner.go) fails a
//     plan under way if the store has lost what was decided last (lostDecisions), then starts or refuses an operator's request
//     (startRequested), then blocks a failover for lost decisions. Otherwise startAutomatic (shard/plan_start.go) starts one,
//     unless failover is paused, the shard is flapping, a failover failed a moment ago, or there is no candidate. It is also
//     called for a primary that is silent and that nothing proves closed (Stuck), only to return the reason (Blocked). One agent
//     takes the failover lock and writes a plan under a new epoch (phase detaching).
//  4. reconciler of each replica carries out "detach"; reporter reports where its data stands still. A replica whose
//     agent is without the store gets no command: detachWithoutStore (follow.go), also in the turn, detaches it. Meanwhile
//     the orchestrator closes an old primary whose agent is silent (fenceAt, fenceOldPrimary), and detaches replicas whose
//     agents are silent (detachAt, detachReplicas).
//  5. planner.detaching (shard/plan_phases.go) waits until the old primary is certain to be closed (awaitDetached), and
//     chooses with choosePrimary (shard/choose.go); orchestrator writes the chosen node into the plan (phase promoting).
//     The node of a switchover is chosen before it starts, in startRequested (shard/plan_start.go).
//  6. reconciler of that node carries out "promote" (promote.go): call the hook, close the fence, promote, take the
//     lease, write the row, open. If a better candidate has left the old primary since then ([shard.Plan.LaterBetterCandidate]), it does
//     not write the row, and does not open. The row that it writes ([shard.Row.WithNewPrimary]) names its node as the primary and
//     moves the plan to phase following: the promoted agent starts that phase, not the orchestrator.
//  7. orchestrator sees phase following in the row, sends the others "follow", and ends the plan.
//
// The turn starts each step with a call into one component; a task then runs beside the loop, and its result starts another turn.
//
// # Where a condition for a failover goes
//
// It depends on who sees it. What other agents see takes one way: peerProbe makes an [shard.Opinion] of it, which each
// reports; gatherOpinions (shard/opinions.go) counts them; Judge makes the [shard.Finding], and startAutomatic sees
// nothing else of them. That a host refuses connections is an answer of the host, and counts as proof.
//
//	the primary's own agent   the node ends: supervisor, reconciler.declareDeath; the node cannot write:
//	                          sessions.checkNode, reconciler.giveUpUnwritable (lead.go). A new one goes beside the
//	                          latter: it closes the fence and gives the lease up, and Judge finds the node quarantined
//	                          for as long as carryOut (reconcile.go) keeps it so.
//	the agent, from the data  [shard.Decide] quarantines the node, as after a restart that lost data (shard/decide.go)
//	other agents              [shard.Judge], from their opinions (peerProbe): a failover that an operator asks for
//	                          needs it, too
//	no observation, a limit   startAutomatic (shard/plan_start.go), as [shard.Policy].FlapLimit (for Go programs only); of
//	                          what is chosen, unfitReason (shard/choose.go), as MaxLag, which has a flag and which
//	                          operators' requests obey, too
//	no observation, a time    startAutomatic, by a field of Row, as Row.Paused, which holds for all agents: only the store's
//	                          clock (View.Now) is the same for all, and a time of day needs a time zone. grep for Paused:
//	                          shard (row.go, admin.go, checks, shardtest), api, internal/attention, cmd/understudy, web, docs
//	no observation, a wait    startAutomatic: there a new field of [shard.Policy] would be compared with TakeableFor
//	                          (0 while another node's agent holds the lease), and what is left returned as Action.Wait
//
// What makes startAutomatic return Blocked for a primary that its agent keeps closed must also keep giveUpUnwritable
// (lead.go) from closing it: in [shard.View].HasSuccessor if it depends on the candidate, as MaxLag, beside Row.Paused in
// lead.go if on the shard. A check in startAutomatic does not stop an operator's request, the hand-over of an agent that
// stops (stop.go), a plan under way, or the plans that take its place (replacePlan, returnToOldPrimary).
//
// Two settings exist for how long a primary may be silent or gone: T (Timing.Timeout), after which its session has lapsed,
// and [Config].RestartGrace, in which its process may be back before its death is reported. leaseWatch only reports when a
// lease can be taken: no wait belongs there.
//
// What takes time in a promotion has four limits: of the task, in startCommand (command_tasks.go) and lead (lead.go); of the
// plan, in promoting (shard/plan_phases.go); and of an orchestrator that is taken to live, in hasLiveOrchestrator
// (shard/planner.go). [shard.Policy].HookTimeout, of the hooks (hooks.go), is in all but lead's, which calls none before it promotes.
//
// A setting has its flag in internal/shardagent/flags.go: a field of Settings, copied by configure and checked by complete.
// It has a line in internal/settings/example.yaml (docs/understudy.yaml is made of that: go test ./internal/settings -run TestReference
// -update), its bounds in [Config.ValidateSettings], which flags and file share,
// and a scene in shard/testdata (scene.policy in planner_scene_test.go reads a Policy's); docs/shard.md names those that
// most people need, docs/shard-runbook.md the texts of what is blocked, and CHANGELOG.md all. A Policy is each agent's own:
// which agent gets the failover lock decides, so the flag must be the same on all of them. And api.ViewShard asks the planner with a Policy of its own, all defaults but FenceDelay: what the API
// says is blocked would know nothing of the wait. A setting of one node that the others must know goes the way of Priority:
// Config, record.go, [shard.Record], choose.go, and from there to the API, the command line and the page.
//
// # What is open, armed or closed
//
//	field                 what it is                     set by                             relied on by
//	fence.mayBeOpen       this agent opened it, took it  fence, around SetFence; adoptOpen,  the guard that closes it in time,
//	                      over, or found it open and     closeSilent; nodeEnded ends it     isTrusted, promises, lead, armer
//	                      silent; not seen closed since
//	probe.state.Fence     as the node says               nodeProbe; armer and releaseHeld,  reconciler, armer
//	                                                     at once after SetFence
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

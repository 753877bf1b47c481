// Package monitor raises an alarm when a source falls silent, and ends it when the source returns: a dead man's
// switch for machines, jobs and programs.
//
// Sources send heartbeats under the name of a [Check], which says what to expect: one per interval, or at the times
// of a schedule. Any number of instances receive heartbeats ([Intake]) and evaluate sources that are due ([Watcher]).
// They meet in the store ([Store]).
//
// # The way of a heartbeat
//
//	monitor/intake (HTTP, ping URLs, the message router; internal/server/monitor.go opens its paths) → IntakePath.Record (intake.go) → queue (queue.go) → flusher (flush.go) → HeartbeatStore.RecordHeartbeats, one row per source.
//	    resolve.go finds the IDs of sources (idcache.go), merge.go makes one update of the heartbeats of each.
//	Watcher (watcher.go, detect.go) → Detection.DueSources → changeBuilder (changes.go), which asks Check.Evaluate (rule.go) →
//	    Detection.ApplyChanges, which starts or ends the alarm.
//	ApplyChanges stores a Notification (message.go) for every sink, or ReportGroup those of a group → package dispatch delivers it by the sink's Submit
//	    (monitor/sink/sink.go), which leaves out what its receiver should not get: late reminders, some control-loop events.
//
// housekeeping.go registers the instance, sweeps, reports groups (groups.go) and reminds (reminders.go). settings.go has the
// configuration as a watcher knows it, loop.go its requests that are made again and again. store.go and admin.go are the ports.
//
// Who evaluates: Watcher.Run (watcher.go) claims partitions with claim.Hold (keys: store.go, ClaimKeys). When an instance dies,
// others claim them after the first window and claim.PollInterval, some 6 s by default (Watcher.WorstTakeover), up to a minute
// more after a step back of the store's clock (offerKeys). Two watchers at once do no harm.
//
// Whether an alarm starts or ends is decided in [Check.Evaluate] (rule.go, deadline.go), which is pure. So is what inhibits an
// alarm: maintenance, or the source that this one depends on (inhibit.go). readParents (detect.go) reads the parent, and shows it as
// paused while the parent's check is paused or in maintenance.
// What is blind is decided before all that, by [PathStatus] (path.go). SQLite calls its RecordProbe (store/sqlite/monitor_paths.go);
// the copies are monitor_record_probe in store/postgres/functions/monitor_intake.sql, and recordProbes in
// internal/memstore/checks/intake.go.
// What follows is decided in changes.go: changeBuilder.onset says whether the alarm is held for its group; end says what is
// sent when it ends, which depends on what was sent before. groups.go (groupReport) decides
// when and how held alarms are reported, and when a group's alarm ends, reminders.go what is sent again, and the store's
// compare-and-set (ApplyChanges, ReportGroup) whether it still applies. ApplyChanges is in store/sqlite/monitor_apply.go, in
// store/postgres/functions/monitor_apply.sql, and in internal/memstore/checks/detection.go, the store in
// memory. Redis keeps no sources.
//
// The rule runs when a source is due. A success of a healthy source (up, not in a run, without an alarm) makes nothing due; a start
// or a failure always does (RecordHeartbeats). An option about single heartbeats has to be added there in each store (store/sqlite/monitor_beats.go,
// store/postgres/functions/monitor_intake.sql, internal/memstore/checks/intake.go), and in merge.go, which makes one update of several.
//
// A source has no options. It has labels, which the rule does not see; an option of a check may name one, as DependsLabel
// does. A new option of a check is
//
//   - a field of Check with its default and validation (check.go), and its effect in the rule. If a change of it can make
//     a source overdue that was not, or end what inhibits its alarm, it is also a line of [Check.IsStricterThan], and of
//     its copy in "monitor_configure", store/postgres/functions/monitor_config.sql. A source whose alarm stands is not evaluated
//     before the [Evaluation].Due of its Onset, unless a heartbeat comes, its check changes or an operator acts. The judge
//     knows most options that move a deadline (sim/monitor_rule.go, monitor_calm.go), not DependsOn and Maintenance: give it
//     yours, and a check that uses it in monitor_world.go. An option that names a label also has a part in [Check.MovesFromParent]
//     and its copy in SQL.
//     One that inhibits alarms is asked in inhibit (inhibit.go) and, if it says something of a parent, in readParents (detect.go).
//     Maintenance is also asked in remindOfAlarms (reminders.go), DependsOn is not. Neither is asked where a new option has to
//     decide: hasRecovered and evaluateDown (rule.go: an alarm that stands goes on, and so does RetireAfter) and groupReport
//     (groups.go: a held alarm is reported). An option of what follows an alarm is not in the rule: its effect is in changes.go, groups.go or
//     reminders.go. Data that ABATED needs from ONSET is a field of [Candidate], which each store fills in. sim/monitor_admin.go
//     and store/sqlite/monitor_process_test.go check that each sink gets both messages;
//   - its field in the API (api/apitype/check.go), and its key in a configuration file (Check in
//     internal/settings/checks.go, and example.yaml): copyOptions there copies fields of the same name and type, and leaves out
//     all others without an error. The flag --check reads it by its type (ParseCheck there). Only schedule and maintenance may
//     contain commas: add your key to ParseCheck if its value may;
//   - its key in the help of cmd/understudy/monitorrun.go and, by hand, in docs/monitor.md; generated files follow with
//     -update;
//   - if receivers of alarms should see it, a field of AlarmMessage, filled by Check.message (message.go), and what each kind of sink
//     makes of it (monitor/sink/describe.go, template.go);
//   - a line in CHANGELOG.md;
//   - its value in the tests that go through the fields: checkjson_test.go, monitortest/testconfig.go,
//     internal/settings/checks_test.go and api/monitorwrite_test.go (which lists them by hand: add yours);
//   - if SQL reads it, a column in store/sqlite (a migration, monitor_config.go and monitor_check.go) and in store/postgres, whose
//     functions/README.md says where, and which other names
//     stand there for a check (event), its limit (patience) and CheckChanged (base).
//
// A new fact about a source is a field of [Facts] (facts.go), and each store fills it in: factRow in
// store/sqlite/monitor_due.go, scanCandidate in store/postgres/monitor_detection.go, and step.facts in
// internal/memstore/checks/memory.go. What a rule needs of other sources is read as [Parent] is, or, to know whether they are silent, as
// [Candidate]: by a method of Detection (store.go, its limits in validated.go) in each store and in monitortest, which detect.go asks and sim/monitor_node.go passes on.
//
// # Clocks
//
// Silence is judged by when heartbeats were received, on the monitor's own clock, [StoreTime]: the store's clock,
// except that it never goes back. Each intake path ([PathStatus]) is known to have worked until its last probe. A
// blind period, in which a path could not receive because no instance received, the store was down or a router did not
// answer, counts against no source. A forward step of the store's clock looks the same, and counts against none either. While
// heartbeats are received and only watchers are down, nothing is blind: alarms are late.
//
// # The rule
//
// A source is overdue when its path has been seen to work past
//
//	the last heartbeat + interval × missed + grace + the blind time since
//
// interval × missed + grace is the source's limit ([Check.FixedLimit]).
//
// A blind period since the last heartbeat extends this: the source has one interval and grace after the end of the blind
// period to be heard again, because what it sent in it may have been lost. The extension is never longer than one
// interval and grace beyond the line above, so a path that fails again and again cannot hide for ever a source that has
// been heard and has an interval.
//
// A source that was declared or resumed, or whose check became stricter ([Check.IsStricterThan]), after its last heartbeat
// has a whole limit from then on, and one more after a blind period. Times of a schedule before the end of a blind period
// do not count, because their heartbeats may have been lost. For sources with a schedule, and for those that were never
// heard, each blind period therefore starts the wait again: a path that fails again and again can hide them. A heartbeat that
// comes before a time of a schedule counts for it if it is early by no more than the grace, and at most one minute, and no time
// before is nearer: clocks differ. A run does not count as overrun if its path was blind meanwhile: silence will tell.
//
// An alarm ends with a heartbeat that leaves nothing wrong (not with a failure or the start of a run), with a change of its check's
// times by which the source is not overdue, or with its source. A pause, maintenance or a parent's outage that begins while it stands
// does not end it. The alarm of a source that flaps ends once it has been well for [Check].Steady. A blind period, a resume or the start
// of a run is no sign of life.
//
// # What it promises
//
// An acknowledged heartbeat is stored. An outage is one ONSET and, at its end, one ABATED, in this order and with one
// request ID, each stored for every sink in the transaction that changes the source, unless the alarm is held for its group: then
// ReportGroup stores one ONSET and one ABATED of the group, or those of its members; package dispatch delivers them at
// least once, in order per source. ApplyChanges is a compare-and-set on the source, its last heartbeat and its check: a heartbeat that
// arrives in between undoes the judgement, whichever instance made it. ReportGroup is one on what is held, and on what stands, of the group. The parent,
// path and maintenance window of a source were so when it was judged, which may be a moment ago. An instance that dies costs its sources the first window of its claims and
// claim.PollInterval, and groups and reminders the same if it was the one that sweeps.
//
// # What it does not promise
//
// A heartbeat that was lost on its way looks like one that was never sent; missed and grace cover that. A source whose
// heartbeats all arrive later than its limit is overdue, whatever its own clock says. A path that hangs for less than
// its [Probe.MaxGap] is not noticed. Of instances that share a path, one that is full or stopped is hidden by the others, which
// prove that the path works. Sinks that cannot deduplicate by request ID may receive an alarm twice.
package monitor

package monitortest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// The suite's time. The clock is stepped, never waited for; slack is what a store
// whose clock runs on may be off by.
const (
	interval = 10 * time.Minute
	limit    = 3 * interval
	slack    = time.Minute
	wideGap  = 1000 * time.Hour // of a path that counts as seeing whatever the test does
	hook     = "hook"           // the sink of most tests
)

// bench is one test with its store.
type bench struct {
	testing.TB
	monitor.Store
	t       *testing.T
	rig     Rig
	ctx     context.Context
	session string
}

func (b *bench) step(d time.Duration) {
	b.Helper()
	if b.rig.Step == nil {
		b.Skip("this store's clock cannot be stepped")
	}
	b.rig.Step(b.t, d)
}

// other is another handle on the store.
func (b *bench) other() monitor.Store {
	if b.rig.Open == nil {
		return b.Store
	}
	return b.rig.Open(b.t)
}

// begin starts a session.
func (b *bench) begin(name string) string {
	b.Helper()
	s := lease.Session{
		ID: lease.NewID(), Instance: lease.NewInstance(name, "127.0.0.1:80"),
		Timing: lease.Timing{Interval: 1000 * time.Hour, Timeout: 5000 * time.Hour},
	}
	if _, err := b.rig.Sessions.StartSession(b.ctx, s); err != nil {
		b.Fatalf("StartSession: %v", err)
	}
	return s.ID
}

// each is an event of the suite's timing.
func each(name string) monitor.Check {
	return monitor.Check{Name: name, Interval: interval, Missed: 3}
}

func (b *bench) configure(events ...monitor.Check) monitor.ConfigurationChanges {
	b.Helper()
	out, err := b.Configure(b.ctx, monitor.Configuration{Checks: events, Origin: "suite"})
	if err != nil {
		b.Fatalf("Configure: %v", err)
	}
	return out
}

// enlist makes the bench a member with these sinks.
func (b *bench) enlist(sinks ...string) {
	b.Helper()
	m := monitor.Member{Session: b.session, Instance: lease.NewInstance("first", "127.0.0.1:80"), Sinks: sinks}
	if err := b.RegisterMember(b.ctx, m); err != nil {
		b.Fatalf("Enlist: %v", err)
	}
}

// resolve finds or learns sources of an event, which must be possible.
func (b *bench) resolve(event string, names ...string) []int64 {
	b.Helper()
	refs := make([]monitor.SourceRef, len(names))
	for i, name := range names {
		refs[i] = monitor.SourceRef{Check: event, Source: name}
	}
	ids := make([]int64, len(names))
	for i, r := range b.resolved(refs...) {
		if r.ID == 0 {
			b.Fatalf("%s/%s is not learned", event, names[i])
		}
		ids[i] = r.ID
	}
	return ids
}

func (b *bench) resolved(refs ...monitor.SourceRef) []monitor.ResolvedSource {
	b.Helper()
	got, err := b.ResolveSources(b.ctx, refs)
	if err != nil || len(got) != len(refs) {
		b.Fatalf("Resolve of %d: %d answers, %v", len(refs), len(got), err)
	}
	return got
}

// proof is that of a path which only says that it works.
func proof(path string) monitor.Probe { return monitor.Probe{Path: path, MaxGap: wideGap} }

func (b *bench) deliver(d monitor.HeartbeatBatch) monitor.BatchResult {
	b.Helper()
	slices.SortStableFunc(d.Beats, func(x, y monitor.HeartbeatUpdate) int { return int(x.Source - y.Source) })
	out, err := b.RecordHeartbeats(b.ctx, d)
	if err != nil {
		b.Fatalf("Store: %v", err)
	}
	return out
}

// stamp stores beats by the path "p", which is proven by that.
func (b *bench) stamp(beats ...monitor.HeartbeatUpdate) monitor.BatchResult {
	b.Helper()
	for i := range beats {
		beats[i].Count = max(1, beats[i].Count)
	}
	return b.deliver(monitor.HeartbeatBatch{Probes: []monitor.Probe{proof("p")}, Beats: beats})
}

func (b *bench) prove() { b.Helper(); b.stamp() }

// beat has sources beat by the path "p".
func (b *bench) beat(ids ...int64) {
	b.Helper()
	b.signal(monitor.SignalSuccess, ids...)
}

func (b *bench) signal(s monitor.Signal, ids ...int64) {
	b.Helper()
	beats := make([]monitor.HeartbeatUpdate, len(ids))
	for i, id := range ids {
		beats[i] = monitor.HeartbeatUpdate{Source: id, Signal: s}
	}
	if out := b.stamp(beats...); len(out.Unknown) > 0 {
		b.Fatalf("sources %v are unknown", out.Unknown)
	}
}

// everywhere are all partitions.
func everywhere() []int {
	all := make([]int, monitor.Partitions)
	for i := range all {
		all[i] = i
	}
	return all
}

func (b *bench) look() monitor.Scan {
	b.Helper()
	l, err := b.DueSources(b.ctx, everywhere(), monitor.MaxSources)
	if err != nil {
		b.Fatalf("Due: %v", err)
	}
	return l
}

// find is the candidate of a source if it is due.
func (b *bench) find(id int64) (monitor.Candidate, bool) {
	b.Helper()
	for _, c := range b.look().Candidates {
		if c.ID == id {
			return c, true
		}
	}
	return monitor.Candidate{}, false
}

func (b *bench) candidate(id int64) monitor.Candidate {
	b.Helper()
	c, ok := b.find(id)
	if !ok {
		b.Fatalf("source %d is not due", id)
	}
	return c
}

func (b *bench) wantDue(id int64, want bool) {
	b.Helper()
	if _, ok := b.find(id); ok != want {
		b.Fatalf("source %d is due: %v, want %v", id, ok, want)
	}
}

// ready has sources of the event "e" that have just beaten and stay due until a
// change is applied to them, and the sink hook.
func (b *bench) ready(names ...string) []int64 {
	b.Helper()
	b.enlist(hook)
	b.configure(each("e"))
	ids := b.resolve("e", names...)
	b.prove()
	b.step(limit + slack)
	b.beat(ids...)
	return ids
}

// change is one of the candidate as it was seen. An Onset gets an alarm's id, and
// each turn a notice whose id is that of the alarm and the turn.
func (b *bench) change(c monitor.Candidate, turn monitor.Transition) monitor.SourceChange {
	out := monitor.SourceChange{
		ID: c.ID, Rev: c.Rev, BeatRev: c.BeatRev, CheckRev: c.CheckRev, Transition: turn, Due: monitor.Never,
		Alarm: c.Alarm, Reason: c.Reason, At: c.Wall,
	}
	if turn == monitor.Onset {
		out.Alarm, out.Reason = lease.NewID(), monitor.Silent
	}
	if turn == monitor.Resume || turn == monitor.Return {
		out.ExpectedFrom = c.Now
	}
	if out.Alarm != "" {
		out.Notifications = []monitor.Notification{notice(c.Source, out.Alarm, turn)}
	}
	return out
}

func notice(source, alarm string, turn monitor.Transition) monitor.Notification {
	return monitor.Notification{
		Sink: hook, Key: monitor.OrderKey("e", source), ID: alarm + "/" + string(turn), Payload: []byte(`{"status":"` + turn + `"}`),
	}
}

func (b *bench) tryApply(changes ...monitor.SourceChange) []bool {
	b.Helper()
	made, err := b.ApplyChanges(b.ctx, changes)
	if err != nil || len(made) != len(changes) {
		b.Fatalf("Apply of %d changes: %v, %v", len(changes), made, err)
	}
	return made
}

func (b *bench) apply(changes ...monitor.SourceChange) {
	b.Helper()
	for i, made := range b.tryApply(changes...) {
		if !made {
			b.Fatalf("change %+v was not made", changes[i])
		}
	}
}

func (b *bench) refused(c monitor.SourceChange, why string) {
	b.Helper()
	if b.tryApply(c)[0] {
		b.Errorf("%s: the change was made", why)
	}
}

// onset raises the alarm of a source that is due, and returns its id.
func (b *bench) onset(id int64) string {
	b.Helper()
	c := b.change(b.candidate(id), monitor.Onset)
	b.apply(c)
	return c.Alarm
}

func (b *bench) act(a monitor.Action) {
	b.Helper()
	if err := b.ApplyAction(b.ctx, a); err != nil {
		b.Fatalf("Act(%+v): %v", a, err)
	}
}

// source is the record of one.
func (b *bench) source(event, name string) monitor.SourceRecord {
	b.Helper()
	got, err := b.Sources(b.ctx, monitor.SourceQuery{Check: event, Source: name})
	if err != nil || len(got) != 1 {
		b.Fatalf("Sources(%s/%s): %+v, %v", event, name, got, err)
	}
	return got[0]
}

// alarm is the record of one.
func (b *bench) alarm(id string) monitor.Alarm {
	b.Helper()
	got, err := b.Alarms(b.ctx, monitor.AlarmQuery{ID: id})
	if err != nil || len(got) != 1 {
		b.Fatalf("Alarms(%s): %+v, %v", id, got, err)
	}
	return got[0]
}

func (b *bench) settings() monitor.Settings {
	b.Helper()
	s, err := b.Settings(b.ctx)
	if err != nil {
		b.Fatalf("Settings: %v", err)
	}
	return s
}

// expected is an event as the store has it.
func (b *bench) expected(name string) monitor.StoredCheck {
	b.Helper()
	all := b.settings().Checks
	i := slices.IndexFunc(all, func(e monitor.StoredCheck) bool { return e.Name == name })
	if i < 0 {
		b.Fatalf("event %q is not in %+v", name, all)
	}
	return all[i]
}

// sent are the ids of the notices for hook with that key's subject.
func (b *bench) sent(source string) []string {
	b.Helper()
	if b.rig.Sent == nil {
		b.Skip("this rig cannot read notices")
	}
	var ids []string
	for _, n := range b.rig.Sent(b.t, hook) {
		if n.Key == monitor.OrderKey("e", source) {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

func (b *bench) wantSent(source string, ids ...string) {
	b.Helper()
	if got := b.sent(source); !slices.Equal(got, ids) {
		b.Fatalf("notices of %s: %q, want %q", source, got, ids)
	}
}

// near reports whether two times are the same but for slack.
func near[T time.Time | time.Duration | monitor.StoreTime](a, b T) bool {
	switch a := any(a).(type) {
	case time.Time:
		return a.Sub(any(b).(time.Time)).Abs() < slack
	case time.Duration:
		return (a - any(b).(time.Duration)).Abs() < slack
	case monitor.StoreTime:
		return a.Sub(any(b).(monitor.StoreTime)).Abs() < slack
	}
	return false
}

package monitortest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// Outages are the limits of one check of outages. Zero fields get their defaults.
type Outages struct {
	Sources  int           // default 40
	Storers  int           // goroutines that store beats; default 3
	Watchers int           // goroutines that judge and apply, each for all sources; default 3
	Ticks    int           // of half an interval; default 60
	Call     time.Duration // deadline of each call; default 2 min
	Seed     uint64
}

func (o Outages) withDefaults() Outages {
	o.Sources, o.Ticks = cmp.Or(o.Sources, 40), cmp.Or(o.Ticks, 60)
	o.Storers, o.Watchers = cmp.Or(o.Storers, 3), cmp.Or(o.Watchers, 3)
	o.Call = cmp.Or(o.Call, 2*time.Minute)
	return o
}

// CheckOutages lets goroutines store beats, and others judge them by the real rule
// and apply the verdicts, all on one store, while its clock is stepped: on, far on,
// and back. Sources beat in time, fall silent, come back in the very moment in
// which they are overdue, fail, and replay what they sent before. Then it checks
// that each was down when, and only when, it had to be, that each outage was one
// ONSET and one ABATED with one id, in turn, and that no beat was lost. The rig
// needs Step and Sent.
func CheckOutages(t *testing.T, rig Rig, limits Outages) {
	t.Helper()
	if problem := FindOutageFault(t, rig, limits); problem != "" {
		t.Error(problem)
	}
}

// tick is half of the interval: who beats once in four of them is in time, and who
// is quiet for more than six is not.
const (
	tick   = interval / 2
	inTime = 4
	silent = 10
	// lookAgain is longer than who was looked at before the path was proven waits for the next look.
	lookAgain = 10 * time.Second
)

// FindOutageFault returns what is wrong, or "".
func FindOutageFault(t *testing.T, rig Rig, limits Outages) string {
	limits = limits.withDefaults()
	o := &outages{limits: limits, t: t, rig: rig, rng: rand.New(rand.NewPCG(limits.Seed, 1))}
	for range limits.Storers + limits.Watchers {
		table := rig.Table
		if rig.Open != nil {
			table = rig.Open(t)
		}
		o.tables = append(o.tables, table)
	}
	if !o.setUp() {
		return o.problem
	}
	for n := range limits.Ticks {
		if o.tick(n); o.problem != "" {
			return fmt.Sprintf("tick %d: %s", n, o.problem)
		}
	}
	o.judgeNotices()
	return o.problem
}

// outages is one check.
type outages struct {
	limits  Outages
	t       *testing.T
	rig     Rig
	rng     *rand.Rand
	tables  []monitor.Store // of each storer, and then of each watcher
	sources []*beater

	mu      sync.Mutex
	problem string // the first
}

func (o *outages) fail(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.problem == "" {
		o.problem = fmt.Sprintf(format, args...)
	}
}

// call makes one request in time.
func (o *outages) call(what string, f func(context.Context) error) bool {
	ctx, cancel := context.WithTimeout(o.t.Context(), o.limits.Call)
	defer cancel()
	err := f(ctx)
	if err != nil {
		o.fail("%s: %v", what, err)
	}
	return err == nil
}

// habit is how a source behaves.
type habit string

const (
	punctual habit = "punctual" // always in time
	absent   habit = "absent"   // in time for a while, then silent for long
	racer    habit = "racer"    // comes back about when it is overdue
	replayer habit = "replayer" // absent, but what it sent last comes again and again
	failing  habit = "failing"  // beats always, and says now and then that it failed
)

func habits() []habit { return []habit{punctual, absent, racer, replayer, failing} }

// beater is a source, and what is true of it.
type beater struct {
	habit
	name  string
	id    int64
	next  int // ticks until it beats
	quiet int // ticks since it has
	sent  time.Time
	seq   int64
	bad   int  // ticks for which it still fails
	down  bool // as it was found last
	falls int  // how often it was found down again
	beats int64
}

// plan is when it beats next.
func (s *beater) plan(rng *rand.Rand) int {
	switch s.habit {
	case racer:
		return 5 + rng.IntN(3)
	case absent, replayer:
		if rng.IntN(3) == 0 {
			return silent + rng.IntN(4)
		}
	case failing:
		return 1
	}
	return 1 + rng.IntN(inTime)
}

func (o *outages) setUp() bool {
	table := o.rig.Table
	session := lease.NewID()
	if o.rig.Sessions != nil {
		s := lease.Session{ID: session, Instance: lease.NewInstance("outages", "127.0.0.1:80"), Timing: lease.Timing{Interval: 1000 * time.Hour, Timeout: 5000 * time.Hour}}
		if !o.call("StartSession", func(ctx context.Context) error { _, err := o.rig.Sessions.StartSession(ctx, s); return err }) {
			return false
		}
	}
	var refs []monitor.SourceRef
	for i := range o.limits.Sources {
		s := &beater{habit: habits()[i%len(habits())], name: fmt.Sprintf("%s-%d", habits()[i%len(habits())], i), next: 1, sent: time.Unix(1_700_000_000, 0)}
		o.sources = append(o.sources, s)
		refs = append(refs, monitor.SourceRef{Check: "e", Source: s.name})
	}
	return o.call("Enlist", func(ctx context.Context) error {
		return table.RegisterMember(ctx, monitor.Member{Session: session, Instance: lease.NewInstance("outages", ""), Sinks: []string{hook}})
	}) && o.configure(0) && o.call("Resolve", func(ctx context.Context) error {
		ids, err := table.ResolveSources(ctx, refs)
		for i, r := range ids {
			o.sources[i].id = r.ID
		}
		return err
	})
}

// configure changes something about the event that does not matter.
func (o *outages) configure(n int) bool {
	return o.call("Configure", func(ctx context.Context) error {
		e := each("e")
		e.Severity = fmt.Sprint(n)
		_, err := o.rig.Table.Configure(ctx, monitor.Configuration{Checks: []monitor.Check{e}})
		return err
	})
}

// tick moves the clock, has the sources beat whose turn it is, and looks at what
// became of all.
func (o *outages) tick(n int) {
	by, counts := tick, true
	switch {
	case n%23 == 22: // nobody was up for so long
		by, counts = 20*gap, false
	case n%17 == 16:
		by, counts = -gap, false
	}
	deliveries := o.deliveries(counts)
	stored := make(chan struct{})
	var watch, store sync.WaitGroup
	for _, table := range o.tables[o.limits.Storers:] {
		watch.Go(func() { o.watch(table, stored) })
	}
	if n%7 == 6 {
		watch.Go(func() { o.configure(n) })
	}
	o.rig.Step(o.t, by)
	for i, table := range o.tables[:o.limits.Storers] {
		store.Go(func() {
			for _, d := range deliveries[i] {
				o.store(table, d)
			}
		})
	}
	store.Wait()
	o.rig.Step(o.t, lookAgain)
	close(stored)
	watch.Wait()
	o.look()
}

// deliveries are what each storer has to store in this tick: some in one piece, some
// one by one, and always a proof.
func (o *outages) deliveries(counts bool) [][]monitor.HeartbeatBatch {
	out := make([][]monitor.HeartbeatBatch, o.limits.Storers)
	for i := range out {
		out[i] = []monitor.HeartbeatBatch{{Probes: []monitor.Probe{{Path: "p", TrustFor: 0, MaxGap: gap}}}}
	}
	for _, s := range o.sources {
		if counts {
			s.quiet++
			s.next--
		}
		stamp, ok := s.beat(o.rng)
		if !ok {
			continue
		}
		mine := &out[o.rng.IntN(len(out))]
		if o.rng.IntN(3) == 0 {
			*mine = append(*mine, monitor.HeartbeatBatch{Probes: (*mine)[0].Probes})
		}
		d := &(*mine)[len(*mine)-1]
		d.Beats = append(d.Beats, stamp)
	}
	for _, ds := range out {
		for _, d := range ds {
			slices.SortFunc(d.Beats, func(a, b monitor.HeartbeatUpdate) int { return cmp.Compare(a.Source, b.Source) })
		}
	}
	return out
}

// beat is what a source sends in this tick, if anything.
func (s *beater) beat(rng *rand.Rand) (monitor.HeartbeatUpdate, bool) {
	b := monitor.HeartbeatUpdate{Source: s.id, Count: 1, Sent: s.sent, Seq: s.seq}
	if s.next > 0 {
		return b, s.habit == replayer && s.beats > 0
	}
	s.seq++
	s.beats++
	b.Seq = s.seq
	s.quiet, s.next = 0, s.plan(rng)
	if s.habit == failing {
		if s.bad--; s.bad < -4 {
			s.bad = 1 + rng.IntN(3)
		}
		if s.bad > 0 {
			b.Signal = monitor.SignalFail
		}
	}
	return b, true
}

func (o *outages) store(table monitor.Store, d monitor.HeartbeatBatch) {
	o.call("Store", func(ctx context.Context) error {
		out, err := table.RecordHeartbeats(ctx, d)
		if len(out.Unknown) > 0 {
			o.fail("sources %v are unknown", out.Unknown)
		}
		return err
	})
}

// watch judges and applies, as long as beats are stored, and then until nothing has to turn.
func (o *outages) watch(table monitor.Store, stored <-chan struct{}) {
	for range 10_000 {
		over := false
		select {
		case <-stored:
			over = true
		default:
		}
		idle := o.pass(table)
		o.mu.Lock()
		broken := o.problem != ""
		o.mu.Unlock()
		if broken || over && idle {
			return
		}
		yield()
	}
	o.fail("the judging never comes to an end")
}

// yield lets other goroutines continue, also in a bubble of testing/synctest, whose time stands still while a loop does
// not wait.
func yield() { <-time.After(time.Microsecond) }

// pass judges all that is due, and reports whether there was nothing to do.
func (o *outages) pass(table monitor.Store) (idle bool) {
	idle = true
	o.call("a pass", func(ctx context.Context) error {
		settings, err := table.Settings(ctx)
		if err != nil {
			return err
		}
		l, err := table.DueSources(ctx, everywhere(), monitor.MaxSources)
		if err != nil {
			return err
		}
		var changes []monitor.SourceChange
		for _, c := range l.Candidates {
			i := slices.IndexFunc(settings.Checks, func(e monitor.StoredCheck) bool { return e.ID == c.CheckID })
			if i < 0 {
				return fmt.Errorf("candidate of an unknown event: %+v", c)
			}
			ch := verdict(l, c, settings.Checks[i].Evaluate(c.Facts))
			idle = idle && ch.Transition == monitor.NoTransition
			changes = append(changes, ch)
		}
		yield() // here others come in between
		made, err := table.ApplyChanges(ctx, changes)
		idle = idle && !slices.Contains(made, false)
		return err
	})
	return idle
}

// verdict is the change that a watcher makes of it.
func verdict(l monitor.Scan, c monitor.Candidate, v monitor.Evaluation) monitor.SourceChange {
	ch := monitor.SourceChange{
		ID: c.ID, Rev: c.Rev, BeatRev: c.BeatRev, CheckRev: c.CheckRev, Transition: v.Transition, Due: v.Due, WellSince: v.WellSince,
		Alarm: c.Alarm, Reason: c.Reason, At: l.Wall.Add(-l.Now.Sub(v.At)),
	}
	switch v.Transition {
	case monitor.Onset:
		ch.Alarm, ch.Reason = lease.NewID(), v.Reason
	case monitor.Resume, monitor.Return:
		ch.ExpectedFrom = v.At
	}
	if ch.Alarm != "" && v.Transition != monitor.NoTransition {
		ch.Notifications = []monitor.Notification{notice(c.Source, ch.Alarm, v.Transition)}
	}
	return ch
}

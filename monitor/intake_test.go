package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/internal/memstore/checks"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/monitor"
)

// errAway is what a store that is down answers.
var errAway = fmt.Errorf("%w: connection refused", lease.ErrUnavailable)

// spy is a table that notes what it is told to store, and can be made to fail or to wait.
type spy struct {
	*checks.Memory
	mu         sync.Mutex
	deliveries []monitor.HeartbeatBatch // that were stored
	asked      [][]monitor.SourceRef
	before     func(ctx context.Context, call string) error
	after      func(call string) error
}

func newSpy(t *testing.T, events ...monitor.Check) *spy {
	t.Helper()
	s := &spy{Memory: checks.NewMemory(checks.Options{})}
	if events == nil {
		events = []monitor.Check{{Name: "E", Interval: time.Second}}
	}
	if _, err := s.Configure(t.Context(), monitor.Configuration{Checks: events}); err != nil {
		t.Fatal(err)
	}
	return s
}

// rig sets what happens before a call is made, and after it was.
func (s *spy) rig(before func(context.Context, string) error, after func(string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = before, after
}

func (s *spy) hooks() (func(context.Context, string) error, func(string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after := s.before, s.after
	if before == nil {
		before = func(context.Context, string) error { return nil }
	}
	if after == nil {
		after = func(string) error { return nil }
	}
	return before, after
}

func (s *spy) ResolveSources(ctx context.Context, refs []monitor.SourceRef) ([]monitor.ResolvedSource, error) {
	before, after := s.hooks()
	if err := before(ctx, "resolve"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.asked = append(s.asked, slices.Clone(refs))
	s.mu.Unlock()
	out, err := s.Memory.ResolveSources(ctx, refs)
	return out, errors.Join(err, after("resolve"))
}

func (s *spy) RecordHeartbeats(ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	before, after := s.hooks()
	if _, ok := ctx.Deadline(); !ok {
		return monitor.BatchResult{}, errors.New("a request without a deadline")
	}
	if err := before(ctx, "store"); err != nil {
		return monitor.BatchResult{}, err
	}
	out, err := s.Memory.RecordHeartbeats(ctx, d)
	if err == nil {
		s.mu.Lock()
		s.deliveries = append(s.deliveries, monitor.HeartbeatBatch{Probes: slices.Clone(d.Probes), Beats: slices.Clone(d.Beats)})
		s.mu.Unlock()
	}
	return out, errors.Join(err, after("store"))
}

// stored is what was stored since it was asked last.
func (s *spy) stored() []monitor.HeartbeatBatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deliveries
	s.deliveries = nil
	return d
}

func stamps(ds []monitor.HeartbeatBatch) (out []monitor.HeartbeatUpdate) {
	for _, d := range ds {
		out = append(out, d.Beats...)
	}
	return out
}

// inlet is an inlet that runs in a bubble.
type inlet struct {
	*monitor.Intake
	*monitor.IntakePath
	t    *testing.T
	spy  *spy
	stop func()
}

// Stats are those of the inlet.
func (in *inlet) Stats() monitor.IntakeStats { return in.Intake.Stats() }

// open starts an inlet with one steady path.
func open(t *testing.T, s *spy, cfg monitor.IntakeConfig) *inlet {
	t.Helper()
	cfg.Store = s
	if cfg.Clock == nil {
		cfg.Clock = &leasetest.BubbleClock{}
	}
	in, err := monitor.NewIntake(cfg)
	if err != nil {
		t.Fatal(err)
	}
	path := in.OpenPath(monitor.PathConfig{Name: "http", Synchronous: true}) // before Run, whose first flush proves what is open
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := in.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop := sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return &inlet{Intake: in, IntakePath: path, t: t, spy: s, stop: stop}
}

// take takes beats that must be accepted.
func (in *inlet) take(beats ...monitor.Heartbeat) {
	in.t.Helper()
	out, err := in.Record(in.t.Context(), beats)
	if err != nil {
		in.t.Fatal(err)
	}
	for i, o := range out {
		if o != monitor.Accepted {
			in.t.Errorf("beat %d: %v", i, o)
		}
	}
}

func beat(source string) monitor.Heartbeat { return monitor.Heartbeat{Check: "E", Source: source} }

// signals are beats of one source.
func signals(source string, of ...monitor.Signal) (out []monitor.Heartbeat) {
	for i, s := range of {
		out = append(out, monitor.Heartbeat{Check: "E", Source: source, Signal: s, Code: i})
	}
	return out
}

func TestInletGroupsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t)
		in := open(t, s, monitor.IntakeConfig{})
		in.take(beat("first"))
		s.stored()
		gate := make(chan struct{})
		s.rig(func(_ context.Context, call string) error {
			if call == "store" {
				<-gate
			}
			return nil
		}, nil)
		var all sync.WaitGroup
		for i := range 101 {
			all.Go(func() { in.take(beat(fmt.Sprintf("s%03d", i))) })
			if i == 0 {
				synctest.Wait() // it is on its way alone
			}
		}
		synctest.Wait()
		close(gate)
		all.Wait()
		got := s.stored()
		if len(got) != 2 || len(got[0].Beats) != 1 || len(got[1].Beats) != 100 {
			t.Fatalf("%d flushes: %v", len(got), got)
		}
		if !slices.IsSortedFunc(got[1].Beats, func(a, b monitor.HeartbeatUpdate) int { return int(a.Source - b.Source) }) {
			t.Error("stamps are not in the order of their ids")
		}
		if st := in.Stats(); st.Accepted != 102 || st.Queued != 0 || st.Cached != 102 {
			t.Errorf("%+v", st)
		}
	})
}

func TestInletBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t)
		in := open(t, s, monitor.IntakeConfig{MaxQueue: 10, MaxBatch: 4})
		gate := make(chan struct{})
		s.rig(func(context.Context, string) error { <-gate; return nil }, nil)
		var all sync.WaitGroup
		all.Go(func() { in.take(beat("a"), beat("b"), beat("c"), beat("d"), beat("e"), beat("f"), beat("g")) })
		synctest.Wait()
		all.Go(func() { in.take(beat("a"), beat("b"), beat("c")) })
		synctest.Wait()
		if _, err := in.Record(t.Context(), []monitor.Heartbeat{beat("x")}); !errors.Is(err, monitor.ErrBusy) {
			t.Errorf("the queue is full: %v", err)
		}
		if _, err := in.Record(t.Context(), make([]monitor.Heartbeat, 11)); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("more than the queue holds: %v", err)
		}
		close(gate)
		all.Wait()
		in.take(make([]monitor.Heartbeat, 0)...)
		in.take(slices.Repeat([]monitor.Heartbeat{beat("a")}, 10)...) // there is room again
		for _, d := range s.stored() {
			if len(d.Beats) > 4 {
				t.Errorf("%d stamps in a flush of at most 4", len(d.Beats))
			}
		}
		if st := in.Stats(); st.Busy != 1 || st.Queued != 0 || st.Accepted != 20 {
			t.Errorf("%+v", st)
		}
	})
}

func TestInletMergesWhatIsFine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t)
		in := open(t, s, monitor.IntakeConfig{})
		at := time.Now()
		in.take(
			monitor.Heartbeat{Check: "E", Source: "a", Sent: at.Add(2 * time.Second), Seq: 7},
			beat("b"),
			monitor.Heartbeat{Check: "E", Source: "a", Sent: at, Seq: 9},
			monitor.Heartbeat{Check: "E", Source: "a", Sent: at.Add(2 * time.Second), Seq: 8},
		)
		want := []monitor.HeartbeatUpdate{{Source: 1, Sent: at.Add(2 * time.Second), Seq: 8, Count: 3}, {Source: 2, Count: 1}}
		got := stamps(s.stored())
		for i := range got {
			got[i].Source = want[i].Source // ids are the table's own
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestInletKeepsSignalsApart(t *testing.T) {
	const fine, start, fail = monitor.SignalSuccess, monitor.SignalStart, monitor.SignalFail
	for name, c := range map[string]struct{ sent, want []monitor.Signal }{
		"failed and fine":     {[]monitor.Signal{fail, fine}, []monitor.Signal{fail, fine}},
		"fine and failed":     {[]monitor.Signal{fine, fine, fail}, []monitor.Signal{fine, fail}},
		"a short run":         {[]monitor.Signal{start, fine, fine}, []monitor.Signal{start, fine}},
		"a failure in a row":  {[]monitor.Signal{fail, fail}, []monitor.Signal{fail, fail}},
		"fine after the lot":  {[]monitor.Signal{fine, fail, fine, fine, start, fine}, []monitor.Signal{fine, fail, fine, start, fine}},
		"senders with clocks": {[]monitor.Signal{fine, fine}, []monitor.Signal{fine}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpy(t)
				in := open(t, s, monitor.IntakeConfig{})
				in.take(append(signals("a", c.sent...), beat("b"))...)
				var got []monitor.Signal
				for _, d := range s.stored() {
					for _, b := range d.Beats {
						if id := d.Beats[0].Source; b.Source == id { // that of a is the smaller one
							got = append(got, b.Signal)
						}
					}
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// One source that says ever something else does not hold up the others, and what
// it said first and last counts.
func TestInletSourceThatFlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t)
		in := open(t, s, monitor.IntakeConfig{})
		of := slices.Repeat([]monitor.Signal{monitor.SignalFail, monitor.SignalSuccess}, 5000)
		in.take(signals("a", of...)...)
		got := stamps(s.stored())
		count := 0
		for _, b := range got {
			count += b.Count
		}
		if first, last := got[0].Signal, got[len(got)-1].Signal; first != monitor.SignalFail || last != monitor.SignalSuccess || count != len(of) {
			t.Errorf("%d stamps for %d beats, the first %v, the last %v", len(got), count, first, last)
		}
		if len(got) > 200 {
			t.Errorf("%d flushes for one source", len(got))
		}
	})
}

func TestInletUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t, monitor.Check{Name: "E", Interval: time.Second}, monitor.Check{Name: "F", Interval: time.Second, Fixed: true})
		in := open(t, s, monitor.IntakeConfig{})
		in.take(beat("first")) // brings the generation
		s.asked = nil
		beats := []monitor.Heartbeat{
			beat("a"), {Check: "nobody", Source: "a"}, {Check: "F", Source: "a"}, {Check: "E", Source: "bad\x00"},
			{Check: "E", Source: ""}, {Check: "E", Source: "a", Signal: 9},
		}
		want := []monitor.Outcome{monitor.Accepted, monitor.Unknown, monitor.Unknown, monitor.Malformed, monitor.Malformed, monitor.Malformed}
		for range 5 {
			got, err := in.Record(t.Context(), beats)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		if len(s.asked) != 1 || len(s.asked[0]) != 3 {
			t.Errorf("the store was asked %v", s.asked)
		}
		time.Sleep(1100 * time.Millisecond)
		if _, err := in.Record(t.Context(), beats); err != nil {
			t.Fatal(err)
		}
		if len(s.asked) != 2 || len(s.asked[1]) != 2 {
			t.Errorf("after a second the store was asked %v", s.asked)
		}
		if _, err := s.Configure(t.Context(), monitor.Configuration{Keep: true, Checks: []monitor.Check{{Name: "nobody", Interval: time.Second}}}); err != nil {
			t.Fatal(err)
		}
		in.take(beat("a")) // learns of the generation
		in.take(monitor.Heartbeat{Check: "nobody", Source: "a"})
		if st := in.Stats(); st.Unknown != 12 || st.Malformed != 18 || st.Accepted != 9 {
			t.Errorf("%+v", st)
		}
	})
}

// A source that was forgotten and is sent again is learned again.
func TestInletForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t, monitor.Check{Name: "E", Interval: time.Second}, monitor.Check{Name: "G", Interval: time.Second})
		in := open(t, s, monitor.IntakeConfig{})
		in.take(beat("a"), beat("b"))
		old := stamps(s.stored())
		configure := func(names ...string) {
			c := monitor.Configuration{}
			for _, n := range names {
				c.Checks = append(c.Checks, monitor.Check{Name: n, Interval: time.Second})
			}
			if _, err := s.Configure(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		configure("G")
		forget(t, s)
		out, err := in.Record(t.Context(), []monitor.Heartbeat{beat("a"), {Check: "G", Source: "a"}})
		if diff := cmp.Diff([]monitor.Outcome{monitor.Unknown, monitor.Accepted}, out); diff != "" || err != nil {
			t.Error(err, diff)
		}
		configure("G", "E")
		in.take(monitor.Heartbeat{Check: "G", Source: "a"})
		s.stored()
		in.take(append(signals("a", monitor.SignalFail, monitor.SignalSuccess), beat("b"))...)
		var asStored []monitor.Signal
		for _, b := range stamps(s.stored()) {
			if !slices.ContainsFunc(old, func(o monitor.HeartbeatUpdate) bool { return o.Source == b.Source }) {
				asStored = append(asStored, b.Signal)
			}
		}
		if diff := cmp.Diff([]monitor.Signal{monitor.SignalFail, monitor.SignalSuccess, monitor.SignalSuccess}, asStored); diff != "" {
			t.Error(diff)
		}
	})
}

// forget carries out that an event name was removed.
func forget(t *testing.T, s *spy) {
	t.Helper()
	l, err := s.Sweep(t.Context(), time.Hour, monitor.MaxSources)
	if err != nil {
		t.Fatal(err)
	}
	var changes []monitor.SourceChange
	for _, c := range l.Candidates {
		changes = append(changes, monitor.SourceChange{ID: c.ID, Rev: c.Rev, BeatRev: c.BeatRev, CheckRev: c.CheckRev, Transition: monitor.Forget, Due: monitor.Never, At: l.Wall})
	}
	made, err := s.ApplyChanges(t.Context(), changes)
	if err != nil || slices.Contains(made, false) {
		t.Fatal(made, err)
	}
}

// Whose clock counts is known after each change of the configuration.
func TestInletSenderClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t)
		in := open(t, s, monitor.IntakeConfig{})
		in.take(beat("a"), beat("b"))
		in.take(beat("a"), beat("b"))
		s.asked = nil
		if _, err := s.Configure(t.Context(), monitor.Configuration{Checks: []monitor.Check{{Name: "E", Interval: time.Second, SenderClock: true}}}); err != nil {
			t.Fatal(err)
		}
		in.take(beat("a")) // brings the generation
		s.stored()
		in.take(beat("b"), beat("a"))
		for _, b := range stamps(s.stored()) {
			if !b.BySender {
				t.Errorf("%+v", b)
			}
		}
		if n := len(s.asked); n != 1 || len(s.asked[0]) != 1 {
			t.Errorf("the store was asked %v", s.asked)
		}
	})
}

package monitor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func TestInletProofs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t)
		in := open(t, s, monitor.IntakeConfig{})
		router := in.OpenPath(monitor.PathConfig{Name: "router", MaxGap: 10 * time.Second})
		if in.OpenPath(monitor.PathConfig{Name: "http"}) != in.IntakePath {
			t.Error("a path was opened twice")
		}
		steady := monitor.Probe{Path: "http", TrustFor: 2 * time.Second, MaxGap: 2 * time.Second}
		want := func(ps ...monitor.Probe) {
			t.Helper()
			synctest.Wait()
			var got []monitor.Probe
			for _, d := range s.stored() {
				got = append(got, d.Probes...)
			}
			if diff := cmp.Diff(ps, got); diff != "" {
				t.Error(diff)
			}
		}
		time.Sleep(2100 * time.Millisecond)
		want(steady, steady, steady, steady, steady)
		if _, err := router.Record(t.Context(), []monitor.Heartbeat{beat("a")}); err != nil {
			t.Fatal(err)
		}
		by := monitor.Probe{Path: "router", MaxGap: 10 * time.Second, NameOnly: true}
		want(steady, by)
		for range 2 {
			if err := router.RecordProbe(t.Context()); err != nil {
				t.Fatal(err)
			}
			by.NameOnly = false
			want(steady, by)
		}
		time.Sleep(time.Second)
		want(steady, steady)
	})
}

// What a proof says was so when it was asked for. One that waits while the store does
// not answer, because others wait for their beats, proves nothing in the end.
func TestInletStaleProofs(t *testing.T) {
	for name, patience := range map[string]time.Duration{"nobody waits for it": time.Second, "it waited for long": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpy(t)
				in := open(t, s, monitor.IntakeConfig{})
				router := in.OpenPath(monitor.PathConfig{Name: "router", MaxGap: 10 * time.Second})
				in.take(beat("a"))
				s.rig(func(context.Context, string) error { return errAway }, nil)
				var all sync.WaitGroup
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					if err := router.RecordProbe(ctx); err == nil {
						t.Error("it was recorded")
					}
				})
				all.Go(func() { in.take(beat("a")) })
				time.Sleep(8 * time.Second)
				s.stored()
				s.rig(nil, nil)
				all.Wait()
				time.Sleep(time.Second)
				for _, d := range s.stored() {
					for _, p := range d.Probes {
						if p.Path == "router" && !p.NameOnly {
							t.Error("the router is proven by what was so 8 s ago")
						}
					}
				}
				if err := router.RecordProbe(t.Context()); err != nil {
					t.Errorf("and later: %v", err)
				}
			})
		})
	}
}

// An inlet that is behind does not say that all has arrived.
func TestInletBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t)
		in := open(t, s, monitor.IntakeConfig{MaxBatch: 2})
		time.Sleep(100 * time.Millisecond)
		s.stored()
		s.rig(func(_ context.Context, call string) error {
			if call == "store" {
				time.Sleep(400 * time.Millisecond)
			}
			return nil
		}, nil)
		in.take(beat("a"), beat("b"), beat("c"), beat("d"), beat("e"), beat("f"), beat("g"))
		var got []bool
		for _, d := range s.stored() {
			got = append(got, d.Probes[0].NameOnly)
		}
		if diff := cmp.Diff([]bool{false, false, true, false}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestInletRefuses: while heartbeats are refused because the queue is full, the path proves nothing, however short the queue's
// delay is: a source that was refused is not silent.
func TestInletRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t)
		in := open(t, s, monitor.IntakeConfig{MaxQueue: 2, MaxBatch: 2})
		other := in.OpenPath(monitor.PathConfig{Name: "other", Synchronous: true})
		in.take(beat("a"))
		s.stored()
		s.rig(func(_ context.Context, call string) error {
			if call == "store" {
				time.Sleep(300 * time.Millisecond)
			}
			return nil
		}, nil)
		var all sync.WaitGroup
		for range 3 { // each second call finds the queue full
			all.Go(func() {
				for began := time.Now(); time.Since(began) < 5*time.Second; {
					if _, err := in.Record(t.Context(), []monitor.Heartbeat{beat("a")}); err != nil && !errors.Is(err, monitor.ErrBusy) {
						t.Error(err)
					}
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		s.stored()
		time.Sleep(3 * time.Second)
		for _, d := range s.stored() {
			for _, p := range d.Probes {
				if p.NameOnly != (p.Path == "http") {
					t.Errorf("while others are refused: %+v", p)
				}
			}
		}
		all.Wait()
		time.Sleep(time.Second)
		s.stored()
		time.Sleep(time.Second)
		for _, d := range s.stored() {
			for _, p := range d.Probes {
				if p.NameOnly {
					t.Errorf("afterwards: %+v", p)
				}
			}
		}
		if _, err := other.Record(t.Context(), []monitor.Heartbeat{beat("a")}); err != nil || in.Stats().Busy == 0 {
			t.Errorf("%v, %+v", err, in.Stats())
		}
	})
}

// The store is away for ten minutes. Who waits is answered when it is back, exactly when
// what it sent is stored; who does not is told so.
func TestInletStoreAway(t *testing.T) {
	for name, err := range map[string]error{"away": errAway, "silent": lease.ErrUnknown} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpy(t)
				in := open(t, s, monitor.IntakeConfig{})
				in.take(beat("a"), beat("b"))
				s.stored()
				var requests atomic.Int64
				s.rig(func(context.Context, string) error { requests.Add(1); return err }, nil)
				var all sync.WaitGroup
				began := time.Now()
				all.Go(func() {
					in.take(beat("a"), beat("new"))
					if took := time.Since(began); took < 10*time.Minute || took > 10*time.Minute+2*time.Second {
						t.Errorf("accepted after %v", took)
					}
				})
				all.Go(func() {
					for time.Since(began) < 9*time.Minute {
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
						_, err := in.Record(ctx, []monitor.Heartbeat{beat("b")})
						cancel()
						if !errors.Is(err, lease.ErrUnknown) && !errors.Is(err, lease.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("nobody could store it: %v", err)
						}
					}
				})
				time.Sleep(10 * time.Minute)
				if got := s.stored(); len(got) > 0 {
					t.Errorf("stored: %v", got)
				}
				if n := requests.Load(); n > 1000 {
					t.Errorf("%d requests in ten minutes", n)
				}
				if st := in.Stats(); st.Queued > 3 {
					t.Errorf("beats of those who left take up room: %+v", st)
				}
				s.rig(nil, nil)
				all.Wait()
				if len(stamps(s.stored())) == 0 {
					t.Error("accepted, and not stored")
				}
			})
		})
	}
}

// Who left between two tries has said it elsewhere, and more since: it is not stored any
// more, however long this process was stopped in between.
func TestInletGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t)
		in := open(t, s, monitor.IntakeConfig{})
		in.take(beat("a"))
		s.rig(func(context.Context, string) error { return errAway }, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := in.Record(ctx, signals("a", monitor.SignalFail)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		s.stored()
		s.rig(nil, nil) // before the next try
		time.Sleep(5 * time.Second)
		if got := stamps(s.stored()); len(got) > 0 {
			t.Errorf("nobody waits for %+v", got)
		}
		in.take(beat("a"))
	})
}

func TestInletCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t)
		in := open(t, s, monitor.IntakeConfig{MaxQueue: 10, MaxBatch: 10})
		in.take(beat("a"))
		s.stored()
		gate := make(chan struct{})
		s.rig(func(context.Context, string) error { <-gate; return nil }, nil)
		left := func(sources ...string) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var beats []monitor.Heartbeat
			for _, n := range sources {
				beats = append(beats, beat(n))
			}
			_, err := in.Record(ctx, beats)
			return err
		}
		if err := left("a", "a", "a", "a", "a"); !errors.Is(err, lease.ErrUnknown) {
			t.Errorf("on its way: %v", err)
		}
		for range 3 { // each leaves its room to the next
			if err := left("b", "b", "b", "b", "b"); !errors.Is(err, lease.ErrUnavailable) {
				t.Errorf("in the queue: %v", err)
			}
		}
		close(gate)
		in.take(beat("c"))
		if got := stamps(s.stored()); len(got) != 2 || got[0].Count != 5 || in.Stats().Queued != 0 {
			t.Errorf("%+v, %+v", got, in.Stats())
		}
	})
}

func TestInletStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpy(t)
		in := open(t, s, monitor.IntakeConfig{MaxBatch: 2})
		s.rig(func(context.Context, string) error { time.Sleep(100 * time.Millisecond); return nil }, nil)
		var all sync.WaitGroup
		all.Go(func() { in.take(beat("a"), beat("b"), beat("c"), beat("d"), beat("e")) })
		synctest.Wait()
		in.stop()
		all.Wait()
		if n := len(stamps(s.stored())); n != 5 {
			t.Errorf("%d were stored", n)
		}
		if _, err := in.Record(t.Context(), []monitor.Heartbeat{beat("a")}); !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("taken after the end: %v", err)
		}
		if err := in.Run(t.Context()); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("it runs again: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) { // with a store that does not answer
		s := newSpy(t)
		in := open(t, s, monitor.IntakeConfig{})
		s.rig(func(ctx context.Context, _ string) error { <-ctx.Done(); return lease.ErrUnknown }, nil)
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if _, err := in.Record(t.Context(), []monitor.Heartbeat{beat("a")}); !errors.Is(err, lease.ErrUnknown) && !errors.Is(err, lease.ErrUnavailable) {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		began := time.Now()
		in.stop()
		all.Wait()
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("it stopped after %v", took)
		}
	})
}

// Whatever fails and whoever sends at once: what a source said is stored in the
// order in which it said it, nothing is left out, and all is acknowledged.
func TestInletOrder(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			s := newSpy(t)
			in := open(t, s, monitor.IntakeConfig{MaxBatch: 20, MaxQueue: 1000})
			random := rand.New(rand.NewPCG(seed, 1))
			var lock sync.Mutex
			chance := func(n int) bool { lock.Lock(); defer lock.Unlock(); return random.IntN(n) == 0 }
			s.rig(func(context.Context, string) error {
				time.Sleep(5 * time.Millisecond)
				if chance(5) {
					return errAway
				}
				return nil
			}, func(string) error {
				if chance(5) {
					return lease.ErrUnknown
				}
				return nil
			})
			sent := make([][]monitor.Signal, 12)
			var all sync.WaitGroup
			for n := range sent {
				all.Go(func() { sent[n] = in.send(n, rand.New(rand.NewPCG(seed, uint64(n+2)))) })
			}
			all.Wait()
			check(t, s, sent)
		})
	}
}

// A source that sends more than one flush holds keeps its order, too, when flushes are made again.
func TestInletOrderOfALongCall(t *testing.T) {
	const ok, fail = monitor.SignalSuccess, monitor.SignalFail
	sent := []monitor.Signal{ok, fail, ok, fail, fail, ok, fail, ok, fail, ok, fail, fail, ok, fail, ok, ok}
	for name, trouble := range map[string]func(t *testing.T, s *spy){
		"outcomes are unknown": func(_ *testing.T, s *spy) {
			var calls atomic.Int64
			s.rig(nil, func(call string) error {
				if call != "store" {
					return nil
				}
				if n := calls.Add(1); n > 2 && n%2 == 1 { // the line grows before the first
					return lease.ErrUnknown
				}
				return nil
			})
		},
		"the source is forgotten once it was looked up": func(t *testing.T, s *spy) {
			var once sync.Once
			s.rig(func(_ context.Context, call string) error {
				if call != "store" {
					return nil
				}
				once.Do(func() {
					for _, check := range []string{"G", "E"} {
						if _, err := s.Configure(t.Context(), monitor.Configuration{Checks: []monitor.Check{{Name: check, Interval: time.Second}}}); err != nil {
							t.Error(err)
						}
						if check == "G" {
							forget(t, s)
						}
					}
				})
				return nil
			}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpy(t)
				in := open(t, s, monitor.IntakeConfig{MaxBatch: 4})
				in.take(beat("s0"))
				s.stored()
				trouble(t, s)
				beats := signals("s0", sent...)
				for i := range beats {
					beats[i].Code = i + 1
				}
				in.take(beats...)
				s.rig(nil, nil)
				check(t, s, [][]monitor.Signal{sent})
			})
		})
	}
}

// send sends random signals of a source, in calls of a few, and returns them.
func (in *inlet) send(n int, random *rand.Rand) (sent []monitor.Signal) {
	for range 30 {
		of := make([]monitor.Signal, 1+random.IntN(6))
		for i := range of {
			if random.IntN(3) == 0 {
				of[i] = monitor.Signal(random.IntN(3))
			}
		}
		beats := signals(fmt.Sprintf("s%d", n), of...)
		for i := range beats {
			beats[i].Code = len(sent) + i + 1
		}
		in.take(beats...)
		sent = append(sent, of...)
		time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
	}
	return sent
}

// check judges what was stored: a delivery may have come twice.
func check(t *testing.T, s *spy, sent [][]monitor.Signal) {
	t.Helper()
	var ids []int64
	for n := range sent {
		r, err := s.Memory.ResolveSources(t.Context(), []monitor.SourceRef{{Check: "E", Source: fmt.Sprintf("s%d", n)}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r[0].ID)
	}
	deliveries := s.stored()
	for n, id := range ids {
		if err := inOrder(deliveries, id, sent[n]); err != nil {
			t.Errorf("s%d: %v", n, err)
		}
	}
}

// inOrder reports whether a source's stamps are what it sent, of which runs of what
// is fine may be one. The code of a beat is its number, from 1 on.
func inOrder(deliveries []monitor.HeartbeatBatch, id int64, sent []monitor.Signal) error {
	done, last := 0, monitor.HeartbeatUpdate{}
	for _, d := range deliveries {
		i := slices.IndexFunc(d.Beats, func(b monitor.HeartbeatUpdate) bool { return b.Source == id })
		if i < 0 {
			continue
		}
		b := d.Beats[i]
		if b == last {
			continue // stored again, because nobody knew
		}
		last = b
		if b.Code != done+b.Count {
			return fmt.Errorf("beat %d stands for %d, after %d", b.Code, b.Count, done)
		}
		for _, signal := range sent[done:b.Code] {
			if signal != b.Signal {
				return fmt.Errorf("beat %d said %v, and %v was stored", b.Code, signal, b.Signal)
			}
		}
		done = b.Code
	}
	if done != len(sent) {
		return fmt.Errorf("%d of %d beats were stored", done, len(sent))
	}
	return nil
}

// What judges the order finds an inlet that loses, exchanges or mixes.
func TestOrderIsJudged(t *testing.T) {
	const fine, fail = monitor.SignalSuccess, monitor.SignalFail
	sent := []monitor.Signal{fine, fine, fail, fine}
	flush := func(code, count int, s monitor.Signal) monitor.HeartbeatBatch {
		return monitor.HeartbeatBatch{Beats: []monitor.HeartbeatUpdate{{Source: 1, Code: code, Count: count, Signal: s}}}
	}
	right := []monitor.HeartbeatBatch{flush(2, 2, fine), flush(3, 1, fail), flush(4, 1, fine)}
	if err := inOrder(right, 1, sent); err != nil {
		t.Error(err)
	}
	for name, wrong := range map[string][]monitor.HeartbeatBatch{
		"lost at the end":   right[:2],
		"lost in between":   {right[0], right[2]},
		"exchanged":         {right[1], right[0], right[2]},
		"a failure is lost": {right[0], flush(4, 2, fine)},
		"an old one again":  {right[0], right[1], right[0], right[2]},
	} {
		if inOrder(wrong, 1, sent) == nil {
			t.Errorf("%s: not found", name)
		}
	}
}

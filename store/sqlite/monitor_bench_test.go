package sqlite_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// fleet is a table with an event and learned sources, each of which has beaten.
type fleet struct {
	testing.TB
	monitor.Store
	store *sqlite.Store
	ids   []int64
}

const ticker = "tick"

func newFleet(t testing.TB, sources int) *fleet {
	t.Helper()
	return newFleetAt(t, sqlite.Config{Path: filepath.Join(t.TempDir(), "store.db")}, sources)
}

func newFleetAt(t testing.TB, cfg sqlite.Config, sources int) *fleet {
	t.Helper()
	s := open(t, cfg)
	f := &fleet{TB: t, Store: s.Monitor(), store: s}
	_, err := f.Configure(t.Context(), monitor.Configuration{Checks: []monitor.Check{{Name: ticker, Interval: time.Minute}}})
	if err != nil {
		t.Fatal(err)
	}
	me := session(t, s, "me", lease.Timing{Interval: time.Minute, Timeout: time.Hour})
	if err := f.RegisterMember(t.Context(), monitor.Member{Session: me.ID, Sinks: []string{"log"}}); err != nil {
		t.Fatal(err)
	}
	for first := 0; first < sources; first += monitor.MaxSources {
		var refs []monitor.SourceRef
		for i := first; i < min(sources, first+monitor.MaxSources); i++ {
			refs = append(refs, monitor.SourceRef{Check: ticker, Source: fmt.Sprintf("source-%07d", i)})
		}
		found, err := f.ResolveSources(t.Context(), refs)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range found {
			f.ids = append(f.ids, r.ID)
		}
	}
	for ids := range slices.Chunk(f.ids, monitor.MaxBeats) {
		f.beat(ids, 0)
	}
	return f
}

// beat stores one beat of each source.
func (f *fleet) beat(ids []int64, seq int64) {
	f.Helper()
	d := monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "http", TrustFor: time.Second, MaxGap: time.Second}}}
	sent := time.Now()
	for _, id := range ids {
		d.Beats = append(d.Beats, monitor.HeartbeatUpdate{Source: id, Sent: sent, Seq: seq, Count: 1})
	}
	got, err := f.RecordHeartbeats(f.Context(), d)
	if err != nil || len(got.Unknown) > 0 {
		f.Fatalf("Store = %+v, %v", got, err)
	}
}

// cpu is what this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkStoreBeats stores flushes of beats that are spread over all sources.
func BenchmarkStoreBeats(b *testing.B) {
	for _, c := range []struct{ sources, flush int }{{100_000, 1000}, {100_000, 5000}, {100_000, 10_000}} {
		b.Run(fmt.Sprintf("sources=%d/flush=%d", c.sources, c.flush), func(b *testing.B) {
			f := newFleet(b, c.sources)
			every := c.sources / c.flush
			used, began, n := cpu(), time.Now(), 0
			for b.Loop() {
				var ids []int64
				for i := n % every; i < len(f.ids); i += every {
					ids = append(ids, f.ids[i])
				}
				f.beat(ids, int64(n))
				n++
			}
			beats := float64(n * c.flush)
			b.ReportMetric(beats/time.Since(began).Seconds(), "beats/s")
			b.ReportMetric(beats/(cpu()-used).Seconds(), "beats/cpu-s")
		})
	}
}

// changes are those that raise an alarm of each candidate, or only move them.
func (f *fleet) changes(l monitor.Scan, turn monitor.Transition) (out []monitor.SourceChange) {
	for _, c := range l.Candidates {
		ch := monitor.SourceChange{ID: c.ID, Rev: c.Rev, BeatRev: c.BeatRev, CheckRev: c.CheckRev, Transition: turn, Due: l.Now.Add(time.Hour), At: l.Wall}
		if turn == monitor.Onset {
			ch.Alarm, ch.Reason = lease.NewID(), monitor.Silent
			m := monitor.AlarmMessage{Status: turn, RequestID: ch.Alarm, Event: ticker, Source: c.Source}
			ch.Notifications = m.Notifications([]string{"log"})
		}
		out = append(out, ch)
	}
	return out
}

// BenchmarkTurns looks at a thousand sources of many that are due, and moves them, or
// has all of them fall silent.
func BenchmarkTurns(b *testing.B) {
	for _, turn := range []monitor.Transition{monitor.NoTransition, monitor.Onset} {
		b.Run("turn="+string(turn), func(b *testing.B) {
			c := &clock{Clock: lease.BootClock()}
			f := newFleetAt(b, sqlite.Config{Path: filepath.Join(b.TempDir(), "store.db"), Clock: c, Wall: c.Wall}, 50_000)
			var partitions []int
			for i := range monitor.Partitions {
				partitions = append(partitions, i)
			}
			var looking, turning time.Duration
			n := 0
			for b.Loop() {
				if n%(len(f.ids)/monitor.MaxSources) == 0 {
					c.step(2 * time.Hour)
				}
				began := time.Now()
				l, err := f.DueSources(b.Context(), partitions, monitor.MaxSources)
				if err != nil || len(l.Candidates) == 0 {
					b.Skipf("nothing is left: %v", err)
				}
				looked := time.Now()
				if _, err := f.ApplyChanges(b.Context(), f.changes(l, turn)); err != nil {
					b.Fatal(err)
				}
				looking, turning = looking+looked.Sub(began), turning+time.Since(looked)
				n++
			}
			b.ReportMetric(float64(looking.Microseconds())/float64(n), "µs/look")
			b.ReportMetric(float64(turning.Microseconds())/float64(n), "µs/apply")
		})
	}
}

// BenchmarkPages is what people ask for while there are many sources.
func BenchmarkPages(b *testing.B) {
	f := newFleet(b, 200_000)
	for name, page := range map[string]func() error{
		"overview": func() error { _, err := f.Overview(b.Context()); return err },
		"sources":  func() error { _, err := f.Sources(b.Context(), monitor.SourceQuery{}); return err },
		"last": func() error {
			_, err := f.Sources(b.Context(), monitor.SourceQuery{AfterCheck: ticker, AfterSource: "source-0199900"})
			return err
		},
		"down": func() error { _, err := f.Sources(b.Context(), monitor.SourceQuery{State: monitor.Down}); return err },
		"one": func() error {
			_, err := f.Sources(b.Context(), monitor.SourceQuery{Source: "source-0100000"})
			return err
		},
		"label": func() error {
			_, err := f.Sources(b.Context(), monitor.SourceQuery{Label: "a", Value: "b"})
			return err
		},
		"nothing": func() error { _, err := f.DueSources(b.Context(), []int{1, 2, 3, 4, 5, 6, 7, 8}, 1000); return err },
		"sweep":   func() error { _, err := f.Sweep(b.Context(), time.Hour, 1000); return err },
		"held":    func() error { _, err := f.HeldGroups(b.Context()); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := page(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package sqlite_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/understudy-ha/understudy/internal/memstore/checks"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// twin does the same to two tables and compares what they say.
type twin struct {
	testing.TB
	*rand.Rand
	clock  *twoClocks
	tables [2]monitor.Store
	ids    [2]map[string]int64
	events map[string]monitor.Check
	alarms int
}

const modelSources = 12

func newTwin(t testing.TB, seed uint64) *twin {
	t.Helper()
	c := newTwoClocks()
	s := open(t, sqlite.Config{Path: filepath.Join(t.TempDir(), "store.db"), Clock: c, Wall: c.Wall})
	w := &twin{
		TB: t, Rand: rand.New(rand.NewPCG(seed, 1)), clock: c,
		tables: [2]monitor.Store{s.Monitor(), monitor.Validated(checks.NewMemory(checks.Options{Clock: c.Wall}))},
		events: map[string]monitor.Check{
			"a": {Name: "a", Interval: time.Second, Missed: 2, MaxRun: 3 * time.Second},
			"b": {Name: "b", Interval: 700 * time.Millisecond, SenderClock: true, Flaps: 2, FlapWindow: time.Minute, Steady: 2 * time.Second, RetireAfter: 20 * time.Second},
		},
	}
	w.configure()
	for i, table := range w.tables {
		w.ids[i] = map[string]int64{}
		var refs []monitor.SourceRef
		for n := range modelSources {
			refs = append(refs, monitor.SourceRef{Check: []string{"a", "b"}[n%2], Source: fmt.Sprint("s", n)})
		}
		found, err := table.ResolveSources(t.Context(), refs)
		if err != nil {
			t.Fatal(err)
		}
		for n, r := range found {
			w.ids[i][refs[n].Source] = r.ID
		}
	}
	return w
}

func (w *twin) chance(percent int) bool { return w.IntN(100) < percent }

// both runs an operation on both tables, which must agree on what they return.
func both[T any](w *twin, what string, op func(i int, table monitor.Store) (T, error)) (out [2]T) {
	w.Helper()
	var errs [2]error
	for i, table := range w.tables {
		out[i], errs[i] = op(i, table)
	}
	if (errs[0] == nil) != (errs[1] == nil) {
		w.Fatalf("%s: %v; the model says %v", what, errs[0], errs[1])
	}
	return out
}

func (w *twin) configure() {
	w.Helper()
	var c monitor.Configuration
	for _, name := range []string{"a", "b"} {
		c.Checks = append(c.Checks, w.events[name])
	}
	got := both(w, "Configure", func(_ int, table monitor.Store) (monitor.ConfigurationChanges, error) {
		return table.Configure(w.Context(), c)
	})
	w.same("Configure", got[0], got[1], cmpopts.IgnoreFields(monitor.ConfigurationChanges{}, "Generation"))
}

func (w *twin) same(what string, got, want any, more ...cmp.Option) {
	w.Helper()
	options := append([]cmp.Option{cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(monitor.Facts{})}, more...)
	if diff := cmp.Diff(want, got, options...); diff != "" {
		w.Errorf("%s (- the model, + the store):\n%s", what, diff)
	}
}

// deliver stores the same random beats in both. lose leaves one of them out of the
// first.
func (w *twin) deliver(lose bool) {
	w.Helper()
	var proofs []monitor.Probe
	for _, name := range []string{"p", "q"} {
		proofs = append(proofs, monitor.Probe{
			Path: name, TrustFor: time.Duration(w.IntN(2000)) * time.Millisecond,
			MaxGap: time.Duration(1+w.IntN(3)) * time.Second, NameOnly: w.chance(30),
		})
	}
	var stamps []monitor.HeartbeatUpdate
	var names []string
	for n := range modelSources {
		if !w.chance(45) {
			continue
		}
		s := monitor.HeartbeatUpdate{Path: w.IntN(2), Count: 1 + w.IntN(3), Code: w.IntN(3), BySender: n%2 == 1}
		if w.chance(60) {
			s.Sent = w.clock.Wall().Add(time.Duration(w.IntN(4000)-3000) * time.Millisecond).Truncate(500 * time.Millisecond)
			s.Seq = int64(w.IntN(2))
		}
		if w.chance(20) {
			s.Signal = monitor.Signal(w.IntN(3))
		}
		names, stamps = append(names, fmt.Sprint("s", n)), append(stamps, s)
	}
	got := both(w, "Store", func(i int, table monitor.Store) (monitor.BatchResult, error) {
		d := monitor.HeartbeatBatch{Probes: proofs, Beats: slices.Clone(stamps)}
		for n := range d.Beats {
			d.Beats[n].Source = w.ids[i][names[n]]
		}
		if lose && i == 0 && len(d.Beats) > 0 {
			d.Beats = d.Beats[1:]
		}
		slices.SortFunc(d.Beats, func(a, b monitor.HeartbeatUpdate) int { return int(a.Source - b.Source) })
		return table.RecordHeartbeats(w.Context(), d)
	})
	w.same("Stored", got[0], got[1], cmpopts.IgnoreFields(monitor.BatchResult{}, "Generation"))
}

// judge has the rule judge what is due by each table, which must be the same, and
// applies some of its verdicts.
func (w *twin) judge() {
	w.Helper()
	looks := both(w, "Due", func(_ int, table monitor.Store) (monitor.Scan, error) {
		l, err := table.DueSources(w.Context(), partitions(), monitor.MaxSources)
		slices.SortFunc(l.Candidates, func(a, b monitor.Candidate) int { return strings.Compare(a.Source, b.Source) })
		return l, err
	})
	w.same("Look", looks[0], looks[1], cmpopts.IgnoreFields(monitor.Scan{}, "Generation"),
		cmpopts.IgnoreFields(monitor.Candidate{}, "ID", "CheckID", "Rev", "BeatRev", "CheckRev"))
	if w.Failed() {
		return
	}
	var changes [2][]monitor.SourceChange
	for n := range looks[0].Candidates {
		if w.chance(20) {
			continue
		}
		w.alarms++
		for i := range looks {
			c := looks[i].Candidates[n]
			e := w.events[[]string{"a", "b"}[int(c.Source[len(c.Source)-1]-'0')%2]].WithDefaults()
			v := e.Evaluate(c.Facts)
			ch := monitor.SourceChange{
				ID: c.ID, Rev: c.Rev, BeatRev: c.BeatRev, CheckRev: c.CheckRev, Transition: v.Transition, Due: v.Due, WellSince: v.WellSince, ExpectedFrom: c.Now,
				Reason: v.Reason, Alarm: c.Alarm, At: c.Wall.Add(-c.Now.Sub(v.At)),
			}
			if v.Transition == monitor.Onset {
				ch.Alarm = fmt.Sprintf("alarm-%05d", w.alarms)
			}
			changes[i] = append(changes[i], ch)
		}
	}
	if w.chance(15) { // something comes between
		w.deliver(false)
	}
	made := both(w, "Apply", func(i int, table monitor.Store) ([]bool, error) { return table.ApplyChanges(w.Context(), changes[i]) })
	w.same("Apply", made[0], made[1])
}

func (w *twin) act() {
	w.Helper()
	n := w.IntN(modelSources)
	a := monitor.Action{
		Type:  []monitor.ActionType{monitor.ActionPause, monitor.ActionResume, monitor.ActionRetire}[w.IntN(3)],
		Check: []string{"a", "b"}[n%2], Source: fmt.Sprint("s", n), Note: "why", Who: "me",
	}
	if a.Type == monitor.ActionPause && w.chance(50) {
		a.For = 5 * time.Second
	}
	both(w, string(a.Type), func(_ int, table monitor.Store) (any, error) { return nil, table.ApplyAction(w.Context(), a) })
}

// compare looks at all that there is to see.
func (w *twin) compare() {
	w.Helper()
	sources := both(w, "Sources", func(_ int, table monitor.Store) ([]monitor.SourceRecord, error) {
		return table.Sources(w.Context(), monitor.SourceQuery{})
	})
	w.same("Sources", sources[0], sources[1], cmpopts.IgnoreFields(monitor.SourceRecord{}, "Left", "Note"))
	alarms := both(w, "Alarms", func(_ int, table monitor.Store) ([]monitor.Alarm, error) {
		return table.Alarms(w.Context(), monitor.AlarmQuery{})
	})
	w.same("Alarms", alarms[0], alarms[1])
	overview := both(w, "Overview", func(_ int, table monitor.Store) (monitor.Overview, error) { return table.Overview(w.Context()) })
	w.same("Overview", overview[0], overview[1], cmpopts.IgnoreFields(monitor.StoredCheck{}, "ID", "Rev"))
}

func (w *twin) live(steps int, lose bool) {
	for range steps {
		if w.Failed() {
			return
		}
		if w.chance(70) {
			w.clock.step(time.Duration(1+w.IntN(900)) * time.Millisecond)
		}
		switch p := w.IntN(100); {
		case p < 50:
			w.deliver(lose && w.chance(5))
		case p < 85:
			w.judge()
		case p < 92:
			w.act()
		case p < 94:
			e := w.events["a"]
			e.Missed = 1 + w.IntN(3)
			w.events["a"] = e
			w.configure()
		case p < 98:
			both(w, "Sweep", func(_ int, table monitor.Store) (monitor.Scan, error) {
				return table.Sweep(w.Context(), 2*time.Minute, monitor.MaxSources)
			})
		default:
			w.clock.step(time.Duration(1+w.IntN(20)) * time.Second)
		}
		w.compare()
	}
}

// The store says what the model says, whatever is done to both. Comparing takes its time:
// there are more runs under UNDERSTUDY_PROVE=1.
func TestMonitorIsItsModel(t *testing.T) {
	seeds := uint64(1)
	if os.Getenv("UNDERSTUDY_PROVE") == "1" {
		seeds = 40
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := newTwin(t, seed)
			w.live(250, false)
			if w.alarms == 0 {
				t.Error("nothing was ever due")
			}
		})
	}
}

// A store that loses one beat in some hundred is found out.
func TestTheModelFindsALostBeat(t *testing.T) {
	heard := &muted{TB: t}
	newTwin(heard, 1).live(400, true)
	if !heard.failed {
		t.Error("the beats that were lost were not missed")
	}
}

// muted only remembers that a test failed.
type muted struct {
	testing.TB
	failed bool
}

func (m *muted) Errorf(string, ...any) { m.failed = true }
func (m *muted) Fatalf(string, ...any) { m.failed = true }
func (m *muted) Failed() bool          { return m.failed }

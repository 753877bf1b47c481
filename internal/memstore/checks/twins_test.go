package checks

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/recorder"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/monitortest"
)

// TestSuiteCatches proves the suite: each broken table is caught by the test that is
// named, and by one alone it need not be.
func TestSuiteCatches(t *testing.T) {
	recorder.Catches(t, nil, twins(), func(w twin) string { return w.by }, func(t *testing.T, r testing.TB, broken twin) {
		_, rig := broken.rig(t)
		monitortest.Try(t, r, rig, broken.by)
	})
}

// TestOutagesCatches proves the check of outages.
func TestOutagesCatches(t *testing.T) {
	for _, name := range []string{
		"a beat in between is ignored", "another's turn in between is ignored", "nobody looks when the watched beat",
		"nobody looks at signals", "beats come before the proofs", "a gap is not blind", "replays renew", "notices of what was not made",
		"notices of ends are lost", "beats are counted in two steps", "moments go back",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken, ok := twins()[name]
			if !ok {
				t.Fatal("no such twin")
			}
			synctest.Test(t, func(t *testing.T) {
				_, rig := broken.rig(t)
				found := monitortest.FindOutageFault(t, rig, monitortest.Outages{})
				if found == "" {
					t.Fatal("not caught")
				}
				t.Logf("caught: %.300s", found)
			})
		})
	}
}

// together lets other goroutines come between two steps: in a bubble, all of them.
func together() { time.Sleep(time.Microsecond) }

// twin is a Memory that is broken in one place.
type twin struct {
	by string // the test of the suite that must catch it

	resolve   func(*Memory, context.Context, []monitor.SourceRef) ([]monitor.ResolvedSource, error)
	store     func(*Memory, context.Context, monitor.HeartbeatBatch) (monitor.BatchResult, error)
	due       func(*Memory, context.Context, []int, int) (monitor.Scan, error)
	apply     func(*Memory, context.Context, []monitor.SourceChange) ([]bool, error)
	sweep     func(*Memory, context.Context, time.Duration, int) (monitor.Scan, error)
	report    func(*Memory, context.Context, monitor.GroupReport) (bool, error)
	configure func(*Memory, context.Context, monitor.Configuration) (monitor.ConfigurationChanges, error)
	sources   func(*Memory, context.Context, monitor.SourceQuery) ([]monitor.SourceRecord, error)
	alarms    func(*Memory, context.Context, monitor.AlarmQuery) ([]monitor.Alarm, error)
	act       func(*Memory, context.Context, monitor.Action) error
	made      func(*Memory) // when it is made
}

func (w twin) rig(t *testing.T) (*Memory, monitortest.Rig) {
	r, rig := reference(t)
	if w.made != nil {
		w.made(r)
	}
	rig.Table = monitor.Validated(twinTable{r, w})
	if w.configure != nil {
		rig.Table = twinConfiguration{rig.Table, r, w}
	}
	return r, rig
}

// twinConfiguration is broken before what checks a configuration.
type twinConfiguration struct {
	monitor.Store
	r *Memory
	w twin
}

func (t twinConfiguration) Configure(ctx context.Context, c monitor.Configuration) (monitor.ConfigurationChanges, error) {
	return t.w.configure(t.r, ctx, c)
}

type twinTable struct {
	*Memory
	w twin
}

func (t twinTable) ResolveSources(ctx context.Context, refs []monitor.SourceRef) ([]monitor.ResolvedSource, error) {
	if t.w.resolve != nil {
		return t.w.resolve(t.Memory, ctx, refs)
	}
	return t.Memory.ResolveSources(ctx, refs)
}

func (t twinTable) RecordHeartbeats(ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	if t.w.store != nil {
		d.Beats, d.Probes = slices.Clone(d.Beats), slices.Clone(d.Probes)
		return t.w.store(t.Memory, ctx, d)
	}
	return t.Memory.RecordHeartbeats(ctx, d)
}

func (t twinTable) DueSources(ctx context.Context, partitions []int, limit int) (monitor.Scan, error) {
	if t.w.due != nil {
		return t.w.due(t.Memory, ctx, partitions, limit)
	}
	return t.Memory.DueSources(ctx, partitions, limit)
}

func (t twinTable) ApplyChanges(ctx context.Context, changes []monitor.SourceChange) ([]bool, error) {
	if t.w.apply != nil {
		return t.w.apply(t.Memory, ctx, slices.Clone(changes))
	}
	return t.Memory.ApplyChanges(ctx, changes)
}

func (t twinTable) Sweep(ctx context.Context, keep time.Duration, limit int) (monitor.Scan, error) {
	if t.w.sweep != nil {
		return t.w.sweep(t.Memory, ctx, keep, limit)
	}
	return t.Memory.Sweep(ctx, keep, limit)
}

func (t twinTable) ReportGroup(ctx context.Context, r monitor.GroupReport) (bool, error) {
	if t.w.report != nil {
		return t.w.report(t.Memory, ctx, r)
	}
	return t.Memory.ReportGroup(ctx, r)
}

func (t twinTable) Sources(ctx context.Context, q monitor.SourceQuery) ([]monitor.SourceRecord, error) {
	if t.w.sources != nil {
		return t.w.sources(t.Memory, ctx, q)
	}
	return t.Memory.Sources(ctx, q)
}

func (t twinTable) Alarms(ctx context.Context, q monitor.AlarmQuery) ([]monitor.Alarm, error) {
	if t.w.alarms != nil {
		return t.w.alarms(t.Memory, ctx, q)
	}
	return t.Memory.Alarms(ctx, q)
}

func (t twinTable) ApplyAction(ctx context.Context, a monitor.Action) error {
	if t.w.act != nil {
		return t.w.act(t.Memory, ctx, a)
	}
	return t.Memory.ApplyAction(ctx, a)
}

// within does something to a Memory as one step.
func within(r *Memory, f func(step)) {
	_ = r.atomically(context.Background(), func(s step) error { f(s); return nil })
}

// believing rewrites changes so that they were judged on what is.
func believing(rewrite func(n *source, c *monitor.SourceChange)) func(*Memory, context.Context, []monitor.SourceChange) ([]bool, error) {
	return func(r *Memory, ctx context.Context, changes []monitor.SourceChange) ([]bool, error) {
		within(r, func(s step) {
			for i := range changes {
				if n := s.sources[changes[i].ID]; n != nil {
					rewrite(n, &changes[i])
				}
			}
		})
		return r.ApplyChanges(ctx, changes)
	}
}

// keepingDue stores, and leaves the time of the next look as it was for some signals.
func keepingDue(which func(monitor.Signal) bool) func(*Memory, context.Context, monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	return func(r *Memory, ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
		was := map[int64]monitor.StoreTime{}
		within(r, func(s step) {
			for _, b := range d.Beats {
				if n := s.sources[b.Source]; n != nil && which(b.Signal) {
					was[b.Source] = n.due
				}
			}
		})
		out, err := r.RecordHeartbeats(ctx, d)
		within(r, func(s step) {
			for id, due := range was {
				if n := s.sources[id]; n != nil {
					n.due = due
				}
			}
		})
		return out, err
	}
}

// proving rewrites proofs.
func proving(rewrite func(*monitor.Probe)) func(*Memory, context.Context, monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	return func(r *Memory, ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
		for i := range d.Probes {
			rewrite(&d.Probes[i])
		}
		return r.RecordHeartbeats(ctx, d)
	}
}

// beating rewrites beats.
func beating(rewrite func(*monitor.HeartbeatUpdate)) func(*Memory, context.Context, monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	return func(r *Memory, ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
		for i := range d.Beats {
			rewrite(&d.Beats[i])
		}
		return r.RecordHeartbeats(ctx, d)
	}
}

// looking rewrites what is due.
func looking(rewrite func(*monitor.Scan)) func(*Memory, context.Context, []int, int) (monitor.Scan, error) {
	return func(r *Memory, ctx context.Context, partitions []int, limit int) (monitor.Scan, error) {
		l, err := r.DueSources(ctx, partitions, limit)
		rewrite(&l)
		return l, err
	}
}

// telling rewrites the notices of each change.
func telling(rewrite func(c *monitor.SourceChange)) func(*Memory, context.Context, []monitor.SourceChange) ([]bool, error) {
	return func(r *Memory, ctx context.Context, changes []monitor.SourceChange) ([]bool, error) {
		for i := range changes {
			changes[i].Notifications = slices.Clone(changes[i].Notifications)
			rewrite(&changes[i])
		}
		return r.ApplyChanges(ctx, changes)
	}
}

func tellAnyway(r *Memory, ctx context.Context, changes []monitor.SourceChange) ([]bool, error) {
	made, err := r.ApplyChanges(ctx, changes)
	within(r, func(s step) {
		for i, ok := range made {
			if !ok {
				s.enqueue(changes[i].Notifications)
			}
		}
	})
	return made, err
}

func beatsFirst(r *Memory, ctx context.Context, d monitor.HeartbeatBatch) (out monitor.BatchResult, err error) {
	within(r, func(s step) {
		for i, p := range d.Probes { // so that there is a path for the beats
			if s.paths[p.Path] == nil {
				s.recordProbes(d.Probes[i : i+1])
			}
		}
		for _, b := range d.Beats {
			if n := s.sources[b.Source]; n != nil {
				s.recordHeartbeat(n, b, s.paths[d.Probes[b.Path].Path])
			}
		}
		s.recordProbes(d.Probes)
	})
	return out, nil
}

// gapByEach finds a gap in one step, and counts it in another.
func gapByEach(r *Memory, ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	for _, proof := range d.Probes {
		var since time.Duration
		within(r, func(s step) {
			if p := s.paths[proof.Path]; p != nil && s.now.Sub(p.LastSeen) > proof.MaxGap {
				since = s.now.Sub(p.LastSeen)
			}
		})
		together()
		within(r, func(s step) {
			if p := s.paths[proof.Path]; p != nil && since > 0 {
				p.BlindTotal += since
				p.LastSeen, p.BlindUntil, p.skipped = s.now, s.now, false
			}
		})
	}
	return r.RecordHeartbeats(ctx, d)
}

// lookInTwoSteps reads versions in one step, and moves the time of the next look in another.
func lookInTwoSteps(r *Memory, ctx context.Context, changes []monitor.SourceChange) ([]bool, error) {
	made := make([]bool, len(changes))
	var looks []monitor.SourceChange
	within(r, func(s step) {
		for i, c := range changes {
			n := s.sources[c.ID]
			if c.Transition == monitor.NoTransition && n != nil && n.rev == c.Rev && n.beatRev == c.BeatRev {
				made[i], looks = true, append(looks, c)
			}
		}
	})
	together()
	within(r, func(s step) {
		for _, c := range looks {
			s.sources[c.ID].due = c.Due
		}
	})
	for i, c := range changes {
		if c.Transition != monitor.NoTransition {
			one, err := r.ApplyChanges(ctx, changes[i:i+1])
			if err != nil {
				return made, err
			}
			made[i] = one[0]
		}
	}
	return made, nil
}

// countingTwice reads how many beats there were in one step, and writes in another.
func countingTwice(r *Memory, ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	was := map[int64]int64{}
	within(r, func(s step) {
		for _, b := range d.Beats {
			was[b.Source] = s.sources[b.Source].beats
		}
	})
	together()
	out, err := r.RecordHeartbeats(ctx, d)
	within(r, func(s step) {
		for _, b := range d.Beats {
			s.sources[b.Source].beats = was[b.Source] + int64(b.Count)
		}
	})
	return out, err
}

func numberedApart(r *Memory, ctx context.Context, refs []monitor.SourceRef) ([]monitor.ResolvedSource, error) {
	for _, ref := range refs {
		var known bool
		var next int64
		within(r, func(s step) { known, next = s.names[ref] != nil, s.lastID })
		together()
		within(r, func(s step) {
			if e := s.configuredCheck(ref.Check); e != nil && !known {
				s.lastID = next
				s.addSource(e, ref.Source)
			}
		})
	}
	return r.ResolveSources(ctx, refs)
}

func oneByOne(r *Memory, ctx context.Context, c monitor.Configuration) (out monitor.ConfigurationChanges, err error) {
	for _, e := range c.Checks {
		one, err := monitor.Validated(r).Configure(ctx, monitor.Configuration{Checks: []monitor.Check{e}, Keep: true, Origin: c.Origin})
		if err != nil {
			return out, err
		}
		out.Added, out.Changed = append(out.Added, one.Added...), append(out.Changed, one.Changed...)
		together()
	}
	last, err := monitor.Validated(r).Configure(ctx, c)
	out.Removed, out.Declared, out.Generation = last.Removed, last.Declared, last.Generation
	return out, err
}

func emptyTaken(r *Memory, ctx context.Context, c monitor.Configuration) (monitor.ConfigurationChanges, error) {
	if len(c.Checks) == 0 {
		within(r, func(s step) {
			for _, e := range s.checks {
				e.Removed = true
			}
		})
		return monitor.ConfigurationChanges{}, nil
	}
	return r.Configure(ctx, c)
}

func resumesAll(r *Memory, ctx context.Context, c monitor.Configuration) (monitor.ConfigurationChanges, error) {
	out, err := r.Configure(ctx, c)
	within(r, func(s step) {
		for _, e := range s.checks {
			e.Paused = e.configured.Paused
		}
	})
	return out, err
}

func someMembers(r *Memory, ctx context.Context, rep monitor.GroupReport) (bool, error) {
	within(r, func(s step) {
		rep.Members = slices.DeleteFunc(slices.Clone(rep.Members), func(id string) bool { return s.alarms[id] == nil || !s.alarms[id].held })
	})
	return r.ReportGroup(ctx, rep)
}

func endsEarly(r *Memory, ctx context.Context, rep monitor.GroupReport) (bool, error) {
	if rep.End != "" {
		within(r, func(s step) {
			for _, a := range s.alarms {
				a.group = nil
			}
		})
	}
	return r.ReportGroup(ctx, rep)
}

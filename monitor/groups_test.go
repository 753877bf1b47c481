package monitor_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// racks is an event whose sources are grouped by the rack in which they stand.
var racks = monitor.Check{Name: "E", Interval: time.Second, Missed: 3, GroupBy: "rack", GroupWait: 5 * time.Second, GroupMin: 3}

// declare puts sources into a rack.
func (w *world) declare(rack string, sources ...string) {
	w.t.Helper()
	var all []monitor.Declaration
	for _, s := range sources {
		all = append(all, monitor.Declaration{Check: "E", Source: s, Labels: map[string]string{"rack": rack}})
	}
	for part := range slices.Chunk(all, monitor.MaxSources) {
		if _, err := w.ref.Declare(w.t.Context(), part); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestGroupIsOneAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, racks)
		w.declare("r/1", "a", "b", "c")
		i := w.start("i")
		stopA, stopB, stopC := i.beating("a"), i.beating("b"), i.beating("c")
		stop := i.beating("no rack")
		time.Sleep(5 * time.Second)
		stopA()
		time.Sleep(2 * time.Second)
		stopB()
		stopC()
		stop()
		began := time.Now()
		time.Sleep(4 * time.Second)
		w.want("a")
		w.want("no rack", onset) // at once
		time.Sleep(6 * time.Second)
		var group []monitor.AlarmMessage
		for _, m := range w.told() {
			if m.Source == "" {
				group = append(group, m)
			}
		}
		if len(group) != 1 {
			t.Fatalf("told of the group: %+v", group)
		}
		on := group[0]
		if !slices.Equal(on.Members, []string{"a", "b", "c"}) || on.Count != 3 || on.Group != "r/1" || on.GroupBy != "rack" || on.Labels["rack"] != "r/1" || on.Event != "E" {
			t.Errorf("%+v", on)
		}
		if d := on.Started.Sub(began.Add(time.Second)).Abs(); d > 1500*time.Millisecond {
			t.Errorf("the group's outage began %v off", d)
		}
		w.declare("r/1", "d") // joins, and nobody is told
		time.Sleep(10 * time.Second)
		i.beat(t.Context(), monitor.SignalSuccess, "a", "b", "c")
		i.beating("a", "b", "c")
		time.Sleep(7 * time.Second)
		if all := w.told(); len(all) != 2 {
			t.Errorf("one of the group stands, and told is %+v", all)
		}
		i.beating("d")
		time.Sleep(7 * time.Second)
		all := w.told()
		off := all[len(all)-1]
		if len(all) != 3 || off.Status != abated || off.RequestID != on.RequestID || off.Ended == nil || off.Group != "r/1" || !off.Started.Equal(on.Started) || off.Reason != monitor.Silent {
			t.Errorf("%+v", all)
		}
	})
}

// TestGroupEndsWithoutHeartbeats: the end of a group says so when its sources were retired, or its check was removed. If one
// of them has returned, it has returned.
func TestGroupEndsWithoutHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, racks)
		i := w.start("i")
		retire := func(sources ...string) {
			for _, s := range sources {
				w.act(monitor.Action{Type: monitor.ActionRetire, Check: "E", Source: s, Who: "me"})
			}
		}
		for n, c := range []struct {
			end func(sources []string)
			why monitor.Transition
		}{
			{func(all []string) { i.beat(t.Context(), monitor.SignalSuccess, all[0]); retire(all[1:]...) }, ""},
			{func(all []string) { retire(all...) }, monitor.Retire},
			{func([]string) { w.configure(false, monitor.Check{Name: "F", Interval: time.Hour}) }, monitor.Forget},
		} {
			all := []string{fmt.Sprint("a", n), fmt.Sprint("b", n), fmt.Sprint("c", n)}
			w.declare("r1", all...)
			time.Sleep(20 * time.Second)
			c.end(all)
			if n == 0 {
				time.Sleep(time.Second)
				retire(all[0])
			}
			time.Sleep(sweepWithin)
			told := w.told()
			if len(told) != 2*n+2 {
				t.Fatalf("%d: told %+v", n, told)
			}
			if m := told[len(told)-1]; m.Status != abated || m.Group != "r1" || m.End != c.why {
				t.Errorf("%d: it ended by %q, want %q: %+v", n, m.End, c.why, m)
			}
			found, err := w.ref.Alarms(t.Context(), monitor.AlarmQuery{ID: told[len(told)-1].RequestID})
			if want := cmp.Or(c.why, abated); err != nil || len(found) != 1 || found[0].End != want {
				t.Errorf("%d: stored as %+v, want %q (%v)", n, found, want, err)
			}
		}
	})
}

func TestGroupTooSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, racks)
		w.declare("r1", "a", "b")
		i := w.start("i")
		stop := i.beating("a", "b")
		time.Sleep(5 * time.Second)
		stop()
		time.Sleep(11 * time.Second)
		w.want("a", onset)
		w.want("b", onset)
		i.beat(t.Context(), monitor.SignalSuccess, "a", "b")
		time.Sleep(time.Second)
		w.want("a", onset, abated)
		w.want("b", onset, abated)
	})
}

// What is over before it was told is told of whole.
func TestGroupMemberThatIsBackSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, racks)
		w.declare("r1", "a", "b", "c")
		i := w.start("i")
		stop := i.beating("a", "b", "c")
		time.Sleep(5 * time.Second)
		stop()
		time.Sleep(4 * time.Second)
		i.beat(t.Context(), monitor.SignalSuccess, "a")
		i.beating("a")
		time.Sleep(500 * time.Millisecond)
		w.want("a", onset, abated)
		w.want("b")
		time.Sleep(10 * time.Second)
		w.want("a", onset, abated)
		w.want("b", onset)
		w.want("c", onset)
	})
}

func TestGroupOfThousands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, racks)
		var all []string
		for n := range 2500 {
			all = append(all, fmt.Sprintf("s%04d", n))
		}
		w.declare("r1", all...)
		i := w.start("i")
		time.Sleep(20 * time.Second)
		told := w.told()
		if len(told) != 1 || told[0].Count != 2500 || len(told[0].Members) != monitor.MaxMembers {
			t.Fatalf("%d messages, the first of %d members", len(told), told[0].Count)
		}
		i.beating(all...)
		time.Sleep(5 * time.Second)
		if told = w.told(); len(told) != 2 || told[1].Status != abated {
			t.Errorf("%d messages", len(told))
		}
	})
}

// An event that is not grouped any more leaves nothing held.
func TestGroupingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := racks
		e.GroupWait = time.Hour
		w := newWorld(t, e)
		w.declare("r1", "a", "b", "c")
		w.start("i")
		time.Sleep(10 * time.Second)
		w.want("a")
		e.GroupBy, e.GroupWait, e.GroupMin = "", 0, 0
		w.configure(false, e)
		time.Sleep(sweepWithin)
		w.want("a", onset)
		w.want("b", onset)
	})
}

// sweepWithin is when what nobody asks for is done at the latest.
const sweepWithin = 62 * time.Second

// hungAlarms is a store that does not answer who asks for the alarm of a group.
type hungAlarms struct {
	monitor.Store
	hung  atomic.Bool
	mu    sync.Mutex
	calls string // A: an alarm that was not read; G: the groups were read
}

func (s *hungAlarms) note(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls += call
}

func (s *hungAlarms) Alarms(ctx context.Context, q monitor.AlarmQuery) ([]monitor.Alarm, error) {
	if q.ID == "" || !s.hung.Load() {
		return s.Store.Alarms(ctx, q)
	}
	s.note("A")
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *hungAlarms) HeldGroups(ctx context.Context) ([]monitor.AlarmGroup, error) {
	s.note("G")
	return s.Store.HeldGroups(ctx)
}

// A store that does not answer is an error of the watcher. One request, not one for each group, holds up the other
// housekeeping.
func TestGroupsOfAHungStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, racks)
		store := &hungAlarms{Store: w.ref}
		w.table = store
		var all []string
		for _, rack := range []string{"r1", "r2", "r3"} {
			members := []string{rack + "a", rack + "b", rack + "c"}
			w.declare(rack, members...)
			all = append(all, members...)
		}
		i := w.start("i")
		time.Sleep(20 * time.Second)
		if told := w.told(); len(told) != 3 {
			t.Fatalf("told of the groups: %+v", told)
		}
		store.hung.Store(true)
		i.beating(all...)
		time.Sleep(time.Minute)
		store.mu.Lock()
		calls := store.calls
		store.mu.Unlock()
		if strings.Contains(calls, "AA") || !strings.Contains(calls, "AG") {
			t.Errorf("requests to the hung store: %s", calls)
		}
		if i.Stats().Failures == 0 {
			t.Error("the store did not answer, and no failure is counted")
		}
		store.hung.Store(false)
		time.Sleep(15 * time.Second)
		if told := w.told(); len(told) != 6 {
			t.Errorf("the groups have ended, and told is %+v", told)
		}
	})
}

package monitor_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// TestReminders: sinks are notified again until someone acknowledges, whoever is the sweeper.
func TestReminders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		check := each3
		check.Remind = time.Minute
		w := newWorld(t, check)
		w.poll = time.Second
		a := w.start("a")
		stop := a.beating("x")
		a.beating("well")
		time.Sleep(10 * time.Second)
		stop()
		time.Sleep(10*time.Second + 2*time.Minute)
		w.start("b").beating("well")
		a.dead.Store(true)
		time.Sleep(time.Minute)
		told := w.told()
		var seen []string
		for _, m := range told {
			seen = append(seen, fmt.Sprint(m.Source, " ", m.Status, " ", m.Reminder))
			if m.RequestID != told[0].RequestID || !m.Started.Equal(told[0].Started) || m.Acknowledge != told[0].Acknowledge ||
				!strings.HasPrefix(m.Acknowledge, "https://monitor.example/acknowledge/"+m.RequestID+"/") {
				t.Errorf("%+v", m)
			}
			if (m.Reminder > 0) != (m.RemindMS == 60_000) {
				t.Errorf("the next reminder is %d ms after %+v", m.RemindMS, m)
			}
		}
		if want := "[x ONSET 0 x ONSET 1 x ONSET 2 x ONSET 3]"; fmt.Sprint(seen) != want {
			t.Fatalf("told %v, want %s", seen, want)
		}
		if err := w.table.ApplyAction(t.Context(), monitor.Action{Type: monitor.ActionAcknowledge, Alarm: told[0].RequestID, Who: "ops"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if n := len(w.told()); n != 4 {
			t.Errorf("%d messages after it was acknowledged", n)
		}
	})
}

// countedReminders is a store that counts how often it was asked for alarms to remind of, and may fail then.
type countedReminders struct {
	monitor.Store
	asked atomic.Int64
	fails atomic.Bool
}

func (s *countedReminders) Alarms(ctx context.Context, q monitor.AlarmQuery) ([]monitor.Alarm, error) {
	if q.NotifiedBefore.IsZero() {
		return s.Store.Alarms(ctx, q)
	}
	s.asked.Add(1)
	if s.fails.Load() {
		return nil, errAway
	}
	return s.Store.Alarms(ctx, q)
}

// TestRemindersBesideGroups: reports of groups, every 100 ms here, bring neither reminders forward nor their back-off.
func TestRemindersBesideGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reminded, grouped := each3, racks
		reminded.Remind, grouped.Name, grouped.GroupWait = time.Minute, "G", 100*time.Millisecond
		w := newWorld(t, reminded, grouped)
		store := &countedReminders{Store: w.ref}
		w.table = store
		w.start("a")
		time.Sleep(5 * time.Second)
		store.asked.Store(0)
		time.Sleep(time.Minute)
		if n := store.asked.Load(); n < 19 || n > 21 { // each 3 s
			t.Errorf("asked %d times in a minute", n)
		}
		store.fails.Store(true)
		time.Sleep(20 * time.Second)
		store.asked.Store(0)
		time.Sleep(20 * time.Second)
		if n := store.asked.Load(); n > 25 { // each second or two
			t.Errorf("a store that fails is asked %d times in 20 s", n)
		}
		store.fails.Store(false)
		time.Sleep(5 * time.Second)
		// A check that reminds more often, by a new configuration, is not left for as long as the last run said.
		reminded.Remind = 0
		w.configure(false, reminded, grouped)
		time.Sleep(10 * time.Second) // the next run is in a minute
		reminded.Remind = time.Minute
		w.configure(false, reminded, grouped)
		store.asked.Store(0)
		time.Sleep(4 * time.Second)
		if store.asked.Load() == 0 {
			t.Error("nothing was asked for after the configuration has changed")
		}
	})
}

// beatAs sends one heartbeat of a source of any check.
func (i *instance) beatAs(check, source string) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := i.flow.Record(ctx, []monitor.Heartbeat{{Check: check, Source: source}}); err != nil {
		i.w.t.Error(err)
	}
}

// TestDependsOn: a host that dies with its services is one alarm, and none of theirs; a service alone is its own.
func TestDependsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := each3
		service.DependsOn, service.DependsLabel = "host", "host"
		w := newWorld(t, service, monitor.Check{Name: "host", Interval: 2 * time.Second, Missed: 5})
		a := w.start("a")
		services := names(40)
		for _, name := range services {
			if _, err := w.table.Declare(t.Context(), []monitor.Declaration{{Check: "E", Source: name, Labels: map[string]string{"host": "web-1"}}}); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			a.beatAs("host", "web-1")
			a.beat(t.Context(), monitor.SignalSuccess, services...)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute) // the host's limit is 10 s, its services' 3 s
		if told := w.told(); len(told) != 1 || told[0].Event != "host" {
			t.Fatalf("%d alarms when a host dies, the first of %q", len(told), told[0].Event)
		}
		// It returns, and its services one second later, but for one.
		a.beatAs("host", "web-1")
		for range 16 { // it is looked at every 10 s, and has its limit then
			time.Sleep(time.Second)
			a.beatAs("host", "web-1")
			a.beat(t.Context(), monitor.SignalSuccess, services[1:]...)
		}
		told := w.told()
		w.want(services[0], onset)
		if len(told) != 3 || told[1].Event != "host" || told[1].Status != abated {
			t.Errorf("%d messages after it has returned: %+v", len(told), told[1:])
		}
	})
}

// TestDependsOnLevels: a switch that dies with its hosts and their services is one alarm, though it has the longest limit. A host
// that does not return with it is another, and none of its services.
func TestDependsOnLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := each3
		service.DependsOn, service.DependsLabel = "host", "host"
		host := monitor.Check{Name: "host", Interval: time.Second, Missed: 10, DependsOn: "switch", DependsLabel: "switch"}
		w := newWorld(t, service, host, monitor.Check{Name: "switch", Interval: 10 * time.Second, Missed: 12})
		w.poll = time.Second
		a := w.start("a")
		one, two, root := map[string]string{"host": "one"}, map[string]string{"host": "two"}, map[string]string{"switch": "root"}
		if _, err := w.table.Declare(t.Context(), []monitor.Declaration{
			{Check: "host", Source: "one", Labels: root}, {Check: "host", Source: "two", Labels: root},
			{Check: "E", Source: "of one", Labels: one}, {Check: "E", Source: "of two", Labels: two},
		}); err != nil {
			t.Fatal(err)
		}
		beating := func(seconds int, hosts ...string) {
			for range seconds {
				a.beatAs("switch", "root")
				for _, h := range hosts {
					a.beatAs("host", h)
					a.beatAs("E", "of "+h)
				}
				time.Sleep(time.Second)
			}
		}
		beating(10, "one", "two")
		time.Sleep(10 * time.Minute)
		if told := w.told(); len(told) != 1 || told[0].Event != "switch" {
			t.Fatalf("%d alarms when a switch dies: %+v", len(told), told)
		}
		beating(60, "one")
		if told := w.told(); len(told) != 3 || told[1].Event != "switch" || told[1].Status != abated || told[2].Source != "two" || told[2].Event != "host" {
			t.Errorf("%d messages after it has returned: %+v", len(told), told)
		}
	})
}

// TestParentInMaintenance: a host that is shut down in its window takes no alarms of its services with it.
func TestParentInMaintenance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := each3
		service.DependsOn = "host"
		w := newWorld(t, service, monitor.Check{Name: "host", Interval: time.Second, Maintenance: "* * * * *", MaintenanceFor: 24 * time.Hour})
		a := w.start("a")
		a.beatAs("host", "web-1")
		a.beat(t.Context(), monitor.SignalSuccess, "web-1", "web-2") // the second has no host
		time.Sleep(10 * time.Minute)
		if told := w.told(); len(told) != 1 || told[0].Source != "web-2" {
			t.Errorf("%d alarms: %+v", len(told), told)
		}
	})
}

// TestDependsOnEachOther: what depends on itself alarms all the same.
func TestDependsOnEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := each3, each3
		two.Name, one.DependsOn, two.DependsOn = "F", "F", "E"
		w := newWorld(t, one, two)
		a := w.start("a")
		a.beatAs("E", "x")
		a.beatAs("F", "x")
		time.Sleep(time.Minute)
		if n := len(w.told()); n == 0 {
			t.Error("both wait for ever")
		}
	})
}

func TestLinks(t *testing.T) {
	l := monitor.Links{Base: "https://a.example/base/", Secret: []byte("0123456789abcdef0123456789abcdef")}
	link := l.Acknowledge("a/b c")
	path, signature := link[:strings.LastIndex(link, "/")], link[strings.LastIndex(link, "/")+1:]
	if path != "https://a.example/base/acknowledge/a%2Fb%20c" || len(signature) != 22 || !l.MayAcknowledge("a/b c", signature) {
		t.Errorf("%s", link)
	}
	of := monitor.SourceRef{Check: "e", Source: "a"}
	badge := l.Badge(of)
	seal := badge[strings.LastIndex(badge, "/")+1:]
	if !strings.HasPrefix(badge, "/badge/e/a/") || !l.MaySeeBadge(of, seal) {
		t.Errorf("%s", badge)
	}
	other := l
	other.Secret = []byte("another secret of 32 bytes......")
	for name, ok := range map[string]bool{
		"another alarm":            l.MayAcknowledge("a/b d", signature),
		"no signature":             l.MayAcknowledge("a/b c", ""),
		"a badge's":                l.MayAcknowledge("e\x00a", strings.TrimSuffix(seal, ".svg")),
		"another source's badge":   l.MaySeeBadge(monitor.SourceRef{Check: "e", Source: "b"}, seal),
		"names cut elsewhere":      l.MaySeeBadge(monitor.SourceRef{Check: "e\x00a", Source: ""}, seal),
		"another store":            other.MayAcknowledge("a/b c", signature),
		"a store without a secret": monitor.Links{}.MayAcknowledge("a/b c", monitor.Links{}.Acknowledge("a/b c")),
	} {
		if ok {
			t.Errorf("%s opens it", name)
		}
	}
	if link := (monitor.Links{Secret: l.Secret}).Acknowledge("a"); link != "" {
		t.Errorf("without a URL: %q", link)
	}
}

//go:build linux

package fault_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/monitor"
)

var monitorProcesses = []monitorCase{
	{name: "chaos", stores: both, server: true, run: monitorChaos},
	{name: "what the judge sees", stores: light, run: monitorCaught},
	{name: "what the judge sees of trouble", stores: light, run: monitorCaughtInTrouble},
	{name: "D01 taken over", stores: server, more: light, run: monitorTakeover},
	{name: "D02 paused for long", stores: server, more: light, run: monitorPaused},
	{name: "D02 all are paused", stores: server, more: light, run: monitorAllPaused},
	{name: "D04 server away", stores: server, server: true, run: monitorServerAway},
	{name: "D11 D16 twelve at once on an empty store", stores: light, more: server, run: monitorTwelve},
	{name: "D17 equal process ids", stores: light, run: monitorEqualIDs},
	{name: "D24 clock stepped", stores: server, steps: true, run: monitorStepped},
}

// monitorTakeover measures how long sources of an instance that is killed, and which
// fall silent at that moment, are not found, and not told of. The figures are told; only
// what would be a hang fails.
func monitorTakeover(t *testing.T, p fault.Programs, db fault.Database) {
	const sources = 40
	rounds := 2
	if prove {
		rounds = 12
	}
	m := monitorsOf(t, p, db, 2, 1, "--event", "quick,interval=250ms,missed=4")
	m.Start()
	other := m.Named("m2")
	var all []string
	for i := range sources {
		all = append(all, fmt.Sprintf(`{"event":"quick","source":"q%d"}`, i))
	}
	body := "[" + strings.Join(all, ",") + "]"
	standing := func() (n int) {
		for i := range sources {
			if m.Sinks[0].Stands(fmt.Sprint("q", i)) {
				n++
			}
		}
		return n
	}
	beat := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			for ctx.Err() == nil {
				other.Ask("POST", "/v1/beats", body)
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		}()
		return sync.OnceFunc(func() { cancel(); <-over })
	}
	var found, told []time.Duration
	for range rounds {
		stop := beat()
		defer stop()
		realserver.Eventually(t, 2*patience, "all are well", func() error {
			if n := len(m.Sources("quick")); n < sources {
				return fmt.Errorf("only %d were heard", n)
			}
			if n := standing(); n > 0 {
				return fmt.Errorf("%d are not", n)
			}
			return nil
		})
		m.Delivered(2 * patience)
		m.Named("m1").Signal(syscall.SIGKILL)
		ended := time.Now()
		stop()
		realserver.Eventually(t, 2*patience, "all are told of", func() error {
			if n := standing(); n < sources {
				return fmt.Errorf("%d of %d", n, sources)
			}
			return nil
		})
		last := slices.MaxFunc(m.Sinks[0].Told(), func(a, b fault.Told) int { return a.At.Compare(b.At) })
		told = append(told, last.At.Sub(ended))
		raised := slices.MaxFunc(m.Alarms(), func(a, b monitor.Alarm) int { return a.Raised.Compare(b.Raised) })
		found = append(found, raised.Raised.Sub(ended))
		m.Named("m1").Kill()
		m.Named("m1").Start()
		m.Settled()
	}
	slices.Sort(found)
	slices.Sort(told)
	t.Logf("first window %v: the last of %d sources was found silent after: median %v, at most %v; and told of after: median %v, at most %v",
		m.Window, sources, found[rounds/2].Round(time.Millisecond), found[rounds-1].Round(time.Millisecond),
		told[rounds/2].Round(time.Millisecond), told[rounds-1].Round(time.Millisecond))
	m.Stop()
}

// monitorPaused stops an instance for longer than anybody waits for it: the others
// look after its sources, and it takes part again afterwards.
func monitorPaused(t *testing.T, p fault.Programs, db fault.Database) {
	m := monitorsOf(t, p, db, 2, 1)
	m.Start()
	b := beaterOf(m, 4, 6)
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { b.Run(ctx); close(over) }()
	one := m.Named("m1")
	realserver.Eventually(t, patience, "it is stopped", func() error {
		if !one.Pause(time.Hour) {
			return fmt.Errorf("it writes")
		}
		return nil
	})
	realserver.Eventually(t, patience, "the other looks after all", func() error {
		held, err := m.Held()
		if held["m2"] != monitor.Partitions {
			return fmt.Errorf("they hold %v: %w", held, err)
		}
		return nil
	})
	pid := one.PID()
	one.Resume()
	m.Settled()
	if one.Exited() || one.PID() != pid {
		t.Error("it has ended")
	}
	stop()
	<-over
	monitorJudged(t, fault.JudgeMonitor(b.RollCall(t, 3*patience)))
}

// unblamed fails the test if a source that always beats was found silent because nobody
// could hear it from then until then. It may have been quiet before, or after: a busy
// machine keeps it from beating.
func unblamed(t *testing.T, b *fault.Beater, from, until time.Time) {
	t.Helper()
	beats, _ := b.Beats()
	for _, a := range b.Monitors.Alarms() {
		if !strings.HasPrefix(a.Source, "steady") || !a.Raised.After(from) || !a.Raised.Before(until.Add(hbEvery)) {
			continue
		}
		var heard time.Time // before
		for _, s := range beats {
			if s.Source == a.Source && s.Stored && s.Sent.Before(from) {
				heard = s.Sent
			}
		}
		if quiet := from.Sub(heard) + max(0, a.Raised.Sub(until)); quiet < hbLimit {
			t.Errorf("%s could not be heard from %v to %v, was quiet for %v besides, and was found silent at %v", a.Source, from, until, quiet, a.Raised)
		}
	}
}

// monitorAllPaused stops every instance for longer than the limit: that nobody heard the
// sources meanwhile is held against none of them.
func monitorAllPaused(t *testing.T, p fault.Programs, db fault.Database) {
	m := monitorsOf(t, p, db, 2, 1)
	m.Start()
	b := beaterOf(m, 10, 0)
	stop := inBackground(b)
	defer stop()
	for range 2 {
		b.Heard(t, patience)
		<-time.After(hbLimit)
		for _, one := range m.All() {
			realserver.Eventually(t, patience, "it is stopped", func() error {
				if !one.Pause(time.Hour) {
					return fmt.Errorf("it writes")
				}
				return nil
			})
		}
		from := time.Now()
		<-time.After(3 * time.Second)
		up := time.Now()
		for _, one := range m.All() {
			one.Resume()
		}
		m.Settled()
		unblamed(t, b, from, up)
	}
	stop()
	monitorJudged(t, fault.JudgeMonitor(b.RollCall(t, 3*patience)))
}

// monitorServerAway stops the store's server under load: nobody ends, no source is
// blamed for it, and what fell silent meanwhile is told of afterwards.
func monitorServerAway(t *testing.T, p fault.Programs, db fault.Database) {
	length := 3 * time.Second
	if prove {
		length = 30 * time.Second
	}
	m := monitorsOf(t, p, db, 2, 1)
	m.Start()
	b := beaterOf(m, 6, 4)
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { b.Run(ctx); close(over) }()
	realserver.Eventually(t, 2*patience, "outages are told of", func() error {
		if len(m.Sinks[0].Told()) < 4 {
			return fmt.Errorf("only %d", len(m.Sinks[0].Told()))
		}
		return nil
	})
	pids := []int{m.All()[0].PID(), m.All()[1].PID()}
	for _, away := range []func(){db.Server.Stop, db.Server.Kill} {
		away()
		from := time.Now()
		<-time.After(length / 2)
		realserver.Eventually(t, patience, "it says that it is not ready", func() error {
			if status, text := m.Named("m1").Ask("GET", "/readyz", ""); status != 503 {
				return fmt.Errorf("%d %s", status, text)
			}
			return nil
		})
		<-time.After(length / 2)
		up := time.Now()
		db.Server.Start(t)
		m.Settled()
		unblamed(t, b, from, up)
	}
	stop()
	<-over
	for i, one := range m.All() {
		if one.Exited() || one.PID() != pids[i] {
			t.Errorf("%s has ended", one.Name)
		}
	}
	monitorJudged(t, fault.JudgeMonitor(b.RollCall(t, 3*patience)))
}

// monitorTwelve starts twelve instances at once on an empty store, which learn the same
// sources at the same time, and twelve more on what those have left. UNDERSTUDY_OLD
// names an older understudy, which makes the store instead.
func monitorTwelve(t *testing.T, p fault.Programs, db fault.Database) {
	const sources = 100
	m := fault.NewMonitors(t, fault.MonitorsConfig{Programs: p, Database: db, Window: 15 * time.Second,
		Options: []string{"--event", "many,interval=1h"}}, instances(12)...)
	if old := os.Getenv("UNDERSTUDY_OLD"); old != "" {
		before := *m
		before.Programs.Understudy = old
		if out, err := before.Command("history"); err != nil {
			t.Fatalf("making the store with %s: %v: %s", old, err, out)
		}
	}
	var want, most int64 // what was stored for sure, and what may have been
	for life := range 2 {
		m.Start()
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, one := range m.All() {
			all.Go(func() {
				var body []string
				for i := range sources {
					body = append(body, fmt.Sprintf(`{"event":"many","source":"life-%d/%d"}`, life, i))
				}
				attempts := int64(0)
				realserver.Eventually(t, 2*patience, one.Name+" takes all", func() error {
					attempts++ // a busy store may not answer in time
					if status, text := one.Ask("POST", "/v1/beats", "["+strings.Join(body, ",")+"]"); status != 200 && status != 202 {
						return fmt.Errorf("%d %s", status, text)
					}
					return nil
				})
				mu.Lock()
				defer mu.Unlock()
				want, most = want+sources, most+attempts*sources
			})
		}
		all.Wait()
		for _, one := range m.All() {
			if one.Exited() {
				t.Errorf("%s has ended", one.Name)
			}
		}
		m.Stop()
	}
	records, beats := m.Sources("many"), int64(0)
	for _, r := range records {
		beats += r.Beats
	}
	if len(records) != 2*sources || beats < want || beats > most {
		t.Errorf("%d sources with %d beats; want %d with %d to %d", len(records), beats, 2*sources, want, most)
	}
}

// monitorEqualIDs gives every instance the process id 1, as containers have it.
func monitorEqualIDs(t *testing.T, p fault.Programs, db fault.Database) {
	realserver.NeedRoot(t, "a process namespace")
	m := fault.NewMonitors(t, fault.MonitorsConfig{Programs: p, Database: db, Sinks: sinksOf(t, 1), Options: []string{"--event", hbConfig},
		Wrap: []string{"unshare", "--pid", "--fork", "--kill-child"}}, instances(2)...)
	m.Start()
	o, err := m.Table().Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	active := 0
	for _, member := range o.Members {
		if member.Process != 1 {
			t.Errorf("%s has the process id %d", member.Instance.Name, member.Process)
		}
		if member.Active {
			active++
		}
	}
	if len(o.Members) != 2 || active > 1 {
		t.Errorf("%d members, %d of them active", len(o.Members), active)
	}
	b := beaterOf(m, 6, 0)
	hear := inBackground(b)
	b.Heard(t, 2*patience)
	hear()
	m.Named("m1").Kill()
	b.Await(t, 2*patience, true)
	m.Delivered(2 * patience)
	m.Named("m2").Kill()
	m.Start() // with the same ids again
	hear = inBackground(b)
	b.Await(t, 2*patience, false)
	monitorJudged(t, fault.JudgeMonitor(b.Evidence(t, 2*patience)))
	hear()
	for _, one := range m.All() {
		one.Kill() // who stops it in order would only stop what holds the namespace
	}
}

// monitorStepped steps the clock of the store's server by hours, both ways, under load.
func monitorStepped(t *testing.T, p fault.Programs, db fault.Database) {
	m := monitorsOf(t, p, db, 2, 1)
	m.Start()
	b := beaterOf(m, 8, 0)
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { b.All(ctx); close(over) }()
	for _, to := range []time.Duration{time.Hour, -time.Hour, 0, 61 * time.Second, 0} {
		db.Server.Step(t, to)
		<-time.After(hbLimit + time.Second)
	}
	stop()
	<-over
	beats, _ := b.Beats()
	for _, one := range m.All() {
		if one.Exited() {
			t.Errorf("%s has ended", one.Name)
		}
	}
	for _, a := range m.Alarms() {
		// A machine that is busy may have kept it from beating.
		if quiet := longestQuiet(beats, a.Source); quiet < hbLimit {
			t.Errorf("%s was never quiet for more than %v, and an alarm was raised", a.Source, quiet)
		}
	}
	b.Await(t, 2*patience, true)
	ctx, stop = context.WithCancel(t.Context())
	over = make(chan struct{})
	go func() { b.All(ctx); close(over) }()
	b.Await(t, 2*patience, false)
	m.Stop()
	stop()
	<-over
}

// longestQuiet is the longest time that a source was without a stored beat.
func longestQuiet(beats []fault.Beaten, source string) (most time.Duration) {
	var last time.Time
	for _, b := range beats {
		if b.Source != source || !b.Stored {
			continue
		}
		if !last.IsZero() {
			most = max(most, b.Answered.Sub(last))
		}
		last = b.Sent
	}
	return most
}

//go:build linux

package fault

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/monitor"
)

// Beater is sources that beat over HTTP, each by itself: at any instance, and at
// another if that does not answer. It remembers every attempt.
type Beater struct {
	Monitors *Monitors
	Event    string
	// Interval and Limit of the event.
	Interval, Limit time.Duration
	// Steady sources always beat; Sick ones fall silent until their alarm is at every
	// sink, and beat until it is over there; Edgy ones wait about as long as they may.
	Steady, Sick, Edgy int
	Seed               uint64

	log    beatLog
	mu     sync.Mutex
	cycles map[string]int // outages of each sick source that were seen from end to end
}

// beatLog is every attempt to send a heartbeat.
type beatLog struct {
	mu    sync.Mutex
	beats []Beaten
}

// send notes an attempt, from its beginning: what it does may be seen before its answer.
func (l *beatLog) send(source string, stored func() bool) bool {
	l.mu.Lock()
	n := len(l.beats)
	l.beats = append(l.beats, Beaten{Source: source, Sent: time.Now()})
	l.mu.Unlock()
	well := stored()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beats[n].Answered, l.beats[n].Stored = time.Now(), well
	return well
}

// all attempts so far, those without an answer yet too.
func (l *beatLog) all() []Beaten {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.beats)
}

// attemptTimeout is how long a sender waits for an answer.
const attemptTimeout = time.Second

// Names of all its sources.
func (b *Beater) Names() (all []string) {
	for kind, n := range map[string]int{"steady": b.Steady, "sick": b.Sick, "edgy": b.Edgy} {
		for i := range n {
			all = append(all, fmt.Sprintf("%s-%d", kind, i))
		}
	}
	slices.Sort(all)
	return all
}

// Run beats until the context ends.
func (b *Beater) Run(ctx context.Context) {
	var all sync.WaitGroup
	for i, name := range b.Names() {
		random := rand.New(rand.NewPCG(b.Seed, uint64(i)))
		all.Go(func() {
			switch name[:4] {
			case "sick":
				b.sick(ctx, name, random)
			case "edgy":
				b.every(ctx, name, random, func() time.Duration { return b.Limit*7/10 + time.Duration(random.Int64N(int64(b.Limit*6/10))) })
			default:
				b.every(ctx, name, random, func() time.Duration { return b.Interval })
			}
		})
	}
	all.Wait()
}

// All has every source beat until the context ends.
func (b *Beater) All(ctx context.Context) {
	var all sync.WaitGroup
	for i, name := range b.Names() {
		random := rand.New(rand.NewPCG(b.Seed+1, uint64(i)))
		all.Go(func() { b.every(ctx, name, random, func() time.Duration { return b.Interval }) })
	}
	all.Wait()
}

func (b *Beater) every(ctx context.Context, name string, random *rand.Rand, next func() time.Duration) {
	for ctx.Err() == nil {
		begun := time.Now()
		b.Beat(ctx, name, random)
		pass(ctx, next()-time.Since(begun))
	}
}

// sick has outages, one after the other, each of which waits for all that must come
// of it.
func (b *Beater) sick(ctx context.Context, name string, random *rand.Rand) {
	heard := false // of a source that no instance has heard of, no sink is told
	for ctx.Err() == nil {
		for left := 2 + random.IntN(4); ctx.Err() == nil && (left > 0 || !heard); left-- {
			heard = b.Beat(ctx, name, random) || heard
			pass(ctx, b.Interval)
		}
		for ctx.Err() == nil && !b.stands(name, true) {
			pass(ctx, 20*time.Millisecond)
		}
		for ctx.Err() == nil && b.stands(name, false) {
			b.Beat(ctx, name, random)
			pass(ctx, b.Interval)
		}
		if ctx.Err() == nil {
			b.mu.Lock()
			if b.cycles == nil {
				b.cycles = map[string]int{}
			}
			b.cycles[name]++
			b.mu.Unlock()
		}
	}
}

// stands reports whether a source's alarm stands at all sinks, or at any.
func (b *Beater) stands(name string, everywhere bool) bool {
	for _, s := range b.Monitors.Sinks {
		if s.Stands(name) != everywhere {
			return !everywhere
		}
	}
	return everywhere
}

// Beat sends a beat to one instance after the other until it is stored.
func (b *Beater) Beat(ctx context.Context, name string, random *rand.Rand) (stored bool) {
	for _, i := range random.Perm(len(b.Monitors.all)) {
		if ctx.Err() != nil {
			return false
		}
		if b.at(b.Monitors.all[i], name) {
			return true
		}
	}
	return false
}

func (b *Beater) at(one *Monitor, name string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	return b.log.send(name, func() bool {
		status, _ := one.ask(ctx, "POST", "/v1/beats", fmt.Sprintf(`{"event":%q,"source":%q}`, b.Event, name))
		return status == 200 || status == 202
	})
}

// Heard waits until a beat of each source was stored.
func (b *Beater) Heard(tb testing.TB, within time.Duration) {
	tb.Helper()
	realserver.Eventually(tb, within, "all are heard", func() error {
		if n := len(b.Monitors.Sources(b.Event)); n < len(b.Names()) {
			return fmt.Errorf("%d of %d", n, len(b.Names()))
		}
		return nil
	})
}

// Beats are all attempts so far, those without an answer yet too, and how many outages were seen from end to end.
func (b *Beater) Beats() ([]Beaten, int) {
	n := 0
	for _, more := range b.Cycles() {
		n += more
	}
	return b.log.all(), n
}

// Cycles is how many outages of each sick source were seen from end to end.
func (b *Beater) Cycles() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.cycles)
}

// Stalled are the sick sources of which no outage was seen from end to end since those.
func (b *Beater) Stalled(since map[string]int) []string {
	now := b.Cycles()
	return slices.DeleteFunc(b.Names(), func(name string) bool { return !strings.HasPrefix(name, "sick") || now[name] > since[name] })
}

// RollCall has all sources fall silent until every sink knows, and then beat until
// every sink knows that. It returns all that there is to judge then, and stops the instances.
func (b *Beater) RollCall(tb testing.TB, within time.Duration) MonitorEvidence {
	tb.Helper()
	b.Await(tb, within, true)
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { b.All(ctx); close(over) }()
	defer func() { stop(); <-over }()
	b.Await(tb, within, false)
	e := b.Evidence(tb, within)
	b.Monitors.Stop()
	return e
}

// Await waits until the alarms of all sources stand at all sinks, or none at any.
func (b *Beater) Await(tb testing.TB, within time.Duration, standing bool) {
	tb.Helper()
	realserver.Eventually(tb, within, fmt.Sprintf("the alarms stand: %t", standing), func() error {
		for _, s := range b.Monitors.Sinks {
			for _, name := range b.Names() {
				if s.Stands(name) != standing {
					return fmt.Errorf("that of %s does not, at %s, which was told %d things", name, s.URL, len(s.Told()))
				}
			}
		}
		return nil
	})
}

// Evidence is all that there is to judge while all sources beat, at a moment at which
// nothing is left to tell.
func (b *Beater) Evidence(tb testing.TB, within time.Duration) (e MonitorEvidence) {
	tb.Helper()
	e = MonitorEvidence{Limit: b.Limit, Linger: time.Minute, Well: b.Names()}
	realserver.Eventually(tb, within, "all is told, and stays so", func() error {
		e.Alarms, e.Sinks = b.alarms(), nil
		b.Monitors.Delivered(within)
		for _, s := range b.Monitors.Sinks {
			e.Sinks = append(e.Sinks, slices.DeleteFunc(s.Told(), func(t Told) bool { return t.Event != b.Event }))
		}
		e.Beats, _ = b.Beats()
		if now := b.alarms(); !slices.EqualFunc(e.Alarms, now, func(a, b monitor.Alarm) bool { return a.ID == b.ID && a.Ended.Equal(b.Ended) }) {
			return fmt.Errorf("there are %d alarms, after %d", len(now), len(e.Alarms))
		}
		if i := slices.IndexFunc(e.Alarms, func(a monitor.Alarm) bool { return a.Ended.IsZero() }); i >= 0 {
			return fmt.Errorf("that of %s stands", e.Alarms[i].Source)
		}
		return nil
	})
	return e
}

func (b *Beater) alarms() []monitor.Alarm {
	return slices.DeleteFunc(b.Monitors.Alarms(), func(a monitor.Alarm) bool { return a.Check != b.Event })
}

func pass(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(max(d, 0)):
	}
}

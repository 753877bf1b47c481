package sim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// afterwards is how long after its sender gave up a beat may be stored.
const afterwards = 15 * time.Second

// monitorSource is one source, and all who send its beats.
type monitorSource struct {
	world *monitorWorld
	dice  *dice
	ref   monitor.SourceRef
	path  string
	event monitor.Check // as it was at first
	says  bool          // when it sent what
	wrong time.Duration // by which its clock is
	every time.Duration

	mu   sync.Mutex
	seq  int64
	last monitor.Heartbeat
}

func (w *monitorWorld) newSource(ref monitor.SourceRef, path string) *monitorSource {
	w.streams++
	d := newDice(w.setup.Seed, 1000+w.streams)
	i := slices.IndexFunc(w.setup.Checks, func(e monitor.Check) bool { return e.Name == ref.Check })
	s := &monitorSource{world: w, dice: d, ref: ref, path: path, event: w.setup.Checks[i].WithDefaults(), says: d.hit(0.6)}
	s.every = s.event.Interval
	if s.event.Schedule != "" {
		s.every = 4 * time.Second
	}
	switch {
	case s.event.SenderClock:
		s.wrong = []time.Duration{0, 0, 5 * time.Hour}[d.n(3)]
	case d.hit(0.5):
		s.wrong = d.upTo(20*time.Hour) - 10*time.Hour
	}
	return s
}

// live sends beats, or does not, until the run has ended.
func (s *monitorSource) live() {
	w := s.world
	w.sleep(s.dice.upTo(s.every))
	for !w.over() {
		if w.well.Load() {
			s.send(monitor.SignalSuccess)
			w.sleep(s.dice.between(s.every*7/10, s.every*9/10))
			continue
		}
		switch s.dice.n(8) {
		case 0, 1, 2:
			for range 3 + s.dice.n(10) {
				s.send(monitor.SignalSuccess)
				w.sleep(s.dice.between(s.every*7/10, s.every))
			}
		case 3:
			s.send(monitor.SignalFail)
			w.sleep(s.dice.upTo(4 * s.every))
		case 4:
			s.run()
		default:
			s.beSilent(s.dice.between(s.every, 3*s.limit()+w.setup.First+4*time.Second))
		}
	}
}

func (s *monitorSource) limit() time.Duration {
	if s.event.Schedule != "" {
		return 20 * time.Second
	}
	return s.event.Interval*time.Duration(s.event.Missed) + s.event.Grace
}

func (s *monitorSource) run() {
	if s.event.MaxRun == 0 {
		return
	}
	s.send(monitor.SignalStart)
	for end := time.Now().Add(s.dice.upTo(2 * s.event.MaxRun)); time.Now().Before(end) && !s.world.over(); {
		s.world.sleep(min(s.every, time.Until(end)))
	}
	if s.dice.hit(0.7) {
		s.send([]monitor.Signal{monitor.SignalSuccess, monitor.SignalSuccess, monitor.SignalFail}[s.dice.n(3)])
	}
}

// beSilent sends nothing new.
func (s *monitorSource) beSilent(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && !s.world.well.Load() && !s.world.over(); {
		s.world.sleep(min(s.every, time.Until(end)))
		s.mu.Lock()
		last := s.last
		s.mu.Unlock()
		if s.world.setup.Replays && s.says && last.Source != "" && s.dice.hit(0.8) {
			s.deliver(last, true)
		}
	}
}

// send sends one beat: at once, late, twice, or not at all.
func (s *monitorSource) send(signal monitor.Signal) {
	w, b := s.world, monitor.Heartbeat{Check: s.ref.Check, Source: s.ref.Source, Signal: signal}
	s.mu.Lock()
	if s.says {
		s.seq++
		b.Seq, b.Sent = s.seq, time.Now().Add(s.wrong)
		if s.event.SenderClock {
			b.Sent = w.wall().Add(s.wrong)
		}
	}
	if signal != monitor.SignalStart {
		s.last = b
	}
	s.mu.Unlock()
	if w.calm.Load() {
		s.deliver(b, false)
		return
	}
	switch {
	case s.dice.hit(0.03): // lost
	case s.dice.hit(0.1):
		w.senders.Go(func() {
			w.sleep(s.dice.upTo(s.every))
			s.deliver(b, false)
		})
	default:
		s.deliver(b, false)
	}
	if w.setup.Replays && s.says && s.dice.hit(0.1) {
		w.senders.Go(func() {
			w.sleep(s.dice.upTo(2 * s.every))
			s.deliver(b, true)
		})
	}
}

// deliver hands a beat over, and tries another instance if one does not take it.
func (s *monitorSource) deliver(b monitor.Heartbeat, again bool) {
	if s.path == "router" {
		s.world.router.publish(routed{s, b, again})
		return
	}
	w := s.world
	note := w.judge.sends(s, b, again)
	horizon := time.Time{}
	for range 3 {
		_, n := w.anybody(s.dice)
		if n == nil || !n.running() {
			w.sleep(100 * time.Millisecond)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		outcomes, err := n.http.Record(ctx, []monitor.Heartbeat{b})
		cancel()
		if err == nil && n.running() {
			w.judge.answered(note, outcomes[0])
			return
		}
		horizon = time.Now().Add(afterwards)
		late := time.Time{}
		if n.cut.Load() {
			late = time.Unix(0, n.heals.Load()).Add(lateBy) // it waits to store others, too
		}
		if !n.running() {
			horizon, late = n.frozenUntil().Add(afterwards), n.frozenUntil().Add(lateBy)
		}
		w.judge.tries(note, n, late)
	}
	w.judge.unanswered(note, horizon)
}

// frozenUntil is when it continues, or now.
func (n *monitorNode) frozenUntil() time.Time {
	n.gate.mu.Lock()
	defer n.gate.mu.Unlock()
	if until := n.gate.until; until.After(time.Now()) {
		return until
	}
	return time.Now()
}

// router is a message router: it keeps what was published until someone consumes
// it, once.
type router struct {
	mu    sync.Mutex
	queue []routed
	down  time.Time // it is down from then on …
	until time.Time // … to then
}

type routed struct {
	from  *monitorSource
	beat  monitor.Heartbeat
	again bool
}

func (r *router) publish(m routed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Now().After(r.until) { // otherwise it is lost
		r.queue = append(r.queue, m)
	}
}

// proveWithin is how long after the router's answer it proves anything, as in package intake.
const proveWithin = 2 * time.Second

var errRouterDown = errors.New("sim: the router is down")

func (r *router) poll() ([]routed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !time.Now().After(r.until) {
		return nil, errRouterDown
	}
	got := r.queue
	r.queue = nil
	return got, nil
}

// consume is what an instance does at the router: it stores what it got before it
// asks for more, and proves the path when it has it all.
func (r *router) consume(ctx context.Context, n *monitorNode) {
	for ctx.Err() == nil {
		n.gate.wait()
		got, err := r.poll()
		answered := n.clock.Now()
		n.gate.wait()
		for err == nil && len(got) > 0 && ctx.Err() == nil {
			if r.take(ctx, n, got) {
				break
			}
			n.pause(ctx, 200*time.Millisecond)
		}
		if left := proveWithin - (n.clock.Now() - answered); err == nil && left > 0 {
			call, cancel := context.WithTimeout(ctx, left)
			_ = n.router.RecordProbe(call) // the next poll does
			cancel()
		}
		n.pause(ctx, n.dice.between(routerPoll/2, routerPoll))
	}
}

// take stores messages, and reports whether they are.
func (r *router) take(ctx context.Context, n *monitorNode, got []routed) bool {
	beats := make([]monitor.Heartbeat, len(got))
	notes := make([]*sending, len(got))
	for i, m := range got {
		beats[i], notes[i] = m.beat, n.world.judge.sends(m.from, m.beat, m.again)
	}
	call, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	outcomes, err := n.router.Record(call, beats)
	for i, note := range notes {
		if err == nil && !n.dead.Load() {
			n.world.judge.answered(note, outcomes[i])
		} else {
			n.world.judge.unanswered(note, n.frozenUntil().Add(afterwards))
		}
	}
	return err == nil
}

// pause waits on the node's own clock.
func (n *monitorNode) pause(ctx context.Context, d time.Duration) {
	timer, stop := n.clock.Timer(d)
	defer stop()
	select {
	case <-ctx.Done():
	case <-timer:
	}
}

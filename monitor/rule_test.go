package monitor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// action is what happens in a history, at a millisecond.
type action struct {
	at   int
	kind string
	n    int
}

// history is what happens to one source of an event.
type history struct {
	e   Check
	all []action
	end int
}

// randomHistory is of a source that dies and comes back, pauses and fails, under a
// monitor that is blind at times.
func randomHistory(seed uint64) history {
	r := rand.New(rand.NewPCG(seed, 7))
	ms := func(from, to int) time.Duration {
		return time.Duration(from+r.IntN(to-from+1)) * time.Millisecond
	}
	h := history{e: Check{Name: "e", Interval: ms(1000, 4000), Missed: 1 + r.IntN(4), Grace: ms(0, 1500)}, end: 180_000}
	if r.IntN(3) == 0 {
		h.e.Flaps, h.e.FlapWindow, h.e.Steady = 1+r.IntN(3), MaxInterval, ms(1000, 30_000)
	}
	h.e = h.e.WithDefaults()
	var (
		interval      = int(h.e.Interval.Milliseconds())
		limit         = int(h.e.FixedLimit().Milliseconds())
		next          = r.IntN(2 * limit)
		blind, paused bool
		alive         = true
	)
	for at := 1; at < h.end; at += 1 + r.IntN(interval) {
		add := func(kind string, n int) { h.all = append(h.all, action{at, kind, n}) }
		switch x := r.IntN(60); {
		case x < 4 && !blind:
			add("blind", 0)
			blind = true
		case x < 24 && blind:
			add("see", 0)
			blind = false
		case x == 24 && !blind && h.e.Flaps == 0:
			n := r.IntN(2 * limit)
			add("step", n)
			at += n
		case x == 25 && h.e.Flaps == 0:
			add(map[bool]string{true: "resume", false: "pause"}[paused], 0)
			paused = !paused
		case x < 30 && paused:
			add("resume", 0)
			paused = false
		case x == 30 && h.e.Missed > 1 && (!blind || h.e.Flaps == 0): // what was seen then is silent by now
			add("retime", 0)
			h.e.Missed-- // once: put back below
		case x < 33:
			alive = false
		case x < 40:
			alive = true
		case at >= next && alive:
			// A beat that nobody can take in is lost.
			if next = at + interval*(70+r.IntN(45))/100; !blind {
				add([]string{"beat", "beat", "beat", "beat", "beat", "fail"}[r.IntN(6)], 0)
			}
		}
	}
	for _, a := range h.all {
		if a.kind == "retime" {
			h.e.Missed++
		}
	}
	return h
}

// play lets the rule judge a history.
func (h history) play(judge func(*Check, Facts) Evaluation) []turned {
	w := newWorld(h.e, judge)
	w.due = w.now
	for _, a := range h.all {
		w.until(start.Add(time.Duration(a.at) * time.Millisecond))
		switch a.kind {
		case "beat":
			w.beat(SignalSuccess, 0)
		case "fail":
			w.beat(SignalFail, 0)
		case "blind":
			w.blind()
		case "see":
			w.see()
			w.due = w.now // or it may be found later; see the scripts
		case "step":
			w.blind()
			w.now = w.now.Add(time.Duration(a.n) * time.Millisecond)
			w.anew = true
			w.see()
			w.due = w.now
		case "pause":
			w.f.State, w.due = Paused, Never
		case "resume":
			w.resume()
		case "retime":
			e := w.e
			e.Missed--
			w.configure(e)
		}
		w.until(w.now)
	}
	w.until(start.Add(time.Duration(h.end) * time.Millisecond))
	return w.turns
}

// oracle is the documentation, counted millisecond by millisecond.
type oracle struct {
	interval, limit, grace, steady int
	flaps, onsets                  int

	beaten      bool
	beat        int // when
	quiet       int // since the last beat, as far as the path was not blind
	blindTime   int // and as far as it was
	base, event int // since when silence counts
	resumed     int // since when the path sees, if it was blind since the last beat
	wasBlind    bool
	blind       bool
	paused      bool
	failing     bool
	alarm, well bool
	since       int // when it became well
	turns       []turned
}

func (o *oracle) turn(t Transition, r Reason, at int) {
	o.turns = append(o.turns, turned{Turn: t, Reason: r, At: start.Add(time.Duration(at) * time.Millisecond)})
	o.alarm, o.well = t == Onset, false
	if t == Onset {
		o.onsets++
	}
}

// silent reports whether the path was seen to work past all that the source is allowed.
func (o *oracle) silent(now int) bool {
	base := max(o.base, o.event)
	if o.alarm { // and what stands is given no new start
		base = 0
	}
	quiet, after := o.quiet, o.interval+o.grace
	switch {
	case !o.beaten:
		// Nobody knows by which path it would have come: a limit since all of it saw.
		return !o.blind && now-max(base, o.resumed) > o.limit
	case o.beat < base:
		// It is not known how much of the blind time came before, either.
		quiet, after = now-base-min(o.blindTime, max(0, o.resumed-base)), o.limit
	}
	excused := o.wasBlind && now-o.resumed <= after && quiet <= o.limit+after
	return !o.blind && quiet > o.limit && !excused
}

// tick is one millisecond.
func (o *oracle) tick(now int) {
	if !o.blind {
		o.quiet++
	} else {
		o.blindTime++
	}
	switch {
	case o.alarm && o.well && o.silent(now):
		o.well = false
	case o.alarm && o.well && now-o.since >= o.steady:
		o.turn(Abated, "", now)
	case !o.alarm && !o.paused && o.silent(now):
		o.turn(Onset, Silent, now-1)
	}
}

func (o *oracle) happens(a action, now int) {
	switch a.kind {
	case "beat", "fail":
		o.beaten, o.beat, o.quiet, o.blindTime, o.wasBlind, o.failing = true, now, 0, 0, false, a.kind == "fail"
		switch {
		case o.failing && o.alarm:
			o.well = false
		case o.failing && !o.paused:
			o.turn(Onset, Failed, now)
		case o.alarm && o.flaps > 0 && o.onsets >= o.flaps:
			if !o.well {
				o.well, o.since = true, now
			}
		case o.alarm:
			o.turn(Abated, "", now)
		}
	case "blind":
		o.blind = true
	case "see":
		o.blind, o.wasBlind, o.resumed = false, true, now
	case "pause":
		o.paused = true
	case "resume":
		o.paused, o.base = false, now
	case "retime":
		o.limit -= o.interval
		o.event = now
	}
}

func (h history) expect() []turned {
	ms := func(d time.Duration) int { return int(d.Milliseconds()) }
	// The path was proven first as the history starts: it counts as blind before.
	o := oracle{
		interval: ms(h.e.Interval), limit: ms(h.e.FixedLimit()), grace: ms(h.e.Grace), steady: ms(h.e.Steady), flaps: h.e.Flaps,
		wasBlind: true,
	}
	todo := h.all
	skip := 0
	for now := 1; now <= h.end; now++ {
		o.tick(now)
		if skip > 0 {
			if skip--; skip == 0 {
				o.happens(action{kind: "see"}, now)
			}
		}
		for len(todo) > 0 && todo[0].at == now {
			a := todo[0]
			todo = todo[1:]
			if a.kind != "step" {
				o.happens(a, now)
				continue
			}
			o.happens(action{kind: "blind"}, now)
			if skip = a.n; skip == 0 {
				o.happens(action{kind: "see"}, now)
			}
		}
	}
	return o.turns
}

// compare tells where a rule departs from the documentation.
func (h history) compare(judge func(*Check, Facts) Evaluation) string {
	got, want := h.play(judge), h.expect()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Sprintf("nothing is found; want %s %s at %v", want[i].Turn, want[i].Reason, want[i].At.Sub(start))
		case i >= len(want):
			return fmt.Sprintf("%s %s at %v, found at %v; want nothing", got[i].Turn, got[i].Reason, got[i].At.Sub(start), got[i].Found.Sub(start))
		}
		g, w := got[i], want[i]
		if g.Turn != w.Turn || g.Reason != w.Reason || g.At != w.At {
			return fmt.Sprintf("%s %s at %v; want %s %s at %v", g.Turn, g.Reason, g.At.Sub(start), w.Turn, w.Reason, w.At.Sub(start))
		}
		late := g.Found.Sub(g.At)
		if g.Reason == Silent && late <= 0 || late > time.Millisecond || late < 0 {
			return fmt.Sprintf("%s %s at %v is found at %v", g.Turn, g.Reason, g.At.Sub(start), g.Found.Sub(start))
		}
	}
	return ""
}

// TestRuleOracle: whatever happens, the rule finds what the documentation says, when
// it says it.
func TestRuleOracle(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	turns := 0
	for i := range uint64(150) {
		h := randomHistory(seed + i)
		if wrong := h.compare(Judge); wrong != "" {
			t.Fatalf("seed %d: %s\n%+v\n%v", seed+i, wrong, h.e, h.all)
		}
		turns += len(h.expect())
	}
	if turns < 400 {
		t.Errorf("only %d turns in 150 histories: they are too quiet to tell anything", turns)
	}
}

// TestBrokenRules: rules that are wrong about one thing are found, in few histories.
func TestBrokenRules(t *testing.T) {
	facts := func(change func(*Facts)) func(*Check, Facts) Evaluation {
		return func(e *Check, f Facts) Evaluation {
			change(&f)
			return e.Evaluate(f)
		}
	}
	event := func(change func(*Check)) func(*Check, Facts) Evaluation {
		return func(e *Check, f Facts) Evaluation {
			twin := *e
			change(&twin)
			return twin.Evaluate(f)
		}
	}
	for name, twin := range map[string]func(*Check, Facts) Evaluation{
		"blind time is not given back": facts(func(f *Facts) { f.BlindAtBeat = f.Path.BlindTotal }),
		"no interval after it was blind": facts(func(f *Facts) {
			if f.LastBeat != 0 {
				f.LastBeat = f.LastBeat.Add(f.Path.BlindTotal - f.BlindAtBeat)
			}
			f.BlindAtBeat, f.Path.BlindUntil = f.Path.BlindTotal, 0
		}),
		"a path that drops out hides all": func(e *Check, f Facts) Evaluation {
			v := e.Evaluate(f)
			if again := f.Path.BlindUntil.Add(e.Interval + e.Grace); v.Reason == Silent && f.LastBeat < f.Path.BlindUntil && again >= f.Now {
				return Evaluation{Due: again + 1}
			}
			return v
		},
		"blind by now is not seen":           facts(func(f *Facts) { f.Path.LastSeen = f.Now }),
		"at the limit, not after it":         facts(func(f *Facts) { f.Now++; f.Path.LastSeen++ }),
		"the base is forgotten":              facts(func(f *Facts) { f.ExpectedFrom = 0 }),
		"the change of timing is forgotten":  facts(func(f *Facts) { f.CheckChanged = 0 }),
		"a change of timing is a sign":       facts(func(f *Facts) { f.LastBeat = max(f.LastBeat, f.CheckChanged) }),
		"being resumed is a sign":            facts(func(f *Facts) { f.LastBeat = max(f.LastBeat, f.ExpectedFrom) }),
		"being blind is a sign":              facts(func(f *Facts) { f.OnsetAt = min(f.OnsetAt, f.LastBeat) }),
		"pauses are ignored":                 facts(func(f *Facts) { f.State = Up }),
		"failures are ignored":               facts(func(f *Facts) { f.Failing = false }),
		"failures are never over":            facts(func(f *Facts) { f.Failing = f.Failing || f.Reason == Failed }),
		"flaps are ignored":                  event(func(e *Check) { e.Flaps = 0 }),
		"one flap fewer is enough":           facts(func(f *Facts) { f.RecentOnsets++ }),
		"steady is ignored":                  event(func(e *Check) { e.Steady = 0 }),
		"silence does not begin steady anew": wellStays(),
		"grace is ignored":                   event(func(e *Check) { e.Grace = 0 }),
		"one more may be missed":             event(func(e *Check) { e.Missed++ }),
		"alarms never end":                   facts(func(f *Facts) { f.LastBeat = min(f.LastBeat, f.OnsetAt-1) }),
		"it is told twice":                   facts(func(f *Facts) { f.Alarm = "" }),
	} {
		found := ""
		for seed := range uint64(300) {
			h := randomHistory(seed)
			h.end, h.all = 60_000, slices.DeleteFunc(h.all, func(a action) bool { return a.at+a.n >= 60_000 })
			if found = caught(func() string { return h.compare(twin) }); found != "" {
				break
			}
		}
		if found == "" {
			t.Errorf("%s: 300 histories do not show it", name)
		}
	}
}

// wellStays is a rule that does not notice silence in between.
func wellStays() func(*Check, Facts) Evaluation {
	return func(e *Check, f Facts) Evaluation {
		v := e.Evaluate(f)
		if v.Transition == NoTransition && v.WellSince == 0 && f.Alarm != "" {
			v.WellSince = f.WellSince
		}
		return v
	}
}

// caught also takes a rule for wrong that never comes to an end.
func caught(run func() string) (wrong string) {
	defer func() {
		if r := recover(); r != nil {
			wrong = fmt.Sprint(r)
		}
	}()
	return run()
}

package monitor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/script"
)

// TestScripts replays testdata/*.txt through the rule. "-- name | settings" begins a
// new source of an event with these settings, whose path works. A line that starts
// with "> " says when, and what happens then; the turns of the source follow,
// each with when it was found and since when it is so.
func TestScripts(t *testing.T) {
	script.Transcripts(t, "testdata/*.txt", scripted(Judge))
}

// scripted plays a section by a rule.
func scripted(judge func(*Check, Facts) Evaluation) script.Begin {
	return func(t *testing.T, header string) script.Play {
		var found []string
		w := newWorld(scriptedEvent(t, header), judge)
		w.found = func(s string) { found = append(found, s) }
		return func(in script.Input) (before, after []string) {
			at, err := time.ParseDuration(in.Words[0])
			if err != nil {
				t.Fatalf("%s: %v", in.Where, err)
			}
			if in.Words[1] == "race" { // before anybody looks
				at -= time.Microsecond
			}
			w.until(start.Add(at))
			before, found = found, nil
			w.happens(t, in.Words[1:])
			w.until(w.now)
			after, found = found, nil
			return before, after
		}
	}
}

// TestScriptsCatch: rules that are wrong about what histories do not have are found
// by the scripts.
func TestScriptsCatch(t *testing.T) {
	facts := func(change func(*Check, *Facts)) func(*Check, Facts) Evaluation {
		return func(e *Check, f Facts) Evaluation {
			twin := *e
			change(&twin, &f)
			return twin.Evaluate(f)
		}
	}
	for name, twin := range map[string]func(*Check, Facts) Evaluation{
		"trust is ignored":               facts(func(_ *Check, f *Facts) { f.Path.TrustFor = 0 }),
		"proofs are ignored":             facts(func(_ *Check, f *Facts) { f.Path.LastSeen = f.Now }),
		"the gap is ignored":             facts(func(_ *Check, f *Facts) { f.Path.MaxGap = 0 }),
		"blind time of schedules counts": facts(func(e *Check, f *Facts) { f.Path.BlindUntil *= StoreTime(min(e.Interval, 1)) }),
		"grace of schedules is ignored":  facts(func(e *Check, _ *Facts) { e.Grace *= min(e.Interval, 1) }),
		"one time missed is enough":      facts(func(e *Check, _ *Facts) { e.Missed = 1 }),
		"zones are ignored":              facts(func(e *Check, _ *Facts) { e.Schedule = strings.TrimPrefix(e.Schedule, "TZ=Europe/Berlin ") }),
		"runs never end":                 facts(func(e *Check, _ *Facts) { e.MaxRun = 0 }),
		"runs that may have ended count": facts(func(_ *Check, f *Facts) { f.RunStarted = max(f.RunStarted, min(f.RunStarted, 1)*f.Path.BlindUntil) }),
		"a run that begins is a sign":    facts(func(_ *Check, f *Facts) { f.Reason = Silent }),
		"a longer limit is no reason": facts(func(_ *Check, f *Facts) {
			f.Failing = f.Failing || f.Alarm != "" && f.LastBeat < f.OnsetAt
		}),
		"nobody is retired":             facts(func(e *Check, _ *Facts) { e.RetireAfter = 0 }),
		"retired although it was blind": facts(func(_ *Check, f *Facts) { f.BlindAtBeat, f.Path.BlindUntil = f.Path.BlindTotal, 0 }),
		"the paused are retired": facts(func(_ *Check, f *Facts) {
			if f.State == Paused && f.Alarm != "" {
				f.State = Down
			}
		}),
		"paused events retire":              facts(func(e *Check, f *Facts) { e.Paused = e.Paused && f.Alarm == "" }),
		"paused events are judged":          facts(func(e *Check, _ *Facts) { e.Paused = false }),
		"pauses last for ever":              facts(func(_ *Check, f *Facts) { f.PausedUntil = 0 }),
		"what failed in a pause counts":     facts(func(_ *Check, f *Facts) { f.ExpectedFrom = min(f.ExpectedFrom, max(f.LastBeat, 1)) }),
		"nobody asks":                       facts(func(_ *Check, f *Facts) { f.RetireRequested = false }),
		"nobody returns":                    facts(func(_ *Check, f *Facts) { f.RetiredAt *= 2 }),
		"events are not removed":            facts(func(_ *Check, f *Facts) { f.Removed = false }),
		"the flap window is ignored":        facts(func(e *Check, f *Facts) { f.RecentOnsets = 0 }),
		"the resumed are retired at once":   facts(func(e *Check, f *Facts) { f.ExpectedFrom = min(f.ExpectedFrom, max(f.OnsetAt, 1)) }),
		"a change begins nothing anew":      facts(func(_ *Check, f *Facts) { f.CheckChanged = 0 }),
		"the declared are overdue at once":  facts(func(_ *Check, f *Facts) { f.ExpectedFrom = 0; f.Path.BlindUntil *= min(f.LastBeat, 1) }),
		"looks that find nothing are often": often,
	} {
		found := false
		files, _ := filepath.Glob("testdata/*.txt")
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			wrong := caught(func() string {
				if got := script.Replay(t, file, string(text), scripted(twin)); got != string(text) {
					return "another end"
				}
				return ""
			})
			found = found || wrong != ""
		}
		if !found {
			t.Errorf("%s: no script shows it", name)
		}
	}
}

// often is a rule that has sources looked at all the time.
func often(e *Check, f Facts) Evaluation {
	v := e.Evaluate(f)
	if v.Transition == NoTransition && f.Path.LastSeen < f.Now {
		v.Due = f.Now + 1
	}
	return v
}

func scriptedEvent(t *testing.T, header string) Check {
	e := Check{Name: "e", Interval: 10 * time.Second}
	_, settings, _ := strings.Cut(header, "|")
	before, schedule, scheduled := strings.Cut(settings, "schedule=")
	if scheduled {
		e.Interval, e.Schedule = 0, strings.TrimSpace(schedule)
	}
	set(t, &e, strings.Fields(before))
	e = e.WithDefaults()
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	return e
}

func set(t *testing.T, e *Check, words []string) {
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		n, _ := strconv.Atoi(value)
		d, _ := time.ParseDuration(value)
		switch key {
		case "interval":
			e.Interval = d
		case "missed":
			e.Missed = n
		case "grace":
			e.Grace = d
		case "max-run":
			e.MaxRun = d
		case "retire-after":
			e.RetireAfter = d
		case "sender-clock":
			e.SenderClock = true
		case "flaps":
			e.Flaps = n
		case "flap-window":
			e.FlapWindow = d
		case "steady":
			e.Steady = d
		default:
			t.Fatalf("setting %q", word)
		}
	}
}

// Judge is the rule as a function, which tests replace by broken ones.
func Judge(e *Check, f Facts) Evaluation { return e.Evaluate(f) }

// start of every script, a Saturday at noon.
const start = StoreTime(1_795_262_400_000_000)

// turned is one turn of a source.
type turned struct {
	Turn   Transition
	Reason Reason
	At     StoreTime // since when
	Found  StoreTime
}

// world is a store with one source, whose path works unless told otherwise, and a
// watcher that looks as soon as the source is due.
type world struct {
	e     Check
	judge func(*Check, Facts) Evaluation
	now   StoreTime
	due   StoreTime
	f     Facts
	path  PathStatus
	// seeing: the path is proven all the time; again: its next proof is.
	seeing, anew bool
	onsets       []StoreTime
	turns        []turned
	looks        int
	found        func(string)
}

func newWorld(e Check, judge func(*Check, Facts) Evaluation) *world {
	return &world{
		e: e, judge: judge, now: start, due: Never, seeing: true,
		path: PathStatus{Name: "p", LastSeen: start, BlindUntil: start},
		f:    Facts{State: Up, ExpectedFrom: start},
	}
}

func (w *world) facts() Facts {
	f := w.f
	if w.seeing {
		w.prove()
	}
	f.Path, f.Now = w.path, w.now
	f.Wall = time.UnixMicro(int64(w.now)).UTC()
	f.RecentOnsets = 0
	if f.Alarm != "" {
		for _, at := range w.onsets {
			if w.now.Sub(at) < w.e.FlapWindow {
				f.RecentOnsets++
			}
		}
	}
	return f
}

// prove records a proof of the path.
func (w *world) prove() {
	if w.anew || w.now.Sub(w.path.LastSeen) > w.path.MaxGap && !w.seeing {
		w.path.BlindTotal += w.now.Sub(w.path.LastSeen)
		w.path.BlindUntil = w.now
	}
	w.anew = false
	w.path.LastSeen = w.now
}

// until lets time pass.
func (w *world) until(end StoreTime) {
	for w.due <= end {
		w.now = max(w.now, w.due)
		w.apply(w.judge(&w.e, w.facts()))
	}
	w.now = max(w.now, end)
}

func (w *world) apply(v Evaluation) {
	if w.looks++; w.looks > 100_000 {
		panic("it looks again and again")
	}
	w.due, w.f.WellSince = v.Due, v.WellSince
	switch v.Transition {
	case NoTransition:
		return
	case Onset:
		w.f.State, w.f.Alarm, w.f.Reason, w.f.OnsetAt = Down, "alarm", v.Reason, w.now
		w.onsets = append(w.onsets, w.now)
	case Abated:
		w.f.Alarm, w.f.Reason = "", ""
		if w.f.State == Down {
			w.f.State = Up
		}
	case Resume, Return:
		w.f.State, w.f.ExpectedFrom, w.f.PausedUntil, w.f.RetiredAt = Up, v.At, 0, 0
		if w.f.Alarm != "" {
			w.f.State = Down
		}
	case Retire:
		w.f.State, w.f.RetiredAt, w.f.RetireRequested, w.f.Alarm = Retired, w.now, false, ""
	}
	w.turns = append(w.turns, turned{v.Transition, v.Reason, v.At, w.now})
	if w.found == nil {
		return
	}
	text := fmt.Sprintf("%v %s", w.now.Sub(start), v.Transition)
	if v.Reason != "" {
		text += " " + string(v.Reason)
	}
	w.found(text + " since " + v.At.Sub(start).String())
}

// beat is stored.
func (w *world) beat(s Signal, sent StoreTime) {
	if w.seeing {
		w.prove()
	}
	watched := w.f.Alarm != "" || w.f.State == Retired || w.f.RunStarted != 0 || s != SignalSuccess
	if w.f.LastBeat == 0 && w.due == Never && w.f.State == Up {
		watched = true // learned
	}
	if s == SignalStart {
		w.f.RunStarted = w.now
	} else {
		at := w.now
		if w.e.SenderClock && sent != 0 {
			earliest := w.f.LastBeat
			if earliest == 0 {
				earliest = w.f.ExpectedFrom
			}
			at = min(max(sent, earliest), w.now)
		}
		w.f.LastBeat, w.f.BlindAtBeat, w.f.RunStarted, w.f.Failing = at, w.path.BlindBy(at, w.f.BlindAtBeat, w.f.LastBeat != 0), 0, s == SignalFail
	}
	if watched {
		w.due = w.now
	}
}

// configure changes the event.
func (w *world) configure(e Check) {
	if e.IsStricterThan(&w.e) || w.e.Paused && !e.Paused {
		w.f.CheckChanged = w.now
	}
	w.e, w.due = e, w.now
}

func (w *world) blind() { w.facts(); w.seeing = false }

func (w *world) see() { w.prove(); w.seeing = true }

func (w *world) happens(t *testing.T, words []string) {
	arg := func(i int) time.Duration {
		if len(words) <= i {
			return 0
		}
		d, err := time.ParseDuration(words[i])
		if err != nil {
			t.Fatalf("%v: %v", words, err)
		}
		return d
	}
	switch words[0] {
	case "declare":
		w.f.ExpectedFrom, w.due = w.now, w.now
	case "beat":
		var sent StoreTime
		if len(words) > 1 {
			sent = start.Add(arg(1))
		}
		w.beat(SignalSuccess, sent)
	case "start":
		w.beat(SignalStart, 0)
	case "fail":
		w.beat(SignalFail, 0)
	case "race": // a beat arrives between the judgement and the change
		w.now++
		v := w.judge(&w.e, w.facts())
		w.found(fmt.Sprintf("%v undone: %s", w.now.Sub(start), v.Transition))
		w.beat(SignalSuccess, 0)
		w.due = w.now
	case "blind":
		w.blind()
	case "see":
		w.see()
	case "prove":
		w.prove()
	case "path": // how much a proof says
		w.seeing, w.path.TrustFor, w.path.MaxGap = false, arg(1), arg(2)
	case "step": // the store's clock
		w.blind()
		w.now = w.now.Add(arg(1))
		w.anew = true
		w.see()
	case "set":
		e := w.e
		set(t, &e, words[1:])
		w.configure(e)
	case "pause-event", "resume-event":
		e := w.e
		e.Paused = words[0] == "pause-event"
		w.configure(e)
	case "pause":
		w.f.State, w.f.PausedUntil, w.due = Paused, 0, Never
		if len(words) > 1 {
			w.f.PausedUntil = w.now.Add(arg(1))
			w.due = w.f.PausedUntil
		}
	case "resume":
		w.resume()
	case "retire":
		w.f.RetireRequested, w.due = true, w.now
	case "remove":
		w.f.Removed, w.due = true, w.now
	case "look":
		due := "never"
		if w.due != Never {
			due = w.due.Sub(start).String()
		}
		w.found(fmt.Sprintf("= %s, due %s", w.f.State, due))
	default:
		t.Fatalf("what happens is %q", words)
	}
}

func (w *world) resume() {
	w.f.State, w.f.PausedUntil, w.f.ExpectedFrom, w.due = Up, 0, w.now, w.now
	if w.f.Alarm != "" {
		w.f.State = Down
	}
}

package monitor

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

var rewriteScripts = flag.Bool("rewrite", false, "write what the scripts really print; look at the difference")

// TestScripts replays testdata/*.txt through the rule. "-- name | settings" begins a
// new source of an event with these settings, whose path works. A line that begins
// with "> " says when, and what happens then; the turns of the source follow,
// each with when it was found and since when it is so.
func TestScripts(t *testing.T) {
	for _, file := range scripts() {
		t.Run(file, func(t *testing.T) {
			path := "testdata/" + file + ".txt"
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(text), Judge)
			if *rewriteScripts {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want := strings.Split(string(text), "\n")
			for i, line := range strings.Split(got, "\n") {
				if i >= len(want) || line != want[i] {
					t.Fatalf("%s:%d: is %q", path, i+1, line)
				}
			}
			if len(got) < len(text) {
				t.Errorf("%s: ends early", path)
			}
		})
	}
}

func scripts() []string { return []string{"silence", "blind", "alarm", "pause", "schedule"} }

// TestScriptsCatch: rules that are wrong about what histories do not have are found
// by the scripts.
func TestScriptsCatch(t *testing.T) {
	facts := func(change func(*Event, *Facts)) func(*Event, Facts) Verdict {
		return func(e *Event, f Facts) Verdict {
			twin := *e
			change(&twin, &f)
			return twin.Judge(f)
		}
	}
	for name, twin := range map[string]func(*Event, Facts) Verdict{
		"trust is ignored":               facts(func(_ *Event, f *Facts) { f.Path.Trust = 0 }),
		"proofs are ignored":             facts(func(_ *Event, f *Facts) { f.Path.Proof = f.Now }),
		"the gap is ignored":             facts(func(_ *Event, f *Facts) { f.Path.Gap = 0 }),
		"blind time of schedules counts": facts(func(e *Event, f *Facts) { f.Path.Resumed *= Moment(min(e.Interval, 1)) }),
		"grace of schedules is ignored":  facts(func(e *Event, _ *Facts) { e.Grace *= min(e.Interval, 1) }),
		"one time missed is enough":      facts(func(e *Event, _ *Facts) { e.Missed = 1 }),
		"zones are ignored":              facts(func(e *Event, _ *Facts) { e.Schedule = strings.TrimPrefix(e.Schedule, "TZ=Europe/Berlin ") }),
		"runs never end":                 facts(func(e *Event, _ *Facts) { e.MaxRun = 0 }),
		"runs that may have ended count": facts(func(_ *Event, f *Facts) { f.Run = max(f.Run, min(f.Run, 1)*f.Path.Resumed) }),
		"a run that begins is a sign":    facts(func(_ *Event, f *Facts) { f.Reason = Silent }),
		"a longer limit is no reason": facts(func(_ *Event, f *Facts) {
			f.Failing = f.Failing || f.Alarm != "" && f.Beat < f.Onset
		}),
		"nobody is retired":             facts(func(e *Event, _ *Facts) { e.RetireAfter = 0 }),
		"retired although it was blind": facts(func(_ *Event, f *Facts) { f.BlindThen, f.Path.Resumed = f.Path.Blind, 0 }),
		"the paused are retired": facts(func(_ *Event, f *Facts) {
			if f.State == Paused && f.Alarm != "" {
				f.State = Down
			}
		}),
		"paused events retire":              facts(func(e *Event, f *Facts) { e.Paused = e.Paused && f.Alarm == "" }),
		"paused events are judged":          facts(func(e *Event, _ *Facts) { e.Paused = false }),
		"pauses last for ever":              facts(func(_ *Event, f *Facts) { f.Until = 0 }),
		"what failed in a pause counts":     facts(func(_ *Event, f *Facts) { f.Base = min(f.Base, max(f.Beat, 1)) }),
		"nobody asks":                       facts(func(_ *Event, f *Facts) { f.Asked = false }),
		"nobody returns":                    facts(func(_ *Event, f *Facts) { f.Ended *= 2 }),
		"events are not removed":            facts(func(_ *Event, f *Facts) { f.Removed = false }),
		"the flap window is ignored":        facts(func(e *Event, f *Facts) { f.Onsets = 0 }),
		"the resumed are retired at once":   facts(func(e *Event, f *Facts) { f.Base = min(f.Base, max(f.Onset, 1)) }),
		"a change begins nothing anew":      facts(func(_ *Event, f *Facts) { f.EventBase = 0 }),
		"the declared are overdue at once":  facts(func(_ *Event, f *Facts) { f.Base = 0; f.Path.Resumed *= min(f.Beat, 1) }),
		"looks that find nothing are often": often,
	} {
		found := false
		for _, file := range scripts() {
			text, err := os.ReadFile("testdata/" + file + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			wrong := caught(func() string {
				if got := replay(t, string(text), twin); got != string(text) {
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
func often(e *Event, f Facts) Verdict {
	v := e.Judge(f)
	if v.Turn == Stay && f.Path.Proof < f.Now {
		v.Due = f.Now + 1
	}
	return v
}

func replay(t *testing.T, text string, judge func(*Event, Facts) Verdict) string {
	var out strings.Builder
	var w *world
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "--"):
			w = newWorld(scriptedEvent(t, line), judge)
			w.found = func(s string) { fmt.Fprintln(&out, s) }
			fmt.Fprintln(&out, line)
		case strings.HasPrefix(line, "> "):
			words := strings.Fields(line[2:])
			at, err := time.ParseDuration(words[0])
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if words[1] == "race" { // before anybody looks
				at -= time.Microsecond
			}
			w.until(start.Add(at))
			fmt.Fprintln(&out, line)
			w.happens(t, words[1:])
			w.until(w.now)
		case line == "", strings.HasPrefix(line, "#"):
			fmt.Fprintln(&out, line)
		}
	}
	return out.String()
}

func scriptedEvent(t *testing.T, header string) Event {
	e := Event{Name: "e", Interval: 10 * time.Second}
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

func set(t *testing.T, e *Event, words []string) {
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
func Judge(e *Event, f Facts) Verdict { return e.Judge(f) }

// start of every script, a Saturday at noon.
const start = Moment(1_795_262_400_000_000)

// turned is one turn of a source.
type turned struct {
	Turn   Turn
	Reason Reason
	At     Moment // since when
	Found  Moment
}

// world is a store with one source, whose path works unless told otherwise, and a
// watcher that looks as soon as the source is due.
type world struct {
	e     Event
	judge func(*Event, Facts) Verdict
	now   Moment
	due   Moment
	f     Facts
	path  Path
	// seeing: the path is proven all the time; anew: its next proof is.
	seeing, anew bool
	onsets       []Moment
	turns        []turned
	looks        int
	found        func(string)
}

func newWorld(e Event, judge func(*Event, Facts) Verdict) *world {
	return &world{
		e: e, judge: judge, now: start, due: Never, seeing: true,
		path: Path{Name: "p", Proof: start, Resumed: start},
		f:    Facts{State: Up, Base: start},
	}
}

func (w *world) facts() Facts {
	f := w.f
	if w.seeing {
		w.prove()
	}
	f.Path, f.Now = w.path, w.now
	f.Wall = time.UnixMicro(int64(w.now)).UTC()
	f.Onsets = 0
	if f.Alarm != "" {
		for _, at := range w.onsets {
			if w.now.Sub(at) < w.e.FlapWindow {
				f.Onsets++
			}
		}
	}
	return f
}

// prove records a proof of the path.
func (w *world) prove() {
	if w.anew || w.now.Sub(w.path.Proof) > w.path.Gap && !w.seeing {
		w.path.Blind += w.now.Sub(w.path.Proof)
		w.path.Resumed = w.now
	}
	w.anew = false
	w.path.Proof = w.now
}

// until lets time pass.
func (w *world) until(end Moment) {
	for w.due <= end {
		w.now = max(w.now, w.due)
		w.apply(w.judge(&w.e, w.facts()))
	}
	w.now = max(w.now, end)
}

func (w *world) apply(v Verdict) {
	if w.looks++; w.looks > 100_000 {
		panic("it looks again and again")
	}
	w.due, w.f.Well = v.Due, v.Well
	switch v.Turn {
	case Stay:
		return
	case Onset:
		w.f.State, w.f.Alarm, w.f.Reason, w.f.Onset = Down, "alarm", v.Reason, w.now
		w.onsets = append(w.onsets, w.now)
	case Abated:
		w.f.Alarm, w.f.Reason = "", ""
		if w.f.State == Down {
			w.f.State = Up
		}
	case Resume, Return:
		w.f.State, w.f.Base, w.f.Until, w.f.Ended = Up, v.At, 0, 0
		if w.f.Alarm != "" {
			w.f.State = Down
		}
	case Retire:
		w.f.State, w.f.Ended, w.f.Asked, w.f.Alarm = Retired, w.now, false, ""
	}
	w.turns = append(w.turns, turned{v.Turn, v.Reason, v.At, w.now})
	if w.found == nil {
		return
	}
	text := fmt.Sprintf("%v %s", w.now.Sub(start), v.Turn)
	if v.Reason != "" {
		text += " " + string(v.Reason)
	}
	w.found(text + " since " + v.At.Sub(start).String())
}

// beat is stored.
func (w *world) beat(s Signal, sent Moment) {
	if w.seeing {
		w.prove()
	}
	watched := w.f.Alarm != "" || w.f.State == Retired || w.f.Run != 0 || s != Fine
	if w.f.Beat == 0 && w.due == Never && w.f.State == Up {
		watched = true // learned
	}
	if s == Start {
		w.f.Run = w.now
	} else {
		at := w.now
		if w.e.SenderClock && sent != 0 {
			at = min(max(sent, w.f.Beat), w.now)
		}
		w.f.Beat, w.f.BlindThen, w.f.Run, w.f.Failing = at, w.path.Blind, 0, s == Fail
	}
	if watched {
		w.due = w.now
	}
}

// configure changes the event.
func (w *world) configure(e Event) {
	if e.limit() < w.e.limit() || e.Schedule != w.e.Schedule || w.e.Paused && !e.Paused {
		w.f.EventBase = w.now
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
		w.f.Base, w.due = w.now, w.now
	case "beat":
		var sent Moment
		if len(words) > 1 {
			sent = start.Add(arg(1))
		}
		w.beat(Fine, sent)
	case "start":
		w.beat(Start, 0)
	case "fail":
		w.beat(Fail, 0)
	case "race": // a beat arrives between the judgement and the change
		w.now++
		v := w.judge(&w.e, w.facts())
		w.found(fmt.Sprintf("%v undone: %s", w.now.Sub(start), v.Turn))
		w.beat(Fine, 0)
		w.due = w.now
	case "blind":
		w.blind()
	case "see":
		w.see()
	case "prove":
		w.prove()
	case "path": // how much a proof says
		w.seeing, w.path.Trust, w.path.Gap = false, arg(1), arg(2)
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
		w.f.State, w.f.Until, w.due = Paused, 0, Never
		if len(words) > 1 {
			w.f.Until = w.now.Add(arg(1))
			w.due = w.f.Until
		}
	case "resume":
		w.resume()
	case "retire":
		w.f.Asked, w.due = true, w.now
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
	w.f.State, w.f.Until, w.f.Base, w.due = Up, 0, w.now, w.now
	if w.f.Alarm != "" {
		w.f.State = Down
	}
}

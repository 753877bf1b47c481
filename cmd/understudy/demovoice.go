package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// demoVoice tells the story of the demonstration, one line for each event.
type demoVoice struct {
	mu     sync.Mutex
	w      io.Writer
	colour bool
}

func newDemoVoice(w io.Writer) *demoVoice {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return &demoVoice{w: w}
	}
	info, err := f.Stat()
	return &demoVoice{w: w, colour: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// The colours of a terminal.
const (
	demoBold  = "1"
	demoGreen = "32"
	demoRed   = "31"
	demoDim   = "2"
)

func (v *demoVoice) paint(colour, text string) string {
	if !v.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// say prints text as it is.
func (v *demoVoice) say(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintf(v.w, format+"\n", args...)
}

// event prints what happened to a part, in columns.
func (v *demoVoice) event(part, format string, args ...any) {
	text := strings.ReplaceAll(clean(fmt.Sprintf(format, args...)), "\n", " ")
	v.say("%s  %s  %s", v.paint(demoDim, demoStamp(time.Now())), v.paint(demoBold, fmt.Sprintf("%-9s", part)), text)
}

// hint prints a command to try, below an event.
func (v *demoVoice) hint(format string, args ...any) {
	v.say("%25s%s", "", v.paint(demoDim, clean(fmt.Sprintf(format, args...))))
}

// outcome prints what came of a promise.
func (v *demoVoice) outcome(o demoOutcome) { v.event(o.part, "%s %s", v.mark(o), o) }

func (v *demoVoice) mark(o demoOutcome) string {
	if o.kept() {
		return v.paint(demoGreen, "✓")
	}
	return v.paint(demoRed, "✗")
}

// summary prints all outcomes as a table.
func (v *demoVoice) summary(list []demoOutcome) {
	rows := [][4]string{{"", "WHAT HAPPENED", "MEASURED", "PROMISED"}}
	for _, o := range list {
		took, worst := "-", "-"
		if o.took > 0 {
			took = seconds(o.took)
		}
		if o.worst > 0 {
			worst = "≤ " + seconds(o.worst)
		}
		rows = append(rows, [4]string{o.part, clean(o.what), took, worst})
	}
	var width [4]int
	for _, r := range rows {
		for i, cell := range r {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	for i, r := range rows {
		mark := " "
		if i > 0 {
			mark = v.mark(list[i-1])
		}
		for j := range r {
			r[j] += strings.Repeat(" ", width[j]-len([]rune(r[j])))
		}
		line := r[0] + "  " + r[1] + "  " + r[2] + "  " + r[3]
		if i == 0 {
			line = v.paint(demoBold, line)
		}
		v.say("%s %s", mark, strings.TrimRight(line, " "))
	}
}

// demoOutcome is what came of a promise.
type demoOutcome struct {
	part, what  string
	took, worst time.Duration // 0 where no time is promised
	slack       time.Duration // how much later it may be on a machine that is busy
	broken      bool          // something else than the time was promised, and not kept
}

func (o demoOutcome) kept() bool { return !o.broken && (o.worst == 0 || o.took <= o.worst+o.slack) }

func (o demoOutcome) String() string {
	switch {
	case o.worst == 0:
		return o.what
	case o.took <= o.worst:
		return fmt.Sprintf("%s after %s; worst case %s", o.what, seconds(o.took), seconds(o.worst))
	case o.kept():
		return fmt.Sprintf("%s after %s; worst case %s, and this machine is busy", o.what, seconds(o.took), seconds(o.worst))
	default:
		return fmt.Sprintf("%s after %s; LATER than the worst case of %s", o.what, seconds(o.took), seconds(o.worst))
	}
}

// seconds is a duration with two digits behind the point where it has some.
func seconds(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

func demoStamp(t time.Time) string { return t.Local().Format("15:04:05.000") }

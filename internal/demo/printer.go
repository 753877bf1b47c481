package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/termtext"
)

// printer tells the story of the demonstration, one line for each event.
type printer struct {
	mu     sync.Mutex
	w      io.Writer
	colour bool
}

func newPrinter(w io.Writer) *printer {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return &printer{w: w}
	}
	info, err := f.Stat()
	return &printer{w: w, colour: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// The colours of a terminal.
const (
	bold  = "1"
	green = "32"
	red   = "31"
	dim   = "2"
)

func (v *printer) paint(colour, text string) string {
	if !v.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// printf prints text as it is.
func (v *printer) printf(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintf(v.w, format+"\n", args...)
}

// event prints what happened to a part, in columns.
func (v *printer) event(part, format string, args ...any) {
	text := strings.ReplaceAll(termtext.Text(fmt.Sprintf(format, args...)), "\n", " ")
	v.printf("%s  %s  %s", v.paint(dim, stamp(time.Now())), v.paint(bold, fmt.Sprintf("%-9s", part)), text)
}

// hint prints a command to try, below an event.
func (v *printer) hint(format string, args ...any) {
	v.printf("%25s%s", "", v.paint(dim, termtext.Text(fmt.Sprintf(format, args...))))
}

// outcome prints what came of a promise.
func (v *printer) outcome(o outcome) { v.event(o.part, "%s %s", v.mark(o.kept()), o) }

func (v *printer) mark(kept bool) string {
	if kept {
		return v.paint(green, "✓")
	}
	return v.paint(red, "✗")
}

// summary prints all outcomes as a table.
func (v *printer) summary(list []result) {
	rows := [][4]string{{"", "WHAT HAPPENED", "MEASURED", "PROMISED"}}
	for _, o := range list {
		took, promised := "-", "-"
		if o.Took > 0 {
			took = seconds(time.Duration(o.Took) * time.Millisecond)
		}
		if o.Promised > 0 {
			promised = "≤ " + seconds(time.Duration(o.Promised)*time.Millisecond)
		}
		rows = append(rows, [4]string{o.Part, termtext.Text(o.Text), took, promised})
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
			mark = v.mark(list[i-1].Kept)
		}
		for j := range r {
			r[j] += strings.Repeat(" ", width[j]-len([]rune(r[j])))
		}
		line := r[0] + "  " + r[1] + "  " + r[2] + "  " + r[3]
		if i == 0 {
			line = v.paint(bold, line)
		}
		v.printf("%s %s", mark, strings.TrimRight(line, " "))
	}
}

// outcome is what came of a promise.
type outcome struct {
	part, what  string
	counted     string        // of what must not happen, "" where nothing is
	took, worst time.Duration // 0 where no time is promised
	slack       time.Duration // how much later it may be on a machine that is busy
	broken      bool          // something else than the time was promised, and not kept
}

func (o outcome) kept() bool { return !o.broken && (o.worst == 0 || o.took <= o.worst+o.slack) }

// excuse takes the promise back: more was killed than it allows for.
func (o *outcome) excuse() {
	o.what += ", and something else died meanwhile"
	o.worst, o.broken = 0, false
}

func (o outcome) String() string {
	text := o.what
	if o.worst > 0 {
		text += fmt.Sprintf(" after %s; ", seconds(o.took))
		switch {
		case o.took <= o.worst:
			text += "worst case " + seconds(o.worst)
		case o.kept():
			text += fmt.Sprintf("worst case %s, and this machine is busy", seconds(o.worst))
		default:
			text += "LATER than the worst case of " + seconds(o.worst)
		}
	}
	return withCounts(text, o.counted)
}

func withCounts(text, counted string) string {
	if counted == "" {
		return text
	}
	return text + "; " + counted
}

// seconds is a duration with two digits behind the point where it has some.
func seconds(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

func stamp(t time.Time) string { return t.Local().Format("15:04:05.000") }

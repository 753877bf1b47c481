package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
)

// Figure is one thing that was measured.
type Figure struct {
	// Section, Subject and Name tell what it is of: "handover", "postgres", "median".
	Section string `json:"section"`
	Subject string `json:"subject"`
	Name    string `json:"name"`
	// Value in Unit.
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Bound is what it should not exceed, 0 when there is none, unless Limited
	// says that 0 is meant. Least is what it should reach.
	Bound   float64 `json:"bound,omitempty"`
	Limited bool    `json:"limited,omitempty"`
	Least   float64 `json:"least,omitempty"`
	// Peer is the same taken of Versus, 0 when there is none.
	Peer   float64 `json:"peer,omitempty"`
	Versus string  `json:"versus,omitempty"`
	// Count of the single measurements behind it, 0 when that means nothing.
	Count int `json:"count,omitempty"`
}

// holds tells whether the figure keeps its bounds.
func (f Figure) holds() bool { return (!f.bounded() || f.Value <= f.Bound) && f.Value >= f.Least }

func (f Figure) bounded() bool { return f.Bound != 0 || f.Limited }

// Report is what a run found out.
type Report struct {
	Machine Machine  `json:"machine"`
	Figures []Figure `json:"figures"`

	mu sync.Mutex
}

// add records figures and shows them as they come.
func (r *Report) add(figures ...Figure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range figures {
		r.Figures = append(r.Figures, f)
		fmt.Fprintf(os.Stderr, "  %-12s %-34s %s %s\n", f.Subject, f.Name, number(f.Value), f.Unit)
	}
}

// write prints the whole report.
func (r *Report) write(w io.Writer) {
	r.Machine.write(w)
	fmt.Fprintln(w)
	writeTable(w, r.Figures, false)
}

// writeTable prints figures as a Markdown table. A cell that repeats the one above it is empty, and "…" stands for the
// same beginning of a name. With judged, only figures that have a bound or something beside them are shown.
func writeTable(w io.Writer, figures []Figure, judged bool) {
	fmt.Fprint(w, "||of|what|measured|bound|beside|n|\n|-|-|-|-|-|-|-|\n")
	var above Figure
	for _, f := range figures {
		bound, peer, n := f.cells()
		if judged && bound == "" && peer == "" {
			continue
		}
		section, subject, name := f.Section, f.Subject, f.Name
		if section != above.Section {
			section = "**" + section + "**"
		} else {
			section = ""
			if subject == above.Subject {
				subject, name = "", afterSame(above.Name, name)
			}
		}
		fmt.Fprintf(w, "|%s|%s|%s|%s|%s|%s|%s|\n", section, subject, name, strings.TrimSpace(number(f.Value)+" "+f.Unit), bound, peer, n)
		above = f
	}
}

// afterSame is a name with "…" in place of the clauses that it shares with the one above it.
func afterSame(above, name string) string {
	shared := 0
	for i := 0; i < min(len(above), len(name)) && above[i] == name[i]; i++ {
		if i > 0 && name[i] == ' ' && (name[i-1] == ',' || name[i-1] == ':') {
			shared = i + 1
		}
	}
	if shared == 0 {
		return name
	}
	return "… " + name[shared:]
}

// cells are those of a figure's row that may be empty. A bound that is missed is bold.
func (f Figure) cells() (bound, peer, n string) {
	if f.bounded() {
		bound = "≤ " + number(f.Bound)
	}
	if f.Least != 0 {
		bound = "≥ " + number(f.Least)
	}
	if !f.holds() {
		bound = "**" + bound + "**"
	}
	if f.Peer != 0 {
		peer = f.Versus + " " + number(f.Peer)
	}
	if f.Count != 0 {
		n = strconv.Itoa(f.Count)
	}
	return bound, peer, n
}

func (r *Report) save(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// marks are the lines of a document between which a block stands.
func marks(block string) (begin, end string) {
	return "<!-- " + block + ": written by bench -doc -->", "<!-- end of " + block + " -->"
}

// document writes into a Markdown file what the figures were taken on, block "run", and the tables of each group that has any.
func (r *Report) document(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var text strings.Builder
	r.Machine.write(&text)
	page, err := replaceBlock(string(data), "run", text.String())
	for group, figures := range r.groups() {
		if err == nil && len(figures) > 0 {
			text.Reset()
			writeTable(&text, figures, true)
			page, err = replaceBlock(page, group, text.String())
		}
	}
	if err != nil {
		return fmt.Errorf("bench: %s: %w", path, err)
	}
	return os.WriteFile(path, []byte(page), 0o644)
}

// groups are the figures of each group of sections.
func (r *Report) groups() map[string][]Figure {
	of := map[string]string{"jobs": "jobs"} // one table of three sections
	for _, s := range sections() {
		of[s.name] = s.group
	}
	out := map[string][]Figure{}
	for _, f := range r.Figures {
		out[of[f.Section]] = append(out[of[f.Section]], f)
	}
	return out
}

func replaceBlock(page, block, text string) (string, error) {
	begin, end := marks(block)
	before, rest, begun := strings.Cut(page, begin+"\n")
	_, after, ended := strings.Cut(rest, end)
	if !begun || !ended {
		return "", fmt.Errorf("it lacks the line %q or %q", begin, end)
	}
	return before + begin + "\n\n" + text + "\n" + end + after, nil
}

// load reads what save wrote; an empty report for no path.
func load(path string) (*Report, error) {
	r := &Report{}
	if path == "" {
		return r, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("bench: reading %s: %w", path, err)
	}
	return r, nil
}

// number shows three digits that count, and never fewer than all before the point.
func number(v float64) string {
	digits := 0
	if a := math.Abs(v); a > 0 && a < 100 {
		digits = min(2-int(math.Floor(math.Log10(a))), 4)
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

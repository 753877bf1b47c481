package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	page := flag.String("o", "", "write the table to this `FILE` too, as a page")
	of := flag.String("of", "", "the `VERSION` and commit that was tried, for the page's title")
	flag.Parse()
	b, err := run(os.Stdin, os.Stdout)
	if b != nil && *page != "" {
		err = errors.Join(err, os.WriteFile(*page, []byte(b.page(*of)), 0o644))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

// event is one line of go test -json, see "go doc test2json".
type event struct {
	Action, Package, Test, Output, Key, Value string
	Elapsed                                   float64
	Time                                      time.Time
}

type row struct{ part, fault string }

type count struct {
	tried, violations int
	seconds           float64 // of all tests of the row, one beside the other
	seeds             []string
}

func (c *count) add(o count) {
	c.tried, c.violations, c.seconds = c.tried+o.tried, c.violations+o.violations, c.seconds+o.seconds
	c.seeds = append(c.seeds, o.seeds...)
}

// book keeps what each test said until it ends.
type book struct {
	out    io.Writer
	said   map[string][]string // output of tests that have not ended
	tried  map[string][]event  // attributes
	nested map[string]bool     // tests that have tests within them, which count in their place
	open   map[string]bool     // packages and tests that have not ended
	rows   map[row]*count
	twins  [2]int // broken variants: caught, not caught
	failed []string
	// skipped are tests that tried nothing, each with why.
	skipped []string
	// simulated time that packages said, and when the first and the last event was.
	simulated   time.Duration
	began, last time.Time
}

// run returns the book of what ran, if anything did, and what was wrong with it.
func run(in io.Reader, out io.Writer) (*book, error) {
	b := &book{out: out, said: map[string][]string{}, tried: map[string][]event{}, nested: map[string]bool{}, open: map[string]bool{}, rows: map[row]*count{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(out, lines.Text()) // of the compiler
			continue
		}
		b.take(e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	if len(b.rows) == 0 {
		return nil, errors.New("no test ran")
	}
	maps.DeleteFunc(b.open, func(id string, _ bool) bool { return b.nested[id] })
	if len(b.open) > 0 { // "go test" was killed, or a test's process ended without a word
		b.failed = append(b.failed, "did not end: "+listed(slices.Sorted(maps.Keys(b.open))))
	}
	return b, b.close()
}

func (b *book) take(e event) {
	id := strings.TrimSpace(e.Package + " " + e.Test)
	if !e.Time.IsZero() {
		if b.began.IsZero() || e.Time.Before(b.began) {
			b.began = e.Time
		}
		if e.Time.After(b.last) {
			b.last = e.Time
		}
	}
	switch e.Action {
	case "start":
		b.open[id] = true
	case "run":
		b.open[id] = true
		for i, c := range e.Test {
			if c == '/' {
				b.nested[e.Package+" "+e.Test[:i]] = true
			}
		}
	case "attr":
		if e.Key == "tried" {
			b.tried[id] = append(b.tried[id], e)
		}
	case "output":
		b.said[id] = append(b.said[id], e.Output)
	case "build-output":
		fmt.Fprint(b.out, e.Output)
	case "pass", "skip", "fail":
		b.over(e, id)
		delete(b.open, id)
		delete(b.said, id)
		delete(b.tried, id)
	}
}

// over books a test, or a package, that has ended.
func (b *book) over(e event, id string) {
	bad := e.Action == "fail"
	if e.Test == "" {
		for _, line := range b.said[id] {
			if seconds := 0; scanned(line, "simulated %d s", &seconds) {
				b.simulated += time.Duration(seconds) * time.Second
			}
		}
		if bad {
			b.failed = append(b.failed, e.Package)
			fmt.Fprint(b.out, strings.Join(b.said[id], ""))
		}
		return
	}
	if !b.nested[id] {
		fmt.Fprintf(b.out, "%-4s %7.1fs  %s\n", e.Action, e.Elapsed, e.Test)
	}
	violations := 0
	if bad {
		fmt.Fprint(b.out, strings.Join(b.said[id], ""))
		violations = max(1, strings.Count(strings.Join(b.said[id], ""), "VIOLATION"))
	}
	top, fault, _ := strings.Cut(e.Test, "/")
	part, seeds := partOf(top), seedsIn(b.said[id])
	switch {
	case e.Action == "skip" && !b.nested[id]:
		b.skipped = append(b.skipped, path.Base(e.Package)+" "+e.Test+": "+reason(b.said[id]))
	case e.Action == "skip":
	case strings.Contains(top, "Catches"):
		if !b.nested[id] && bad {
			b.twins[1]++
		} else if !b.nested[id] {
			b.twins[0]++
		}
	case len(b.tried[id]) > 0:
		for _, a := range b.tried[id] {
			n, what, _ := strings.Cut(a.Value, " ")
			tried, err := strconv.Atoi(n)
			if err != nil {
				continue // not ours
			}
			b.add(row{part, what}, count{tried, violations, e.Elapsed, seeds})
			violations, e.Elapsed, seeds = 0, 0, nil // counted once
		}
	case !b.nested[id]:
		b.add(row{part, cmp.Or(withoutStores(fault), top)}, count{1, violations, e.Elapsed, seeds})
	}
}

var logged = regexp.MustCompile(`(?m)^\s+\S+\.go:\d+: (.*)$`)

// reason is the first line that a test that was skipped gave for it.
func reason(said []string) string {
	if m := logged.FindStringSubmatch(strings.Join(said, "")); m != nil {
		return m[1]
	}
	return "no reason given"
}

func scanned(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line, format, into...)
	return err == nil && n == len(into)
}

// partOf tells which part a test tries, by how it is called.
func partOf(test string) string {
	named := func(word string) bool { return strings.Contains(test, word) }
	switch {
	case named("Soak"):
		return "all at once"
	case named("Cache"):
		return "cache"
	case named("Monitor"):
		return "monitor"
	case named("Queue"):
		return "queues"
	case named("Shard"):
		return "shards"
	case named("Job"):
		return "jobs"
	case named("Routes"):
		return "API"
	case named("Packages"):
		return "packages"
	case named("InBrowser"):
		return "page"
	default:
		return "roles"
	}
}

// withoutStores is a test's name without the stores that it is repeated on, and without shares.
func withoutStores(name string) string {
	words := slices.DeleteFunc(strings.Split(name, "/"), func(w string) bool {
		return w == "sqlite" || w == "postgres" || w == "redis" || strings.HasPrefix(w, "share_") || strings.HasPrefix(w, "seed=")
	})
	return strings.ReplaceAll(strings.Join(words, ": "), "_", " ")
}

func (b *book) add(r row, c count) {
	if b.rows[r] == nil {
		b.rows[r] = &count{}
	}
	b.rows[r].add(c)
}

func (b *book) sorted() []row {
	return slices.SortedFunc(maps.Keys(b.rows), func(x, y row) int {
		return cmp.Or(cmp.Compare(x.part, y.part), cmp.Compare(x.fault, y.fault))
	})
}

func (b *book) sum() (all count) {
	for _, c := range b.rows {
		all.add(*c)
	}
	return all
}

// close prints the table.
func (b *book) close() error {
	fmt.Fprintln(b.out)
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PART\tFAULT\tTRIED\tVIOLATIONS")
	for _, r := range b.sorted() {
		c := b.rows[r]
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", r.part, r.fault, c.tried, c.violations)
	}
	sum := b.sum()
	fmt.Fprintf(w, "all\t\t%d\t%d\n", sum.tried, sum.violations)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(b.out, "\nBroken variants, which the checks have to catch: %d caught, %d not.\n", b.twins[0], b.twins[1])
	if len(b.skipped) > 0 {
		fmt.Fprintf(b.out, "%d skipped, and so not tried:\n  %s\n", len(b.skipped), strings.Join(b.skipped, "\n  "))
	}
	switch {
	case sum.violations+b.twins[1] > 0:
		return fmt.Errorf("%d violations, %d broken variants not caught", sum.violations, b.twins[1])
	case len(b.failed) > 0:
		return fmt.Errorf("failed: %s", strings.Join(b.failed, ", "))
	}
	return nil
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

// callTimeout bounds each request of the commands that ask once.
const callTimeout = 5 * time.Second

// app is what all commands share: the global flags and where to print.
type app struct {
	stdout, stderr io.Writer

	storeURL, output, logLevel, logFormat string
	// connections to the store that are used at once; 0 for as few as it takes.
	connections int

	log *slog.Logger
}

// prepare checks the global flags.
func (a *app) prepare() error {
	if a.output != "table" && a.output != "json" {
		return usagef("-o %q: the formats are table and json", a.output)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(a.logLevel)); err != nil {
		return usagef("--log-level %q: the levels are debug, info, warn and error", a.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch a.logFormat {
	case "text":
		a.log = slog.New(slog.NewTextHandler(a.stderr, options))
	case "json":
		a.log = slog.New(slog.NewJSONHandler(a.stderr, options))
	default:
		return usagef("--log-format %q: the formats are text and json", a.logFormat)
	}
	if a.storeURL == "" {
		a.storeURL = os.Getenv("UNDERSTUDY_STORE")
	}
	if a.storeURL == "" {
		url, err := open.DefaultURL()
		if err != nil {
			return usagef("no --store is given and there is no state directory: %v", err)
		}
		a.storeURL = url
	}
	return nil
}

// open opens the store once.
func (a *app) open(ctx context.Context) (store.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*callTimeout)
	defer cancel()
	return open.Open(ctx, a.storeURL, open.Options{Connections: a.connections, Logger: a.log})
}

// ask opens the store, lets f ask it within callTimeout, and closes it.
func (a *app) ask(ctx context.Context, f func(context.Context, store.Store) error) error {
	st, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return f(ctx, st)
}

func (a *app) json() bool { return a.output == "json" }

// printJSON prints one value on one line, so that streams are JSON lines.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table prints rows of tab-separated cells in columns.
func (a *app) table(header string, rows []string) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, header)
	for _, row := range rows {
		fmt.Fprintln(w, row)
	}
	return w.Flush()
}

// row joins cells for table. What other programs put into the store is printed
// without anything that a terminal would obey.
func row(cells ...any) string {
	texts := make([]string, len(cells))
	for i, c := range cells {
		text := clean(fmt.Sprint(c))
		if text == "" {
			text = "-"
		}
		texts[i] = text
	}
	return strings.Join(texts, "\t")
}

func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			return r
		case r == '\t':
			return ' '
		default:
			return '�'
		}
	}, s)
}

// brief is a duration as people read it: three figures are enough.
func brief(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + brief(-d)
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 48*time.Hour:
		return d.Round(time.Second).String()
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// hostname is the default name of an instance.
func hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unnamed"
	}
	return name
}

package main

import (
	"cmp"
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
	// serverURL is asked instead of the store, with the token in tokenFile; see chooseSide.
	serverURL, tokenFile string
	command              string // that was given, by its path
	// connections to the store that are used at once; 0 for as few as it takes.
	connections int

	log   *slog.Logger
	level *slog.LevelVar // of log
}

// prepare checks the global flags.
func (a *app) prepare() error {
	if a.output != "table" && a.output != "json" {
		return usagef("-o %q: the formats are table and json", a.output)
	}
	if err := a.logAs(cmp.Or(a.logLevel, os.Getenv("UNDERSTUDY_LOG_LEVEL")), cmp.Or(a.logFormat, os.Getenv("UNDERSTUDY_LOG_FORMAT"))); err != nil {
		return err
	}
	if err := a.chooseSide(); err != nil {
		return err
	}
	if a.storeURL == "" && !a.remote() {
		url, err := open.DefaultURL()
		if err != nil {
			return usagef("no --store is given and there is no state directory: %v", err)
		}
		a.storeURL = url
	}
	return nil
}

// logAs makes the log of a level and a format; "" is the default.
func (a *app) logAs(level, format string) error {
	l, err := logOptions(level, format)
	if err != nil {
		return err
	}
	a.level = &slog.LevelVar{}
	a.level.Set(l)
	options := &slog.HandlerOptions{Level: a.level}
	if format == "json" {
		a.log = slog.New(slog.NewJSONHandler(a.stderr, options))
	} else {
		a.log = slog.New(slog.NewTextHandler(a.stderr, options))
	}
	return nil
}

// logOptions checks what is said of the log.
func logOptions(level, format string) (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(cmp.Or(level, "info"))); err != nil {
		return l, usagef("log level %q: the levels are debug, info, warn and error", level)
	}
	if format != "" && format != "text" && format != "json" {
		return l, usagef("log format %q: the formats are text and json", format)
	}
	return l, nil
}

// open opens the store once.
func (a *app) open(ctx context.Context) (store.Store, error) {
	if err := a.needStore(); err != nil {
		return nil, err
	}
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

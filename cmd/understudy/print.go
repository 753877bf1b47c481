package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
)

func (a *app) json() bool { return a.output == "json" }

// printJSON prints one value on one line, so that streams are JSON lines.
func (a *app) printJSON(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// print prints a line for operators, or v with -o json.
func (a *app) print(v any, format string, args ...any) error {
	if a.json() {
		return a.printJSON(v)
	}
	_, err := fmt.Fprintln(a.stdout, termtext.Text(fmt.Sprintf(format, args...)))
	return err
}

// printAs prints v as text does, or as it is with -o json.
func printAs[T any](a *app, v T, text func(T) error) error {
	if a.json() {
		return a.printJSON(v)
	}
	return text(v)
}

// printList prints a table with a row for each item, or each as a line of JSON with -o json. The list of roles, which has
// several rows for some, and the tables of other commands use table; as JSON the list of roles is one array, on which
// programs rely.
func printList[T any](a *app, items []T, header string, rowOf func(T) string) error {
	if !a.json() {
		rows := make([]string, 0, len(items))
		for _, item := range items {
			rows = append(rows, rowOf(item))
		}
		return a.table(header, rows)
	}
	for _, item := range items {
		if err := a.printJSON(item); err != nil {
			return err
		}
	}
	return nil
}

// printPages prints up to limit items, which it collects page by page, each within callTimeout. next returns a page of up to n
// items, and where the API says that the next one begins, "" for nowhere: it must begin there when it is called again.
func printPages[T any](ctx context.Context, a *app, limit int, next func(ctx context.Context, n int) ([]T, string, error), show func([]T) error) error {
	var items []T
	ended := false
	for len(items) < limit && !ended {
		n := min(limit-len(items), dispatch.MaxPage)
		call, cancel := context.WithTimeout(ctx, callTimeout)
		page, more, err := next(call, n)
		cancel()
		if err != nil {
			return err
		}
		items, ended = append(items, page...), more == ""
	}
	err := show(items)
	if !ended && !a.json() { // programs see that they got as many as they asked for
		fmt.Fprintln(a.stderr, "there may be more; see --limit")
	}
	return err
}

// printPagesOfAPI is printPages of what the API lists.
func printPagesOfAPI[T any](ctx context.Context, a *app, limit int, next func(ctx context.Context, c *client.Client, n int) ([]T, string, error), show func([]T) error) error {
	if err := checkLimit(limit); err != nil {
		return err
	}
	return a.withAPI(ctx, func(ctx context.Context, c *client.Client) error {
		return printPages(ctx, a, limit, func(ctx context.Context, n int) ([]T, string, error) { return next(ctx, c, n) }, show)
	})
}

// maxRows is the most that one command lists.
const maxRows = 1_000_000

func checkLimit(n int) error {
	if n < 1 || n > maxRows {
		return usererr.Errorf("--limit %d: 1 to %d are possible", n, maxRows)
	}
	return nil
}

// printFacts prints what is known, each fact on its line, uncut.
func (a *app) printFacts(facts [][2]string) error {
	width := 0
	for _, f := range facts {
		width = max(width, len(f[0]))
	}
	for _, f := range facts {
		if f[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(a.stdout, "%-*s %s\n", width, f[0], termtext.Text(strings.Join(strings.Fields(f[1]), " "))); err != nil {
			return err
		}
	}
	return nil
}

// table prints rows of tab-separated cells in columns.
func (a *app) table(header string, rows []string) error {
	return writeTable(a.stdout, header, rows)
}

func writeTable(to io.Writer, header string, rows []string) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
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
		text := termtext.Text(fmt.Sprint(c))
		if text == "" {
			text = "-"
		}
		texts[i] = text
	}
	return strings.Join(texts, "\t")
}

// printDone prints what was done to what: in JSON as the verb of the command.
func (a *app) printDone(verb, noun, name string) error {
	return a.print(map[string]string{"action": verb, noun: name}, "%s: %s", pastTense(verb), name)
}

// pastTense is a verb as a table says that it was done.
func pastTense(verb string) string {
	switch verb {
	case "forget":
		return "forgotten"
	case "skip", "drop":
		return verb + "ped"
	case "retry", string(dispatch.RetryUnknown):
		return "retried"
	case "cancel":
		return "cancelled"
	case "remove", "retire", "pause", "resume", "acknowledge":
		return strings.TrimSuffix(verb, "e") + "ed"
	}
	return verb
}

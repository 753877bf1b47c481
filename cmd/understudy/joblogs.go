package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/job"
)

func (a *app) jobLogsCommand() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use:   "logs NAME [RUN]",
		Short: "Print the output of a run: the last 16 KiB of it",
		Long:  `Print the last 16 KiB of what a run has written: of the latest one, or of that of a scheduled time, as "job runs -o json" shows it.`,
		Example: `  understudy job logs backup
  understudy job logs backup -f
  understudy job logs backup 2026-12-24T02:30:00Z`,
		Args: exactly("NAME", "[RUN]"),
		RunE: func(c *cobra.Command, args []string) error {
			run := client.LatestRun
			if len(args) == 2 {
				run = args[1]
			}
			return a.withAPI(c.Context(), func(ctx context.Context, c *client.Client) error {
				return a.printLogs(ctx, c, args[0], run, follow)
			})
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "print what is written from now on, too, until the run ends")
	return c
}

// followEvery is how often output is asked for; an instance stores it once a second.
const followEvery = time.Second

// printLogs prints the output of a run as far as it is kept, and if it follows, what is written until the run has ended, by every
// attempt. A read without an answer does not end it.
func (a *app) printLogs(ctx context.Context, c *client.Client, name, run string, follow bool) error {
	printed, shown := logPrinter{app: a}, 0
	read := func(ctx context.Context) (time.Duration, error) {
		r, err := c.Run(ctx, name, run)
		if err != nil {
			return 0, err
		}
		if a.json() && !follow {
			return 0, a.printJSON(r)
		}
		run = client.RunName(r.Run) // a later one is another
		if follow && r.Attempt != shown {
			shown = r.Attempt // the latest run may be one before that of a trigger: say which it is
			fmt.Fprintf(a.stderr, "(run %s)\n", termtext.Text(runText(r.Run)))
		}
		printed.print(r)
		if job.State(r.State).Ended() {
			return 0, nil
		}
		return followEvery, nil
	}
	if follow {
		return a.poll(ctx, pollOptions{subject: []any{"job", name}, timeout: callTimeout}, read)
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := read(call)
	return err
}

// logPrinter prints of an output what it has not printed yet.
type logPrinter struct {
	app  *app
	last apitype.RunOutput
}

func (p *logPrinter) print(r apitype.RunOutput) {
	if !p.continues(r) {
		p.last = apitype.RunOutput{}
	}
	written := min(r.TotalBytes-p.last.TotalBytes, int64(len(r.Output)))
	if left := r.TotalBytes - p.last.TotalBytes - written; left > 0 {
		fmt.Fprintf(p.app.stderr, "(%d bytes before are not kept)\n", left)
	}
	for line := range bytes.Lines(r.Output[int64(len(r.Output))-written:]) {
		text, ended := bytes.CutSuffix(line, []byte("\n"))
		fmt.Fprint(p.app.stdout, termtext.Text(string(text)))
		if ended {
			fmt.Fprintln(p.app.stdout)
		}
	}
	p.last = r
}

// continues reports whether r goes on where the last output ended. That of a new attempt takes its place once it writes: it is
// shorter, or the bytes that both keep differ.
func (p *logPrinter) continues(r apitype.RunOutput) bool {
	lastFrom, from := p.last.TotalBytes-int64(len(p.last.Output)), r.TotalBytes-int64(len(r.Output))
	both := max(lastFrom, from)
	switch {
	case r.TotalBytes < p.last.TotalBytes:
		return false
	case both >= p.last.TotalBytes:
		return true
	}
	return bytes.Equal(p.last.Output[both-lastFrom:], r.Output[both-from:p.last.TotalBytes-from])
}

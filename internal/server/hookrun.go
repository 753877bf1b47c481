package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/guard"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/lease"
)

// errHookLate: the program was stopped at its deadline.
var errHookLate = errors.New("the program took too long")

// hookEvent is an event as a hook's program reads it.
type hookEvent struct {
	ID         int64     `json:"id"` // the same each time that a program runs for the event
	At         time.Time `json:"at"` // by the store's clock
	On         string    `json:"on"` // role, shard, alarm or message
	Subject    string    `json:"subject"`
	From       string    `json:"from"`
	To         string    `json:"to"`
	Term       int64     `json:"term"`
	Reason     string    `json:"reason"`
	DurationMS int64     `json:"duration_ms"`
}

func newHookEvent(e seenEvent) hookEvent {
	return hookEvent{
		ID: e.ID, At: e.At, On: e.on, Subject: e.Subject, From: e.From, To: e.To, Term: e.Term, Reason: e.Reason,
		DurationMS: (e.Duration + time.Millisecond - 1).Milliseconds(), // as the API has it: 0 means none at all
	}
}

// runHook runs the program for an event, and returns when nothing that it started is alive.
func runHook(ctx context.Context, cfg settings.Hook, e seenEvent, logger *slog.Logger) error {
	event := newHookEvent(e)
	input, err := event.input()
	if err != nil {
		return err
	}
	defer input.Close()
	timeout := time.Duration(cfg.Timeout)
	p, err := guard.Start(ctx, guard.Config{
		Argv: cfg.Command, Env: append(hookEnviron(os.Environ()), event.environment()...),
		Stdin: input, Stdout: os.Stdout, Stderr: os.Stderr,
		StopGrace: min(timeout/4, 2*time.Second), Deadline: lease.BootClock().Now() + timeout, Logger: logger,
	})
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		p.Stop()
	case <-p.Done():
	}
	exit, err := p.Wait()
	switch {
	case err != nil:
		return err
	case exit.Reason == guard.Deadline:
		return errHookLate
	case exit.Reason != guard.Exited:
		return fmt.Errorf("the program was stopped: %s", exit.Reason)
	case exit.Code != 0:
		return fmt.Errorf("exit code %d", exit.Code)
	}
	return nil
}

// hookEnviron is the server's environment without the server's settings, which may be secrets: what a hook
// starts must not act as the server by accident.
func hookEnviron(of []string) []string {
	return slices.DeleteFunc(of, func(v string) bool { return strings.HasPrefix(v, "UNDERSTUDY_") })
}

// input is the event as one line of JSON, to be read from a pipe: it fits in, so that a program that
// does not read it holds nobody up.
func (e hookEvent) input() (*os.File, error) {
	const mostLine = 32 << 10
	line, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	if len(line) > mostLine {
		return nil, fmt.Errorf("event %d has %d bytes; a hook gets at most %d", e.ID, len(line), mostLine)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = w.Write(append(line, '\n'))
	if closed := w.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

// environment has the same facts.
func (e hookEvent) environment() []string {
	var out []string
	for _, v := range [][2]string{
		{"ID", strconv.FormatInt(e.ID, 10)}, {"AT", e.At.UTC().Format(time.RFC3339Nano)}, {"ON", e.On},
		{"SUBJECT", e.Subject}, {"FROM", e.From}, {"TO", e.To}, {"TERM", strconv.FormatInt(e.Term, 10)},
		{"REASON", e.Reason}, {"DURATION_MS", strconv.FormatInt(e.DurationMS, 10)},
	} {
		out = append(out, "UNDERSTUDY_EVENT_"+v[0]+"="+strings.ReplaceAll(v[1], "\x00", ""))
	}
	return out
}

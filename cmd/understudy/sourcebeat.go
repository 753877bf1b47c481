package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

type sourceBeatFlags struct {
	start, fail bool
	code        int
	sent        string
	seq         int64
	timeout     time.Duration
}

func (a *app) sourceBeatCommand() *cobra.Command {
	var f sourceBeatFlags
	c := &cobra.Command{
		Use:   "beat CHECK SOURCE",
		Short: "Send a heartbeat of a source; exit 3 if its check is not known",
		Long: `Send a heartbeat: the source is alive and well. With --start a run starts, which ends with the next
heartbeat. With --fail, or a --code other than 0, the run has failed, which raises its alarm at once. A source is learned
from its first heartbeat, unless its check accepts declared sources only.

The heartbeat goes into the store, or with --server to an instance of the monitor, which accepts a ping key in place of
the token. Without an answer the command retries until --timeout. Exit code 0: the heartbeat is stored.`,
		Example: `  understudy source beat nightly-backup db-1
  understudy source beat nightly-backup db-1 --start; ./backup; understudy source beat nightly-backup db-1 --code $?
  understudy source beat fleet web-1 --server https://monitor.example --token-file ping.key`,
		Args: exactly("CHECK", "SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			b, err := f.beat(args[0], args[1])
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), f.timeout)
			defer cancel()
			if a.usesServer() {
				err = a.beatServer(ctx, b)
			} else {
				err = a.beatStore(ctx, b)
			}
			if err != nil || !a.json() {
				return err
			}
			return a.printJSON(map[string]string{"check": b.Check, "source": b.Source, "beat": "stored"})
		},
	}
	fs := c.Flags()
	fs.BoolVar(&f.start, "start", false, "a run starts")
	fs.BoolVar(&f.fail, "fail", false, "the run has failed")
	fs.IntVar(&f.code, "code", 0, "exit status of the run that ends: 0 is success, 1 to 255 is failure")
	fs.StringVar(&f.sent, "sent", "", "`TIME` of the heartbeat by the source's own clock, as 2026-01-02T03:04:05Z")
	fs.Int64Var(&f.seq, "seq", 0, "number of the heartbeat; one with the time and number of the last is a replay")
	fs.DurationVar(&f.timeout, "timeout", 2*callTimeout, "retry for this long")
	return c
}

func (f *sourceBeatFlags) beat(check, source string) (b monitor.Heartbeat, err error) {
	b = monitor.Heartbeat{Check: check, Source: source, Code: f.code, Seq: f.seq}
	switch {
	case f.start && (f.fail || f.code != 0):
		return b, usererr.Errorf("--start excludes --fail and --code: a run that starts has not ended")
	case f.code < 0 || f.code > 255:
		return b, usererr.Errorf("--code %d: exit statuses are 0 to 255", f.code)
	case f.timeout <= 0:
		return b, usererr.Errorf("--timeout %v: it must be above 0", f.timeout)
	case f.start:
		b.Signal = monitor.SignalStart
	case f.fail || f.code != 0:
		b.Signal = monitor.SignalFail
	}
	if f.sent != "" {
		if b.Sent, err = time.Parse(time.RFC3339Nano, f.sent); err != nil {
			return b, usererr.Errorf("--sent %q: use a time such as 2026-01-02T03:04:05Z", f.sent)
		}
	}
	return b, monitor.Declaration{Check: check, Source: source}.Validate()
}

// beatStore puts a beat into the store, as an instance would.
func (a *app) beatStore(ctx context.Context, b monitor.Heartbeat) error {
	return a.retry(ctx, func(ctx context.Context) error {
		st, err := a.openStore(ctx)
		if err != nil {
			return err
		}
		defer st.Close()
		t, err := a.Monitor(st)
		if err != nil {
			return err
		}
		return withAdvice(storeBeat(ctx, t, b))
	})
}

// retry tries again while nobody answers, until ctx ends: a beat that is
// stored twice does no harm.
func (a *app) retry(ctx context.Context, try func(context.Context) error) error {
	for retry := (backoff.Backoff{First: 200 * time.Millisecond, Most: 2 * time.Second}); ; {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := try(call)
		cancel()
		if err == nil || ctx.Err() != nil || !mayRecover(err) {
			return err
		}
		a.Log.Warn("outcome unknown or not stored; retrying", "err", err)
		if !retry.Wait(ctx) {
			return err
		}
	}
}

// storeBeat resolves the source and stores its beat. A source that is forgotten in
// between is learned again.
func storeBeat(ctx context.Context, t monitor.Store, b monitor.Heartbeat) error {
	for range 2 {
		found, err := t.ResolveSources(ctx, []monitor.SourceRef{{Check: b.Check, Source: b.Source}})
		if err != nil {
			return err
		}
		if found[0].Full {
			return errFull(b)
		}
		if found[0].ID == 0 {
			return unknownSource(ctx, t, b)
		}
		stored, err := t.RecordHeartbeats(ctx, monitor.HeartbeatBatch{
			// That this beat arrived proves nothing about those of others.
			Probes: []monitor.Probe{{Path: settings.StorePath, TrustFor: settings.StoreTrust, MaxGap: settings.StoreGap, NameOnly: true}},
			Beats: []monitor.HeartbeatUpdate{{
				Source: found[0].ID, Signal: b.Signal, Code: b.Code, Sent: b.Sent, Seq: b.Seq,
				BySender: found[0].SenderClock && !b.Sent.IsZero(), Count: 1,
			}},
		})
		if err != nil || len(stored.Unknown) == 0 {
			return err
		}
	}
	return unknownSource(ctx, t, b)
}

// errFull says why the source of b was not learned.
func errFull(b monitor.Heartbeat) error {
	return fmt.Errorf("%w: %q of check %q: %s", monitor.ErrNoSource, b.Source, b.Check, monitor.WhyFull)
}

// unknownSource says why a source is not known, and not learned.
func unknownSource(ctx context.Context, t monitor.Store, b monitor.Heartbeat) error {
	s, err := t.Settings(ctx)
	if err != nil {
		return err
	}
	for _, c := range s.Checks {
		if c.Name == b.Check && !c.Removed {
			return fmt.Errorf("%w: %q; check %q is fixed to declared sources: understudy source declare", monitor.ErrNoSource, b.Source, b.Check)
		}
	}
	return fmt.Errorf("%w: %q", monitor.ErrNoCheck, b.Check)
}

// beatServer sends a beat to an instance.
func (a *app) beatServer(ctx context.Context, b monitor.Heartbeat) error {
	c, err := a.serverClient()
	if err != nil {
		return err
	}
	signal := map[monitor.Signal]string{monitor.SignalStart: "start", monitor.SignalFail: "fail"}[b.Signal]
	return withAdvice(a.retry(ctx, func(ctx context.Context) error {
		taken, err := c.Beats(ctx, apitype.Beat{Check: b.Check, Source: b.Source, Signal: signal, Code: b.Code, Sent: b.Sent, Seq: b.Seq})
		refused, _ := errors.AsType[*client.Error](err)
		switch {
		case refused != nil && refused.Code == "no_route":
			return errors.New("the server takes no beats: its configuration has no part \"monitor\"")
		case refused != nil && (refused.Status == http.StatusTooManyRequests || refused.Status >= 500):
			return fmt.Errorf("%w: the server answered %d: %s", lease.ErrUnavailable, refused.Status, termtext.Line(refused.Error()))
		case err != nil:
			return apiError(err)
		case taken.Unknown > 0 && len(taken.Errors) > 0 && taken.Errors[0].Cause == apitype.CauseCheckFull:
			return errFull(b)
		case taken.Unknown > 0:
			return fmt.Errorf("%w: %q, or it is fixed to declared sources", monitor.ErrNoCheck, b.Check)
		case len(taken.Errors) > 0:
			return errors.New("the server refused the beat: " + termtext.Line(taken.Errors[0].Detail))
		}
		return nil
	}))
}

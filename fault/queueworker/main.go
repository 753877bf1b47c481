//go:build unix

// Command queueworker is an instance that delivers a queue for package fault. It
// can be told to kill or to stop itself at any step of a batch's way.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

// settings are the flags.
type settings struct {
	store, name, queue string
	kind, url          string
	windows            claim.Windows
	submit, grace      time.Duration
	concurrency        int
	webhook            target.WebhookConfig
}

func main() {
	var s settings
	flag.StringVar(&s.store, "store", "", "store's `URL`")
	flag.StringVar(&s.name, "name", "", "instance's `NAME`")
	flag.StringVar(&s.queue, "queue", "q", "queue's `NAME`")
	flag.StringVar(&s.kind, "target", "webhook", "webhook, sawtooth or scabbard")
	flag.StringVar(&s.url, "url", "", "target's `URL`")
	flag.DurationVar(&s.windows.First, "first", 0, "first window")
	flag.DurationVar(&s.windows.Second, "second", 0, "second window")
	flag.DurationVar(&s.submit, "submit", 0, "deadline of a submission")
	flag.DurationVar(&s.grace, "grace", 0, "stop grace")
	flag.IntVar(&s.concurrency, "concurrency", 8, "submissions at once")
	flag.StringVar(&s.webhook.StatusURL, "status", "", "webhook: `URL` with {id} that tells what became of a batch")
	flag.BoolVar(&s.webhook.Deduplicates, "recognises", false, "webhook: it deduplicates by id")
	resend := flag.Bool("resend", false, "webhook: what may have arrived is sent again")
	flag.BoolVar(&s.webhook.NotFoundIsFinal, "remembers", false, "webhook: that it does not know a batch proves something")
	flag.Parse()
	s.webhook.AtMostOnce = !*resend && !s.webhook.Deduplicates
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, "queueworker:", err)
		os.Exit(1)
	}
}

func run(s settings) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	st, queues, err := openStore(ctx, s.store, log)
	if err != nil {
		return err
	}
	defer st.Close()
	to, err := s.target()
	if err != nil {
		return err
	}
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store: st, Roster: st, Instance: lease.NewInstance(s.name, ""), Timing: s.windows.Timing(), Logger: log,
	})
	if err != nil {
		return err
	}
	g, err := readGate()
	if err != nil {
		return err
	}
	d, err := dispatch.New(dispatch.Config{
		Name: s.queue, Keeper: keeper, Claims: gatedTable{queues.Claims(), g}, Queue: gatedQueue{queues.Queue(), g},
		Target: gatedTarget{to, g}, Windows: s.windows, SubmitTimeout: s.submit, StopGrace: s.grace, Concurrency: s.concurrency,
		PollInterval: 200 * time.Millisecond, KeepFor: -1, Logger: log,
		Retry: dispatch.RetryPolicy{Initial: 50 * time.Millisecond, Max: time.Second, Attempts: -1},
	})
	if err != nil {
		return err
	}
	keep, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var kept sync.WaitGroup
	var keptErr error
	kept.Go(func() { keptErr = keeper.Run(keep) })
	err = d.Run(ctx)
	end()
	kept.Wait()
	return errors.Join(err, keptErr)
}

// openStore waits for a store that does not answer yet.
func openStore(ctx context.Context, url string, log *slog.Logger) (store.Store, store.Queues, error) {
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		st, err := open.Open(try, url, open.Options{Logger: log})
		cancel()
		if err == nil {
			queues, ok := st.(store.Queues)
			if !ok {
				return nil, nil, fmt.Errorf("%s has no queues", url)
			}
			return st, queues, nil
		}
		if ctx.Err() != nil || !errors.Is(err, lease.ErrUnavailable) && !errors.Is(err, lease.ErrUnknown) {
			return nil, nil, err
		}
		log.Warn("the store does not answer; trying again", "err", err)
		<-time.After(100 * time.Millisecond)
	}
}

func (s settings) target() (dispatch.Target, error) {
	at := target.HTTPConfig{URL: s.url}
	switch s.kind {
	case "webhook":
		s.webhook.HTTPConfig, s.webhook.Header = at, http.Header{"Worker": {s.name}}
		return target.NewWebhook(s.webhook)
	case "sawtooth":
		return target.NewSawtooth(target.SawtoothConfig{HTTPConfig: at})
	case "scabbard":
		return target.NewScabbard(target.ScabbardConfig{HTTPConfig: at})
	}
	return nil, fmt.Errorf("target %q", s.kind)
}

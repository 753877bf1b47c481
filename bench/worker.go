package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// workerRole is a process with one or more parties. It is told, a line each:
//
//	campaign ROLE HOLD   campaign for the role and hold it for HOLD, or until
//	                     told to stop when HOLD is 0
//	again ROLE HOLD      the same, again and again
//	stop                 give up what is held or waited for
//	calls                say how many leases were asked for and read since the last time
const workerRole = "worker"

// workerOptions are what a worker is told at its start.
type workerOptions struct {
	URL     string
	Timing  lease.Timing
	Parties int  // how many live in the process
	First   int  // number of the first one
	Beats   bool // say each renewal
	Own     bool // each party holds a role of its own beside what it is told
}

// party is one contender, of Understudy or of a peer.
type party interface {
	// campaign waits for the role, calls work once when it is won, and gives the
	// role back when that returns.
	campaign(ctx context.Context, role string, work func(ctx context.Context)) error
	close()
}

// worker is the process's state.
type worker struct {
	*child
	opt     workerOptions
	parties []party

	attempts, reads atomic.Int64

	mu     sync.Mutex
	cancel []context.CancelFunc // of what is campaigned for
	all    sync.WaitGroup
}

func runWorker(c *child, o workerOptions) error {
	w := &worker{child: c, opt: o}
	if err := w.open(context.Background()); err != nil {
		return err
	}
	w.say(saidReady)
	w.each(w.obey)
	w.stop()
	w.all.Wait()
	for _, p := range w.parties {
		p.close()
	}
	return nil
}

func (w *worker) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for i := range w.opt.Parties {
		name := fmt.Sprintf("party-%d", w.opt.First+i)
		var p party
		var err error
		if strings.HasPrefix(w.opt.URL, "etcd:") {
			p, err = newEtcdParty(w, name)
		} else {
			p, err = newParty(ctx, w, name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		w.parties = append(w.parties, p)
		if w.opt.Own {
			w.run(p, name, 0, false)
		}
	}
	return nil
}

func (w *worker) obey(words []string) {
	switch {
	case len(words) == 3 && (words[0] == "campaign" || words[0] == "again"):
		hold, err := time.ParseDuration(words[2])
		if err != nil {
			w.say(saidFailed, err.Error())
			return
		}
		for _, p := range w.parties {
			w.run(p, words[1], hold, words[0] == "again")
		}
	case len(words) == 1 && words[0] == "stop":
		w.stop()
	case len(words) == 1 && words[0] == "calls":
		w.say(saidResult, fmt.Sprint(w.attempts.Swap(0)), fmt.Sprint(w.reads.Swap(0)))
	default:
		w.say(saidFailed, fmt.Sprintf("unknown command %q", words))
	}
}

// run lets a party campaign in the background.
func (w *worker) run(p party, role string, hold time.Duration, again bool) {
	ctx, cancel := context.WithCancel(context.Background())
	w.mu.Lock()
	w.cancel = append(w.cancel, cancel)
	w.mu.Unlock()
	quiet := w.opt.Own && hold == 0
	w.all.Go(func() {
		for {
			err := p.campaign(ctx, role, func(ctx context.Context) {
				now := w.clock.Now()
				if !quiet {
					w.sayAt(now, saidStarted)
				}
				if hold == 0 {
					<-ctx.Done()
					return
				}
				timer := time.NewTimer(hold)
				defer timer.Stop()
				select {
				case <-ctx.Done():
				case <-timer.C:
					w.say(saidStopping)
				}
			})
			switch {
			case ctx.Err() != nil:
				return
			case errors.Is(err, lease.ErrLost):
				w.say(saidLost, err.Error())
				return
			case err != nil:
				w.say(saidFailed, err.Error())
				return
			case !again:
				return
			}
		}
	})
}

// stop stamps the moment before anything is told to stop.
func (w *worker) stop() {
	now := w.clock.Now()
	w.mu.Lock()
	for _, cancel := range w.cancel {
		cancel()
	}
	w.cancel = nil
	w.mu.Unlock()
	w.sayAt(now, saidStopping)
}

// beat says that a renewal is sent; the returned function that it was accepted.
func (w *worker) beat() (accepted func()) {
	if !w.opt.Beats {
		return func() {}
	}
	at := w.clock.Now()
	w.sayAt(at, saidSent)
	return func() { w.sayAt(at, saidRenewed) }
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// workerArg makes this program a worker: one process with one or more parties.
const workerArg = "worker"

// A worker reads commands from its standard input, a line each, and ends when
// that is closed:
//
//	campaign ROLE HOLD   campaign for the role and hold it for HOLD, or until
//	                     told to stop when HOLD is 0
//	again ROLE HOLD      the same, again and again
//	stop                 give up what is held or waited for
//	calls                report how many calls to the store there were, by method
//
// and writes what happens, a line each: WHAT, the boot-time clock in nanoseconds,
// and more words.
const (
	saidReady    = "ready"    // the parties have their sessions
	saidStarted  = "started"  // the role was won and the work starts; the party's number
	saidStopping = "stopping" // the work is about to stop; the party's number
	saidSent     = "sent"     // a renewal is about to be sent
	saidRenewed  = "renewed"  // that renewal was accepted: the moment at which it was sent
	saidCall     = "call"     // a call about a role that is watched; its method
	saidCalls    = "calls"    // METHOD=COUNT …
	saidLost     = "lost"     // the role was lost while it was held, and why
	saidFailed   = "failed"   // and why
)

// workerOptions are what a worker is told at its start.
type workerOptions struct {
	url     string
	timing  lease.Timing
	parties int  // how many live in the process
	first   int  // number of the first one
	beats   bool // say each renewal
	watched string
	// own makes each party hold a role of its own beside what it is told.
	own bool
}

func (o workerOptions) args() []string {
	return []string{workerArg, o.url, o.timing.Interval.String(), o.timing.Timeout.String(),
		strconv.Itoa(o.parties), strconv.Itoa(o.first), strconv.FormatBool(o.beats), strconv.FormatBool(o.own), o.watched}
}

func parseWorker(args []string) (o workerOptions, err error) {
	if len(args) != 8 {
		return o, fmt.Errorf("a worker takes 8 arguments, not %d", len(args))
	}
	o.url, o.watched = args[0], args[7]
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	var e error
	o.timing.Interval, e = time.ParseDuration(args[1])
	keep(e)
	o.timing.Timeout, e = time.ParseDuration(args[2])
	keep(e)
	o.parties, e = strconv.Atoi(args[3])
	keep(e)
	o.first, e = strconv.Atoi(args[4])
	keep(e)
	o.beats, e = strconv.ParseBool(args[5])
	keep(e)
	o.own, e = strconv.ParseBool(args[6])
	keep(e)
	return o, err
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
	opt     workerOptions
	clock   lease.Clock
	out     sync.Mutex
	calls   counts
	parties []party

	mu     sync.Mutex
	cancel []context.CancelFunc // of what is campaigned for
	all    sync.WaitGroup
}

func workerMain(args []string) int {
	o, err := parseWorker(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench worker:", err)
		return 2
	}
	w := &worker{opt: o, clock: lease.BootClock(), calls: counts{n: map[string]int64{}}}
	if strings.HasPrefix(o.url, serverScheme) {
		return serveEtcd(strings.TrimPrefix(o.url, serverScheme), w.say)
	}
	if err := w.open(context.Background()); err != nil {
		w.say(saidFailed, w.clock.Now(), err.Error())
		return 1
	}
	w.say(saidReady, w.clock.Now())
	w.obey()
	w.stop()
	w.all.Wait()
	for _, p := range w.parties {
		p.close()
	}
	return 0
}

func (w *worker) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for i := range w.opt.parties {
		name := fmt.Sprintf("party-%d", w.opt.first+i)
		var p party
		var err error
		if strings.HasPrefix(w.opt.url, "etcd:") {
			p, err = newEtcdParty(ctx, w, name)
		} else {
			p, err = newParty(ctx, w, name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		w.parties = append(w.parties, p)
		if w.opt.own {
			w.run(p, i, name, 0, false)
		}
	}
	return nil
}

func (w *worker) obey() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 3 && (words[0] == "campaign" || words[0] == "again"):
			hold, err := time.ParseDuration(words[2])
			if err != nil {
				w.say(saidFailed, w.clock.Now(), err.Error())
				continue
			}
			for i, p := range w.parties {
				w.run(p, i, words[1], hold, words[0] == "again")
			}
		case len(words) == 1 && words[0] == "stop":
			w.stop()
		case len(words) == 1 && words[0] == "calls":
			w.say(saidCalls, w.clock.Now(), w.calls.String())
		default:
			w.say(saidFailed, w.clock.Now(), "unknown command "+lines.Text())
		}
	}
}

// run lets a party campaign in the background.
func (w *worker) run(p party, number int, role string, hold time.Duration, again bool) {
	ctx, cancel := context.WithCancel(context.Background())
	w.mu.Lock()
	w.cancel = append(w.cancel, cancel)
	w.mu.Unlock()
	who := strconv.Itoa(w.opt.first + number)
	quiet := w.opt.own && hold == 0
	w.all.Go(func() {
		for {
			err := p.campaign(ctx, role, func(ctx context.Context) {
				now := w.clock.Now()
				if quiet {
					<-ctx.Done()
					return
				}
				w.say(saidStarted, now, who)
				if hold == 0 {
					<-ctx.Done()
					return
				}
				timer := time.NewTimer(hold)
				defer timer.Stop()
				select {
				case <-ctx.Done():
				case <-timer.C:
					w.say(saidStopping, w.clock.Now(), who)
				}
			})
			if errors.Is(err, lease.ErrLost) && ctx.Err() == nil {
				w.say(saidLost, w.clock.Now(), err.Error())
				return
			}
			if err != nil && ctx.Err() == nil {
				w.say(saidFailed, w.clock.Now(), err.Error())
				return
			}
			if !again || ctx.Err() != nil {
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
	w.say(saidStopping, now)
}

// say writes one line in one write, so that a kill leaves no half of one.
func (w *worker) say(what string, at time.Duration, more ...string) {
	line := what + " " + strconv.FormatInt(int64(at), 10)
	for _, m := range more {
		line += " " + strings.ReplaceAll(m, "\n", " ")
	}
	w.out.Lock()
	defer w.out.Unlock()
	_, _ = os.Stdout.WriteString(line + "\n") // nobody is left to tell
}

// beat says that a renewal is sent; the returned function that it was accepted.
func (w *worker) beat() (accepted func()) {
	if !w.opt.beats {
		return func() {}
	}
	at := w.clock.Now()
	w.say(saidSent, at)
	return func() { w.say(saidRenewed, at) }
}

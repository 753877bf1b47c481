package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// deliverArg makes this program deliver a queue until it is told "stop", or its
// standard input is closed. It says ready, stopping and stopped.
const deliverArg = "deliver"

const saidStopped = "stopped" // all it started has ended

// queueOptions tell a process what to deliver, and where.
type queueOptions struct {
	Kind        string // a store's, or "river"
	URL         string
	Target      string // URL that it posts to
	Concurrency int
	First       time.Duration // windows; 0 for the defaults
	Second      time.Duration
	Most        int    // keys claimed at once; 0 for the default
	Asked       string // URL to ask about a batch before it is sent again; "" where that is safe at once
	Profile     string // file for a profile of the processor
}

func (o queueOptions) args() []string {
	data, _ := json.Marshal(o) // of plain fields, cannot fail
	return []string{deliverArg, string(data)}
}

func startDeliverer(b *bed, o queueOptions) *member {
	m := launch(b, o.args())
	m.await(saidReady, time.Minute)
	return m
}

func deliverMain(args []string) int {
	var o queueOptions
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		fmt.Fprintln(os.Stderr, "bench deliver:", err)
		return 2
	}
	clock := lease.BootClock()
	said := &worker{clock: clock}
	if o.Profile != "" {
		f, err := os.Create(o.Profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench deliver:", err)
			return 2
		}
		defer pprof.StopCPUProfile()
	}
	stop := make(chan struct{})
	var once sync.Once
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			break
		}
		once.Do(func() {
			said.say(saidStopping, clock.Now())
			close(stop)
		})
	}()
	run := deliver
	if o.Kind == "river" {
		run = riverRun
	}
	counts, err := run(context.Background(), o, stop, func() { said.say(saidReady, clock.Now()) })
	if err != nil && !errors.Is(err, context.Canceled) {
		said.say(saidFailed, clock.Now(), err.Error())
		return 1
	}
	said.say(saidStopped, clock.Now(), counts)
	return 0
}

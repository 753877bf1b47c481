package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
)

// sessionsRole is a process whose instances are sessions of one server's API: each holds a role of its own, and one request
// renews them all.
const sessionsRole = "sessions"

// sessionsOptions tell such a process what to do.
type sessionsOptions struct {
	Server string // its address
	First  int    // number of the first instance
	Count  int
}

// runSessions keeps the sessions until its input ends. One that lapses ends the process: what is measured would be less.
func runSessions(c *child, o sessionsOptions) error {
	server, err := client.New(client.Config{URL: "http://" + o.Server, HTTP: &http.Client{Timeout: lease.DefaultTimeout}})
	if err != nil {
		return err
	}
	ctx := context.Background()
	// The store is busy while a crowd starts.
	retryBusy := func(call func() error) (err error) {
		for range 100 {
			err = call()
			if refused, ok := errors.AsType[*client.Error](err); !ok || refused.Status != http.StatusServiceUnavailable {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		return err
	}
	var ids []string
	renew := func() error {
		return retryBusy(func() error {
			out, err := server.RenewSessions(ctx, ids...)
			if err == nil && len(out.Lapsed) > 0 {
				err = fmt.Errorf("%d sessions have lapsed", len(out.Lapsed))
			}
			return err
		})
	}
	last := time.Now()
	for i := range o.Count {
		name := fmt.Sprintf("party-%d", o.First+i)
		var s apitype.StartedSession
		if err := retryBusy(func() (err error) {
			s, err = server.StartSession(ctx, apitype.NewSession{Name: name})
			return err
		}); err != nil {
			return err
		}
		ids = append(ids, s.Session)
		if err := retryBusy(func() error {
			_, err := server.Acquire(ctx, elect.Space, name, s.Session, 0)
			return err
		}); err != nil {
			return err
		}
		if time.Since(last) > lease.DefaultInterval {
			last = time.Now()
			if err := renew(); err != nil {
				return err
			}
		}
	}
	c.say(saidReady)
	closed := make(chan struct{})
	go func() { c.untilClosed(); close(closed) }()
	for tick := time.NewTicker(lease.DefaultInterval); ; {
		select {
		case <-closed:
			return nil
		case <-tick.C:
			if err := renew(); err != nil {
				return err
			}
		}
	}
}

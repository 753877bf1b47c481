package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
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

var errServerBusy = errors.New("the server is busy")

// runSessions keeps the sessions until its input ends. One that lapses ends the process: what is measured would be less.
func runSessions(c *child, o sessionsOptions) error {
	client := &http.Client{Timeout: lease.DefaultTimeout}
	try := func(method, path string, body, out any) error {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r, err := http.NewRequest(method, "http://"+o.Server+path, bytes.NewReader(data))
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode == http.StatusServiceUnavailable {
			return errServerBusy
		}
		if answer.StatusCode >= http.StatusBadRequest {
			return fmt.Errorf("%s %s: %s", method, path, answer.Status)
		}
		return json.NewDecoder(answer.Body).Decode(out)
	}
	ask := func(method, path string, body, out any) (err error) {
		for range 100 { // the store is busy while a crowd starts
			if err = try(method, path, body, out); err != errServerBusy {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		return err
	}
	var all apitype.SessionIDs
	renew := func() error {
		var out apitype.Renewals
		if err := ask("POST", "/v1/sessions/renew", all, &out); err != nil {
			return err
		}
		if len(out.Lapsed) > 0 {
			return fmt.Errorf("%d sessions have lapsed", len(out.Lapsed))
		}
		return nil
	}
	last := time.Now()
	for i := range o.Count {
		var s apitype.StartedSession
		name := fmt.Sprintf("party-%d", o.First+i)
		if err := ask("POST", "/v1/sessions", apitype.NewSession{Name: name}, &s); err != nil {
			return err
		}
		all.Sessions = append(all.Sessions, s.Session)
		if err := ask("PUT", "/v1/leases/role/"+name, apitype.AcquireRequest{Session: s.Session}, new(apitype.Lease)); err != nil {
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

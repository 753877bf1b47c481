package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/cache/client"
)

// Roles of this program for the cache.
const (
	loadRole = "cache-load" // clients
	bareRole = "cache-bare" // an echo and an HTTP server, to compare with
	spinRole = "cache-spin" // uses up a core
)

// loadOptions tell a process of clients what to ask.
type loadOptions struct {
	Kind    string   // socket, client, echo, http, origin
	Servers []string // one, or all peers
	Key     string
	Conns   int // connections, or clients
	Flight  int // requests in flight on each
}

// lots is what a process of clients found out in one round.
type lots struct {
	Count   int // replies
	Took    time.Duration
	P50     time.Duration
	P99     time.Duration
	Samples sample `json:",omitempty"`
	Failed  string `json:",omitempty"`
}

func (l lots) rate() float64 { return float64(l.Count) / l.Took.Seconds() }

func lotsOf(took []sample, began time.Time) lots {
	out := lots{Took: time.Since(began)}
	all := slices.Concat(took...)
	slices.Sort(all)
	if out.Count = len(all); out.Count > 0 {
		out.P50, out.P99 = all[out.Count/2], all[out.Count*99/100]
	}
	return out
}

// tellLots has a process of clients do something and returns what it found.
func tellLots(b *bed, m *member, format string, args ...any) (out lots) {
	m.sendCommand(format, args...)
	said := m.await(saidResult, 10*time.Minute)
	if err := json.Unmarshal([]byte(said.more), &out); err != nil || out.Failed != "" {
		b.Fatalf("bench: clients: %v %s", err, out.Failed)
	}
	return out
}

// hammerer asks for one key for a duration, as fast as it goes.
type hammerer interface {
	hammer(d time.Duration) (lots, error)
}

// eacher asks for keys by number.
type eacher interface {
	each(prefix string, from, to int) (lots, error)
}

func runLoad(c *child, o loadOptions) error {
	a, err := newAsker(o)
	if err != nil {
		return err
	}
	c.answer(func(words []string) (lots, error) { return obey(a, words) })
	return nil
}

// newAsker returns a hammerer, an eacher, or both.
func newAsker(o loadOptions) (any, error) {
	switch o.Kind {
	case "socket":
		return newSockets(o)
	case "client":
		return newClients(o)
	case "echo":
		return newEchoes(o), nil
	case "http":
		return newBrowsers(o), nil
	case "origin":
		return directly(o.Servers[0]), nil
	}
	return nil, fmt.Errorf("unknown kind %q", o.Kind)
}

// obey is one command: "hammer DURATION" or "each PREFIX FROM TO".
func obey(a any, words []string) (lots, error) {
	if h, ok := a.(hammerer); ok && len(words) == 2 && words[0] == "hammer" {
		d, err := time.ParseDuration(words[1])
		if err != nil {
			return lots{}, err
		}
		return h.hammer(d)
	}
	if e, ok := a.(eacher); ok && len(words) == 4 && words[0] == "each" {
		from, err := strconv.Atoi(words[2])
		to, err2 := strconv.Atoi(words[3])
		if err = errors.Join(err, err2); err != nil {
			return lots{}, err
		}
		return e.each(words[1], from, to)
	}
	return lots{}, fmt.Errorf("unknown command %q", words)
}

// coldKey is a key by number.
func coldKey(prefix string, i int) string { return fmt.Sprintf("%s-%06d", prefix, i) }

// clients ask with the client of Go, each with several goroutines.
type clients struct {
	o   loadOptions
	all []*client.Client
}

func newClients(o loadOptions) (*clients, error) {
	out := &clients{o: o}
	for range o.Conns {
		c, err := client.New(client.Config{Servers: o.Servers, Timeout: time.Minute})
		if err != nil {
			return nil, err
		}
		if o.Key != "" {
			if _, err := c.Get(context.Background(), o.Key, client.Options{}); err != nil {
				return nil, err
			}
		}
		out.all = append(out.all, c)
	}
	return out, nil
}

func (c *clients) hammer(d time.Duration) (lots, error) {
	began := time.Now()
	return c.run(func(g int, one *client.Client, took *sample) error {
		for now := time.Now(); now.Sub(began) < d; {
			if _, err := one.Get(context.Background(), c.o.Key, client.Options{}); err != nil {
				return err
			}
			at := now
			now = time.Now()
			*took = append(*took, now.Sub(at))
		}
		return nil
	})
}

func (c *clients) each(prefix string, from, to int) (lots, error) {
	n := len(c.all) * c.o.Flight
	return c.run(func(g int, one *client.Client, took *sample) error {
		for i := from + g; i < to; i += n {
			at := time.Now()
			if _, err := one.Get(context.Background(), coldKey(prefix, i), client.Options{}); err != nil {
				return err
			}
			*took = append(*took, time.Since(at))
		}
		return nil
	})
}

// run calls f on a goroutine for each request that may be in flight.
func (c *clients) run(f func(g int, one *client.Client, took *sample) error) (lots, error) {
	n := len(c.all) * c.o.Flight
	took, failed := make([]sample, n), make([]error, n)
	began := time.Now()
	var all sync.WaitGroup
	for g := range n {
		took[g] = make(sample, 0, 1<<16)
		all.Go(func() { failed[g] = f(g, c.all[g%len(c.all)], &took[g]) })
	}
	all.Wait()
	return lotsOf(took, began), errors.Join(failed...)
}

// runSpin uses up one core.
func runSpin(c *child, _ struct{}) error {
	c.say(saidReady)
	go func() {
		runtime.LockOSThread()
		for spun := new(atomic.Int64); ; spun.Add(1) {
		}
	}()
	c.untilClosed()
	return nil
}

//go:build linux

package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/cache/client"
)

// CacheLoad are clients that ask each peer all the time, by the client protocol and
// over HTTP, and remember what they were told.
type CacheLoad struct {
	Peers *Peers
	// Keys is how many different ones are asked for, Prefix what they begin with; 8 and "k".
	Keys   int
	Prefix string
	// Every is how long a client waits between its questions; 20 ms.
	Every time.Duration
	// Removals is how long passes between removals; 0: there are none.
	Removals time.Duration
	// Late: see [CacheEvidence]; 5 s, by which clocks may be off.
	Late time.Duration
	// Patience of a question; 3 s.
	Patience time.Duration
	Seed     uint64

	mu       sync.Mutex
	answers  []Answer
	removals []Taken
	running  sync.WaitGroup
	stop     context.CancelFunc
	clients  []*client.Client
}

// Start starts to ask.
func (l *CacheLoad) Start() {
	if l.Keys == 0 {
		l.Keys = 8
	}
	if l.Prefix == "" {
		l.Prefix = "k"
	}
	if l.Every == 0 {
		l.Every = 20 * time.Millisecond
	}
	if l.Late == 0 {
		l.Late = 5 * time.Second
	}
	if l.Patience == 0 {
		l.Patience = 3 * time.Second
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	for n, p := range l.Peers.all {
		random := rand.New(rand.NewPCG(l.Seed, uint64(n)))
		c := NewCacheClient(l.Peers.tb, p)
		l.clients = append(l.clients, c)
		l.running.Go(func() {
			l.ask(ctx, random, func(q question) Answer { return p.Ask(ctx, c, q.key, q.options, l.Patience) })
		})
		if p.Worker {
			continue
		}
		other := rand.New(rand.NewPCG(l.Seed, 100+uint64(n)))
		l.running.Go(func() { l.ask(ctx, other, func(q question) Answer { return l.askHTTP(p, q) }) })
	}
	if l.Removals > 0 {
		l.running.Go(func() { l.remove(ctx, rand.New(rand.NewPCG(l.Seed, 200))) })
	}
	l.Peers.tb.Cleanup(func() { l.Stop() })
}

// NewCacheClient is a client of one peer, or of many, until the test ends.
func NewCacheClient(tb interface {
	Fatal(...any)
	Cleanup(func())
}, peers ...*Peer) *client.Client {
	cfg := client.Config{Timeout: time.Minute}
	for _, p := range peers {
		cfg.Servers = append(cfg.Servers, p.API)
	}
	c, err := client.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

type question struct {
	key     string
	options client.Options
}

// draw is a question: mostly for any copy, sometimes for a fresh one, rarely for a
// new one.
func (l *CacheLoad) draw(random *rand.Rand) question {
	q := question{key: fmt.Sprint(l.Prefix, random.IntN(l.Keys))}
	switch n := random.IntN(20); {
	case n < 6:
		q.options.After = time.Now()
	case n < 7:
		q.options.Refresh = true
	}
	return q
}

func (l *CacheLoad) ask(ctx context.Context, random *rand.Rand, do func(question) Answer) {
	for ctx.Err() == nil {
		a := do(l.draw(random))
		if ctx.Err() == nil {
			l.note(a)
		}
		select {
		case <-time.After(time.Duration(random.Int64N(int64(2 * l.Every)))):
		case <-ctx.Done():
		}
	}
}

func (l *CacheLoad) note(a Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, a)
}

// Ask asks the peer by the client protocol.
func (p *Peer) Ask(ctx context.Context, c *client.Client, key string, o client.Options, within time.Duration) Answer {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	a := Answer{Key: key, Peer: p.Name, Life: p.Life(), After: o.After, Refresh: o.Refresh, Asked: since()}
	item, err := c.Get(ctx, key, o)
	a.Got, a.Term, a.Expire, a.Value, a.Err = since(), item.Term, item.Expire, string(item.Value), err
	if p.Life() != a.Life {
		a.Life = -1
	}
	return a
}

func (l *CacheLoad) askHTTP(p *Peer, q question) Answer {
	query := ""
	switch {
	case q.options.Refresh:
		query = "refresh"
	case !q.options.After.IsZero():
		query = "max-stale=0"
	}
	a := p.Get(q.key, query, l.Patience)
	a.Refresh = q.options.Refresh
	return a
}

// remove removes random keys on random peers.
func (l *CacheLoad) remove(ctx context.Context, random *rand.Rand) {
	for ctx.Err() == nil {
		p := l.Peers.all[random.IntN(len(l.Peers.all))]
		if t, err := p.Remove(fmt.Sprint(l.Prefix, random.IntN(l.Keys))); err == nil && !p.Worker {
			l.mu.Lock()
			l.removals = append(l.removals, t)
			l.mu.Unlock()
		}
		select {
		case <-time.After(time.Duration(random.Int64N(int64(2 * l.Removals)))):
		case <-ctx.Done():
		}
	}
}

// Stop ends it.
func (l *CacheLoad) Stop() {
	l.stop()
	l.running.Wait()
}

// Judge reads what came of it.
func (l *CacheLoad) Judge() CacheVerdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	return JudgeCache(CacheEvidence{Calls: l.Peers.Origin.Calls(), Answers: slices.Clone(l.answers), Removals: slices.Clone(l.removals), Late: l.Late})
}

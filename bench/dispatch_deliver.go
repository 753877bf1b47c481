package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

// queueName is the one queue of every database here.
const queueName = "bench"

// queueStore is a store that has queues.
type queueStore interface {
	store.Store
	Claims() claim.KeyTable
	Queue() dispatch.Queue
	QueueAdmin() dispatch.Admin
}

func openQueues(ctx context.Context, url string) (queueStore, error) {
	st, err := open.Open(ctx, url, open.Options{})
	if err != nil {
		return nil, err
	}
	q, ok := st.(queueStore)
	if !ok {
		_ = st.Close()
		return nil, fmt.Errorf("the store %s has no queues", url)
	}
	return q, nil
}

// delivererRole delivers a queue until it is told "stop", or its standard input
// is closed. It says ready, stopping and stopped.
const delivererRole = "deliverer"

// queueOptions tell a process what to deliver, and where.
type queueOptions struct {
	Kind        string // a store's, or "river"
	URL         string
	Target      string // URL that it posts to
	Concurrency int
	First       time.Duration // windows; 0 for the defaults
	Second      time.Duration
	Most        int    // keys claimed at once; 0 for the default
	Asked       string // URL to ask about a message before it is sent again; "" where that is safe at once
}

func runDeliverer(c *child, o queueOptions) error {
	stop := make(chan struct{})
	stopping := sync.OnceFunc(func() {
		c.say(saidStopping)
		close(stop)
	})
	go func() {
		c.each(func([]string) { stopping() })
		stopping()
	}()
	run := deliver
	if o.Kind == riverKind {
		run = riverRun
	}
	counts, err := run(context.Background(), o, stop, func() { c.say(saidReady) })
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	c.say(saidStopped, counts)
	return nil
}

// deliver runs a dispatcher until stop is closed, and tells its counts.
func deliver(ctx context.Context, o queueOptions, stop <-chan struct{}, started func()) (counts string, err error) {
	st, err := openQueues(ctx, o.URL)
	if err != nil {
		return "", err
	}
	defer st.Close()
	windows := claim.Windows{First: o.First, Second: o.Second}.WithDefaults()
	keeper, err := lease.NewKeeper(lease.KeeperConfig{
		Store: st, Roster: st, Instance: lease.NewInstance("bench", ""), Timing: windows.Timing(),
	})
	if err != nil {
		return "", err
	}
	hook := target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: o.Target, Concurrency: o.Concurrency}, Deduplicates: true}
	if o.Asked != "" {
		hook.Deduplicates, hook.NotFoundIsFinal, hook.StatusURL = false, true, o.Asked
	}
	to, err := target.NewWebhook(hook)
	if err != nil {
		return "", err
	}
	d, err := dispatch.New(dispatch.Config{
		Name: queueName, Keeper: keeper, Claims: st.Claims(), Queue: st.Queue(), Target: to, Windows: windows,
		Concurrency: o.Concurrency, MaxKeys: o.Most, SubmitTimeout: min(15*time.Second, windows.Second/2),
	})
	if err != nil {
		return "", err
	}
	var keeping sync.WaitGroup
	kept, cancelKept := context.WithCancel(ctx)
	keeping.Go(func() { _ = keeper.Run(kept) })
	defer keeping.Wait()
	defer cancelKept()
	if _, err := keeper.Session(ctx); err != nil {
		return "", err
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { <-stop; cancel() }()
	started()
	err = d.Run(running)
	return fmt.Sprintf("%+v", d.Stats()), err
}

// makeQueue makes the queue of an empty store.
func makeQueue(ctx context.Context, b *bed, url string) {
	st, err := openQueues(ctx, url)
	if err == nil {
		defer st.Close()
		err = st.QueueAdmin().CreateQueue(ctx, queueName)
	}
	b.check(err, "making a queue")
}

// fillers enqueue side by side where the database gains by it.
const fillers = 4

// fill makes the queue and enqueues per messages of each key, the keys in turn.
func fill(ctx context.Context, b *bed, url string, keys, per int) {
	makeQueue(ctx, b, url)
	sides := fillers
	if strings.HasPrefix(url, "sqlite:") {
		sides = 1
	}
	var all sync.WaitGroup
	for side := range sides {
		all.Go(func() {
			st, err := openQueues(ctx, url)
			b.check(err, "opening the store")
			defer st.Close()
			// Each has keys of its own, so that their order is that of the numbers.
			fillKeys(ctx, b, st, keys*side/sides, keys*(side+1)/sides, per)
		})
	}
	all.Wait()
	if sides > 1 {
		vacuumAndCheckpoint(ctx, b, url)
	}
}

func fillKeys(ctx context.Context, b *bed, st queueStore, from, to, per int) {
	for n := 1; n <= per; n++ {
		for first := from; first < to; first += claim.MaxKeys {
			var all []dispatch.Message
			for k := first; k < min(to, first+claim.MaxKeys); k++ {
				all = append(all, post(keyName(k), n, 0))
			}
			_, err := st.QueueAdmin().Add(ctx, all)
			b.check(err, "enqueueing")
		}
	}
}

// post is a message of the queue.
func post(key string, n int, at time.Duration) dispatch.Message {
	return dispatch.Message{
		Queue: queueName, Key: key, ID: fmt.Sprintf("%s-%d", key, n), ContentType: "application/json", Payload: message(key, n, at),
	}
}

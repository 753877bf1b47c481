package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

// trial is two instances of one queue. The submissions of the first hang at the
// sink's gate, so that it keeps its keys: a few with a message under way, the rest
// idle. The second joins, gets its share, and the first ends in that moment.
type trial struct {
	b     *bed
	place place
	// windows, of keys and how many of these have a submission under way.
	windows   claim.Windows
	keys, few int
	asks      bool // the target must be asked before a message is sent again

	to            *sink
	session       string // of the first instance
	first, second *member
}

// Windows of most trials, so that they take seconds.
var shortWindows = claim.Windows{First: 5 * time.Second, Second: 20 * time.Second}

// begin runs both instances until the second has its share.
func (t *trial) begin(ctx context.Context) {
	fill(ctx, t.b, t.place.url, t.keys, 1)
	t.to = startSink(t.b)
	o := queueOptions{Kind: t.place.kind, URL: t.place.url, Target: t.to.url + "/gate/first", Concurrency: t.few, Most: t.keys,
		First: t.windows.First, Second: t.windows.Second}
	if t.asks {
		o.Asked = t.to.url + "/status/{id}"
	}
	t.first = start(t.b, delivererRole, o)
	waitFor(t.b, "the first instance has all keys", func() bool {
		if rows := t.rows(ctx); len(rows) > 0 {
			t.session = rows[0].Session
		}
		idle, inStep := t.held(ctx)
		return t.session != "" && len(idle)+len(inStep) == t.keys && len(inStep) == t.few
	})
	o.Target, o.Concurrency = t.to.url+"/in/second", 64
	t.second = start(t.b, delivererRole, o)
	t.to.await(ctx, 1, time.Minute)
}

func waitFor(b *bed, what string, f func() bool) {
	for deadline := time.Now().Add(time.Minute); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("bench: it takes more than a minute until %s", what)
		}
	}
}

// rows of the claims that there are.
func (t *trial) rows(ctx context.Context) []claim.Row {
	st, err := openQueues(ctx, t.place.url)
	t.b.check(err, "opening the store")
	defer st.Close()
	rows, err := st.Claims().List(ctx, claim.Query{Space: dispatch.Space(queueName)})
	t.b.check(err, "listing claims")
	return rows
}

// held are the keys that the first instance holds.
func (t *trial) held(ctx context.Context) (idle, inStep []string) {
	for _, row := range t.rows(ctx) {
		switch {
		case row.Session != t.session:
		case row.InStep:
			inStep = append(inStep, row.Key)
		default:
			idle = append(idle, row.Key)
		}
	}
	return idle, inStep
}

// after is how long after a moment the second instance delivered each key.
func (t *trial) after(ctx context.Context, at time.Duration, keys []string) (out sample) {
	firsts := t.to.firsts()
	for _, key := range keys {
		if when, came := firsts[key]; came && when > at {
			out = append(out, when-at)
		}
	}
	return out
}

// kill ends the first instance with SIGKILL.
func (t *trial) kill(ctx context.Context) (idle, inStep sample) {
	t.begin(ctx)
	at := lease.BootClock().Now()
	t.first.kill()
	idleKeys, inStepKeys := t.held(ctx)
	t.to.await(ctx, int64(t.keys), t.windows.Second+t.windows.First+time.Minute)
	return t.after(ctx, at, idleKeys), t.after(ctx, at, inStepKeys)
}

// stop lets the first instance stop in order, and the target answer it.
func (t *trial) stop(ctx context.Context) sample {
	t.begin(ctx)
	idle, _ := t.held(ctx)
	t.first.sendCommand("stop")
	stopping := t.first.await(saidStopping, time.Minute)
	t.to.post("/open")
	t.to.await(ctx, int64(t.keys), time.Minute)
	return t.after(ctx, stopping.at, idle)
}

// claims measures how long keys wait for the next instance when one ends.
func claims(ctx context.Context, b *bed, o options, r *Report) {
	for _, kind := range []string{"postgres", "sqlite"} {
		places := func() place { return startOne(b, kind) }
		if kind == "postgres" {
			server := startPostgres(b, nil)
			places = func() place { return place{kind: kind, url: server.NewDatabase(b)} }
		}
		var stopped sample
		for range 2 * o.drains {
			t := trial{b: b, place: places(), windows: shortWindows, keys: 100, few: 4}
			stopped = append(stopped, t.stop(ctx)...)
			t.second.end()
		}
		addTakeovers(r, kind, "stopped gracefully, idle keys", stopped, 100*time.Millisecond)

		var mu sync.Mutex
		var all sync.WaitGroup
		got := map[string]sample{}
		run := func(t trial, idle, inStep string) {
			t.b, t.place = b, places()
			all.Go(func() {
				i, s := t.kill(ctx)
				mu.Lock()
				defer mu.Unlock()
				got[idle], got[inStep] = append(got[idle], i...), append(got[inStep], s...)
			})
		}
		short := fmt.Sprintf("killed, windows %v and %v, ", shortWindows.First, shortWindows.Second)
		usual := claim.Windows{}.WithDefaults()
		long := fmt.Sprintf("killed, windows %v and %v, ", usual.First, usual.Second)
		for range o.drains {
			run(trial{windows: shortWindows, keys: 400, few: 8, asks: true}, short+"idle keys", short+"under way")
		}
		run(trial{windows: shortWindows, keys: 400, few: 8}, short+"idle keys", short+"under way, sent again safely")
		run(trial{windows: usual, keys: 400, few: 8, asks: true}, long+"idle keys", long+"under way")
		all.Wait()
		for _, name := range []struct {
			name  string
			bound time.Duration
		}{
			{short + "idle keys", shortWindows.First}, {short + "under way, sent again safely", shortWindows.First}, {short + "under way", shortWindows.Second},
			{long + "idle keys", usual.First}, {long + "under way", usual.Second},
		} {
			addTakeovers(r, kind, name.name, got[name.name], name.bound+time.Second)
		}
	}
}

func addTakeovers(r *Report, kind, name string, s sample, bound time.Duration) {
	r.add(Figure{Section: "claims", Subject: kind, Name: name + ", p99", Value: millis(s.p99()), Unit: "ms", Bound: millis(bound), Count: len(s)})
}

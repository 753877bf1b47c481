//go:build linux

// Command cacheworker is one peer of a cache that is to come to grief: it waits at
// gates where someone may kill or stop it, has a wall clock that can be set, and
// can have a source that does what a source must not.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/origin"
	"github.com/understudy-ha/understudy/cache/protocol"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cacheworker:", err)
		os.Exit(1)
	}
}

type worker struct {
	source       cache.Origin
	gate, gates  string
	deaf, double bool
	panics       string
}

func run(ctx context.Context) error {
	var w worker
	cfg := cache.Config{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Jitter: -1, Insecure: true}
	originURL := flag.String("origin-url", "", "`URL` of the source, with {key}")
	api := flag.String("api", "", "`ADDRESS` for clients")
	wall := flag.String("wall", "", "`FILE` with the wall clock's error, a duration")
	flag.StringVar(&cfg.Self, "url", "", "`ADDRESS` for peers")
	flag.Func("peer", "`URL,API` of a peer", func(text string) error {
		peer, addr, _ := strings.Cut(text, ",")
		cfg.Members = append(cfg.Members, protocol.Member{URL: peer, API: addr})
		return nil
	})
	flag.DurationVar(&cfg.Timings.TTL, "ttl", 0, "time to live")
	flag.DurationVar(&cfg.Timings.AnnounceTimeout, "announce-timeout", 0, "announce timeout")
	flag.DurationVar(&cfg.Timings.FetchTimeout, "fetch-timeout", 0, "the origin's deadline")
	flag.StringVar(&w.gate, "gate", "", "`URL` of the gates")
	flag.StringVar(&w.gates, "gates", "", "gates to wait at: raise, won, fetched")
	flag.BoolVar(&w.deaf, "deaf", false, "the source does not heed its context")
	flag.BoolVar(&w.double, "double", false, "the source is called twice")
	flag.StringVar(&w.panics, "panics", "", "the source panics for keys with this `PREFIX`")
	flag.Parse()
	if len(cfg.Members) == 0 {
		cfg.Members = []protocol.Member{{URL: cfg.Self, API: *api}}
	}
	if cfg.Timings.AnnounceTimeout > 0 {
		cfg.Timings.Announce = cfg.Timings.AnnounceTimeout / 2
	}
	var err error
	if w.source, err = origin.URL(origin.URLConfig{URL: *originURL}); err != nil {
		return err
	}
	cfg.Origin = w.fetch
	if strings.Contains(w.gates, "raise") {
		cfg.Storage = forgetful{&w}
	}
	if *wall != "" {
		cfg.Wall = steppable(*wall)
	}
	p, err := cache.New(cfg)
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

func (w *worker) fetch(ctx context.Context, f cache.Fetch) (cache.Value, error) {
	if w.panics != "" && strings.HasPrefix(f.Key, w.panics) {
		panic("as it was told to")
	}
	if w.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	w.pass("won", f.Key)
	if w.double {
		go func() { _, _ = w.source(ctx, f) }()
	}
	v, err := w.source(ctx, f)
	w.pass("fetched", f.Key)
	return v, err
}

// pass waits at a gate until the origin lets it continue.
func (w *worker) pass(at, key string) {
	if !strings.Contains(w.gates, at) {
		return
	}
	r, err := http.Post(w.gate+"/"+at+"?key="+url.QueryEscape(key), "", nil)
	if err == nil {
		r.Body.Close()
	}
}

// steppable is a wall clock that is as wrong as a file says. It looks every few
// milliseconds.
func steppable(file string) func() time.Time {
	var wrong, looked atomic.Int64
	return func() time.Time {
		now := time.Now()
		if last := looked.Load(); now.UnixMilli() >= last+5 && looked.CompareAndSwap(last, now.UnixMilli()) {
			text, _ := os.ReadFile(file)
			if ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
				wrong.Store(ns)
			}
		}
		return now.Add(time.Duration(wrong.Load()))
	}
}

// forgetful is a storage that keeps nothing, and waits at a gate before it says
// that terms are stored: before any question is asked.
type forgetful struct{ *worker }

func (forgetful) Load(context.Context, func(cache.Record) error) (cache.State, error) {
	return cache.State{}, nil
}
func (forgetful) Save(context.Context, []cache.Record) error { return nil }
func (f forgetful) Raise(context.Context, int64) error {
	f.pass("raise", "")
	return nil
}
func (forgetful) SaveRemovals(context.Context, []protocol.Removal) error   { return nil }
func (forgetful) SaveMembers(context.Context, protocol.MembersState) error { return nil }

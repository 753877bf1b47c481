// Command cached-report serves a slow report on three instances, each with a peer of the cache inside: whoever asks, and
// wherever, a report is made once.
//
//	cached-report N    where N, from 1 to 3, is the instance
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
)

// In earnest these are in your configuration, the same on every host.
var (
	pages = map[string]string{"1": "127.0.0.1:8001", "2": "127.0.0.1:8002", "3": "127.0.0.1:8003"}
	peers = map[string]protocol.Member{
		"1": {URL: "tcp://127.0.0.1:6001", API: "tcp://127.0.0.1:6011"},
		"2": {URL: "tcp://127.0.0.1:6002", API: "tcp://127.0.0.1:6012"},
		"3": {URL: "tcp://127.0.0.1:6003", API: "tcp://127.0.0.1:6013"},
	}
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 || pages[os.Args[1]] == "" {
		fmt.Fprintln(os.Stderr, "usage: cached-report N, from 1 to 3")
		os.Exit(2)
	}
	if err := serve(ctx, os.Args[1]); err != nil {
		slog.Error("cached-report", "err", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, n string) error {
	peer, err := cache.New(cache.Config{
		Self: peers[n].URL, Members: []protocol.Member{peers["1"], peers["2"], peers["3"]},
		Origin: func(ctx context.Context, f cache.Fetch) (cache.Value, error) { return report(ctx, n, f) },
		Logger: slog.Default(),
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /report/{day}", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		item, err := peer.Get(ctx, r.PathValue("day"), cache.GetOptions{})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(item.Value)
	})
	server := &http.Server{Addr: pages[n], Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := context.WithCancelCause(ctx)
	go func() { stop(server.ListenAndServe()) }()
	err = peer.Run(ctx)
	_ = server.Close()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		err = errors.Join(err, cause)
	}
	return err
}

// report takes three seconds, and notes who made it.
func report(ctx context.Context, n string, f cache.Fetch) (cache.Value, error) {
	slog.Info("making a report", "day", f.Key, "instance", n, "term", f.Term)
	select {
	case <-time.After(3 * time.Second):
		return cache.Value{Data: fmt.Appendf(nil, "the report of %s, made by %s\n", f.Key, n), TTL: time.Hour}, nil
	case <-ctx.Done():
		return cache.Value{}, context.Cause(ctx)
	}
}

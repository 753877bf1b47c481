package server

import (
	"context"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/internal/sdnotify"
	"github.com/understudy-ha/understudy/lease"
)

// watchServer vouches for a server to systemd's watchdog until ctx ends: while it answers requests
// and its keepers go round. A store that is away is no reason to restart: they go round nevertheless.
func watchServer(ctx context.Context, inside http.Handler, keepers []*lease.Keeper) error {
	rounds := newRounds(keepers)
	sdnotify.Watchdog(ctx, func() bool { return answers(ctx, inside) && rounds.alive(time.Now()) })
	return nil
}

// answers asks the server how it is, as a load balancer does, but not over the network.
func answers(ctx context.Context, inside http.Handler) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/healthz", nil)
	if err != nil {
		return false
	}
	r.RequestURI, r.RemoteAddr = "/healthz", "127.0.0.1:0"
	inside.ServeHTTP(&deaf{header: http.Header{}}, r)
	return true
}

// deaf takes an answer that nobody reads.
type deaf struct{ header http.Header }

func (d *deaf) Header() http.Header         { return d.header }
func (d *deaf) Write(p []byte) (int, error) { return len(p), nil }
func (d *deaf) WriteHeader(int)             {}

// rounds reports whether keepers go round. It is used by one goroutine.
type rounds struct {
	keepers []*lease.Keeper
	seen    []lease.KeeperStats
	moved   []time.Time // when their counts were last seen to move
}

func newRounds(keepers []*lease.Keeper) *rounds {
	return &rounds{keepers: keepers, seen: make([]lease.KeeperStats, len(keepers)), moved: make([]time.Time, len(keepers))}
}

// alive is false when one of them has a session and has neither renewed it nor failed to for longer
// than two timeouts: each try is over within one. One that has no session tries to start one, holds
// nothing, and is not judged.
func (r *rounds) alive(now time.Time) bool {
	for i, k := range r.keepers {
		s := k.Stats()
		if r.moved[i].IsZero() || s != r.seen[i] || !hasSession(k) {
			r.seen[i], r.moved[i] = s, now
		}
		if now.Sub(r.moved[i]) > 2*k.Timing().Timeout {
			return false
		}
	}
	return true
}

func hasSession(k *lease.Keeper) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := k.Session(ctx)
	return err == nil
}

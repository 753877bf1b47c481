package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/understudy-ha/understudy/api"
)

// door answers on the server's port from the first moment: that the process is
// up, and that nothing can be said yet, until the API stands behind it. Otherwise
// a server that waits for its store would look hung to probes and load balancers.
type door struct {
	addr   string // that is listened on
	waits  string // what for, until it leads inside
	server *http.Server
	inside atomic.Pointer[http.Handler]
	done   chan struct{} // closed when it no longer answers
	err    error         // why; valid once done
}

func openDoor(l net.Listener, log *slog.Logger, waits string) *door {
	d := &door{addr: l.Addr().String(), waits: waits, done: make(chan struct{})}
	d.server = api.NewHTTPServer(d, log)
	go func() {
		defer close(d.done)
		d.err = d.server.Serve(l)
	}()
	return d
}

// lead hands every further request to h.
func (d *door) lead(h http.Handler) { d.inside.Store(&h) }

// ServeHTTP implements [http.Handler].
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := d.inside.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/healthz" || r.URL.Path == "/liveness" { // of servers and of agents
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"status":"up"}` + "\n"))
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(api.Problem{
		Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable,
		Code: "not_ready", Detail: d.waits,
	})
}

// wait returns when ctx ends, or with the reason when the door closed before.
func (d *door) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-d.done:
		return d.err
	}
}

// close lets requests that are being answered finish, and streams for a while.
func (d *door) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if err := d.server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		_ = d.server.Close()
	}
	<-d.done
}

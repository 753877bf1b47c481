package startlistener

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/internal/connlimit"
)

// closeTimeout bounds how long requests that are being answered may take to finish.
const closeTimeout = 5 * time.Second

// Door answers on the server's port from the first moment: that the process is
// up, and that nothing can be said yet, until the API stands behind it. Otherwise
// a server that waits for its store would look hung to probes and load balancers.
type Door struct {
	Addr   string                 // that is listened on
	waits  atomic.Pointer[string] // what for, until it leads inside
	server *http.Server
	inside atomic.Pointer[http.Handler]
	Done   chan struct{} // closed when it no longer answers
	Err    error         // why; valid once done
}

// Open answers on a listener; waits is what the answer is while nothing stands behind the door. Close ends it.
func Open(l net.Listener, log *slog.Logger, waits string) *Door {
	d := &Door{Addr: l.Addr().String(), Done: make(chan struct{})}
	d.Explain(waits)
	limited := limitConns(problemListener{l}, connlimit.Bound(connlimit.ServerShare), log)
	d.server = api.NewHTTPServer(d, log)
	d.server.ConnState = limited.note
	go func() {
		defer close(d.Done)
		d.Err = d.server.Serve(limited)
	}()
	return d
}

// Explain changes what the answer is while nothing stands behind the door.
func (d *Door) Explain(waits string) { d.waits.Store(&waits) }

// Lead hands every further request to h.
func (d *Door) Lead(h http.Handler) { d.inside.Store(&h) }

// ServeHTTP implements [http.Handler].
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	_ = json.NewEncoder(w).Encode(apitype.Problem{
		Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable,
		Code: "not_ready", Detail: *d.waits.Load(),
	})
}

// Wait returns when ctx ends, or with the reason when the door closed before.
func (d *Door) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-d.Done:
		return d.Err
	}
}

// Close lets requests that are being answered finish, and streams for a while.
func (d *Door) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := d.server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		_ = d.server.Close()
	}
	<-d.Done
}

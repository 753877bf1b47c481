package front

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/sawtooth"
	"github.com/understudy-ha/understudy/lease"
)

// Dialect is whose API a front speaks.
type Dialect string

// Dialects.
const (
	Sawtooth     Dialect = "sawtooth"
	Grid         Dialect = "grid"
	GridSplinter Dialect = "grid-splinter"
)

// Dialects are all of them.
func Dialects() []Dialect { return []Dialect{Sawtooth, Grid, GridSplinter} }

// Config of a front.
type Config struct {
	// Admin of the store, and Queue in it, which must have been made. Required.
	Admin dispatch.Admin
	Queue string
	// Dialect that it speaks. Default sawtooth.
	Dialect Dialect
	// Reads is the ledger's own REST API (of the dialect sawtooth), to which reads are passed that the front does not answer
	// itself; nil: they are refused. ReadsTLS is how it is reached by https; nil: with the system's certificates.
	Reads    *url.URL
	ReadsTLS *tls.Config
	// Waiters is how many requests may wait for batches at once. Default 256.
	Waiters int
	// PollInterval is the longest pause of a waiting request between two reads of the
	// store; the first come sooner. Default 1 s.
	PollInterval time.Duration
	// Timeout of one call to the store. Default 10 s.
	Timeout time.Duration
	// Logger; nil is silent.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Dialect = cmp.Or(c.Dialect, Sawtooth)
	c.Waiters = cmp.Or(c.Waiters, 256)
	c.PollInterval = cmp.Or(c.PollInterval, time.Second)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate returns an error that wraps [lease.ErrInvalid].
func (c Config) Validate() error {
	c = c.withDefaults()
	if err := dispatch.ValidateQueue(c.Queue); err != nil {
		return err
	}
	switch {
	case c.Admin == nil:
		return fmt.Errorf("%w: a front needs the queue admin port", lease.ErrInvalid)
	case c.Dialect != Sawtooth && c.Dialect != Grid && c.Dialect != GridSplinter:
		return fmt.Errorf("%w: dialect %q; use one of %v", lease.ErrInvalid, c.Dialect, Dialects())
	case c.Reads != nil && c.Dialect != Sawtooth:
		return fmt.Errorf("%w: reads are passed on for the dialect sawtooth only", lease.ErrInvalid)
	case c.Waiters < 0 || c.PollInterval < 0 || c.Timeout < 0:
		return fmt.Errorf("%w: waiters, pauses and time-outs cannot be negative", lease.ErrInvalid)
	}
	return nil
}

// Facts of both APIs.
const (
	bodyLimit   = 10_485_760        // of a list of batches
	idsLimit    = 1 << 20           // of a list of ids
	longestWait = 285 * time.Second // 95 % of their time-out
	globalKey   = "----"            // of what names no service
)

type front struct {
	Config
	dialect dialect
	waiting chan struct{}
	bodies  atomic.Int64 // what those that are held cost
}

// New returns a handler for the paths /batches and /batch_statuses, and for all others with Config.Reads. A server
// that it is served by needs a write time-out of more than five minutes, or none.
func New(c Config) (http.Handler, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	f := &front{Config: c, waiting: make(chan struct{}, c.Waiters)}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /batches", f.serve(f.submit))
	mux.HandleFunc("GET /batch_statuses", f.serve(f.statuses))
	switch c.Dialect {
	case Sawtooth:
		f.dialect = sawtoothDialect{}
		mux.HandleFunc("POST /batch_statuses", f.serve(f.statuses))
		for _, path := range []string{"/batches", "/batch_statuses"} {
			mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { refuseMethod(w, "GET,HEAD,POST") })
		}
		if c.Reads != nil {
			reads := f.passReads()
			mux.Handle("GET /batches", reads)
			mux.Handle("/", reads)
		}
	default:
		f.dialect = gridDialect{splinter: c.Dialect == GridSplinter}
	}
	return mux, nil
}

// serve turns errors into the dialect's answers.
func (f *front) serve(h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body := &countedBody{ReadCloser: r.Body, held: &f.bodies}
		defer body.release()
		r.Body = body
		err := h(w, r)
		if err == nil || r.Context().Err() != nil { // the client has left
			return
		}
		known := faultOf(err)
		if known.kind == faultInternal {
			f.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		}
		f.dialect.fail(w, known)
	}
}

// kind of a fault; each has its status and code in each dialect.
type kind int

const (
	faultInternal kind = iota
	faultRefused       // batches that are not acceptable
	faultEmpty
	faultProtobuf
	faultType   // of a list of batches
	faultIDType // of a list of ids
	faultIDBody
	faultID
	faultNoID
	faultQuery // service_id or wait
	faultLarge
	faultBusy // for a long body
	faultNotReady
	faultUnknown // it may have been done
	faultStore   // it was not done
)

type fault struct {
	kind   kind
	detail string
}

func (f fault) Error() string { return f.detail }

func faultf(k kind, format string, args ...any) error { return fault{k, fmt.Sprintf(format, args...)} }

func faultOf(err error) fault {
	if f, ok := errors.AsType[fault](err); ok {
		return f
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fault{faultLarge, fmt.Sprintf("the body has more than %d bytes", large.Limit)}
	}
	switch {
	case errors.Is(err, lease.ErrUnknown), errors.Is(err, context.DeadlineExceeded):
		return fault{faultUnknown, "the store did not answer in time; your request may have been carried out, and repeating it is safe"}
	case errors.Is(err, lease.ErrUnavailable):
		return fault{faultStore, "the store cannot be reached; nothing was done, try again later"}
	case errors.Is(err, dispatch.ErrNoQueue):
		return fault{faultNotReady, "the queue behind this address has not been made yet"}
	case errors.Is(err, lease.ErrInvalid):
		return fault{faultRefused, err.Error()}
	}
	return fault{faultInternal, "see the log of the server"}
}

// key is the ordering key that a request names.
func (f *front) key(r *http.Request) (string, error) {
	query := r.URL.Query()
	service, given := query.Get("service_id"), query.Has("service_id")
	switch {
	case f.Dialect == Grid && given:
		return "", faultf(faultQuery, "service_id has no meaning on Sawtooth")
	case f.Dialect == GridSplinter && !given:
		return "", faultf(faultQuery, "service_id is missing: CIRCUIT::SERVICE")
	case f.Dialect == GridSplinter:
		if _, _, err := sawtooth.ParseService(service); err != nil {
			return "", faultf(faultQuery, "service_id: %v", err)
		}
	case !given, service == "":
		return globalKey, nil
	}
	if err := lease.ValidateText("service_id", service, 1, lease.MaxKey); err != nil {
		return "", faultf(faultQuery, "%v", err)
	}
	return service, nil
}

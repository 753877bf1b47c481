package intake

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/internal/messagerouter"
	"github.com/understudy-ha/understudy/internal/secret"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// RouterConfig of the beats that come from a topic of a Message Router.
type RouterConfig struct {
	// Name of the path, the same on all instances that read the topic. Required.
	Name string
	// URL of the topic, such as http://router:3904/events/TOPIC. Required.
	URL string
	// Group that reads the topic, and this instance's own id in it. Two with the
	// same are refused by the router. Required.
	Group, Consumer string
	// LongPoll is how long the router waits for a message. Default 5 s.
	LongPoll time.Duration
	// Limit is how many messages a poll may bring; at most 4096. Default 1000.
	Limit int
	// User and Password of basic authentication; "" is none.
	User     string
	Password secret.Text
	// TLS of https; nil trusts the system's certificates.
	TLS *tls.Config
	// Flow that takes the beats: a path that each poll that finds no more proves. Required.
	Flow Flow
	// Rejected keeps what was not accepted; nil keeps none.
	Rejected *RejectedInputs
	// AnyDomain reports whether VES events of every domain are heartbeats of a check. nil: of none.
	AnyDomain func(check string) bool
	// Logger; nil is silent.
	Logger *slog.Logger
}

const (
	defaultLongPoll = 5 * time.Second
	defaultLimit    = 1000
	maxPollAnswer   = 32 << 20         // bytes
	answerMargin    = 5 * time.Second  // beyond the long poll, until the router is given up
	takeTimeout     = 30 * time.Second // of one attempt to store
	proveWithin     = 2 * time.Second  // of the router's answer, or it proves nothing
	stopGrace       = 5 * time.Second  // for what was read when Run is told to stop
	pauseLeast      = 100 * time.Millisecond
	pauseMost       = 30 * time.Second
	growAfter       = 64 // good polls after which a limit that was lowered is doubled
)

func (c RouterConfig) withDefaults() RouterConfig {
	c.LongPoll = cmp.Or(c.LongPoll, defaultLongPoll)
	c.Limit = cmp.Or(c.Limit, defaultLimit)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate returns an error that wraps [lease.ErrInvalid] and shows no password.
func (c RouterConfig) Validate() error {
	if err := lease.ValidateText("name of a router", c.Name, 1, monitor.MaxName); err != nil {
		return err
	}
	in := func(err error) error { return fmt.Errorf("router %q: %w", c.Name, err) }
	if err := messagerouter.ValidateConsumer(c.Group, c.Consumer); err != nil {
		return in(err)
	}
	switch {
	case c.LongPoll < 0 || c.LongPoll > time.Minute:
		return in(fmt.Errorf("%w: a poll of %v; use up to 1m", lease.ErrInvalid, c.LongPoll))
	case c.Limit < 0 || c.Limit > messagerouter.MaxLimit:
		return in(fmt.Errorf("%w: a limit of %d; use 1 to %d", lease.ErrInvalid, c.Limit, messagerouter.MaxLimit))
	case c.Flow == nil:
		return in(fmt.Errorf("%w: beats need a flow that takes them", lease.ErrInvalid))
	}
	if err := c.client().Validate(); err != nil {
		return in(err)
	}
	return nil
}

func (c RouterConfig) client() messagerouter.Config {
	return messagerouter.Config{
		Topic: c.URL, User: c.User, Password: c.Password, TLS: c.TLS, Timeout: answerMargin, MaxAnswer: maxPollAnswer,
	}
}

// RouterStats tells what a [Router] does.
type RouterStats struct {
	Name                   string
	Polls, Failures        int64
	Messages               int64
	Accepted, Unknown, Bad int64 // beats
	OtherDomain            int64 // VES events of other domains than heartbeat
	// Retries is how often what was read had to be stored again.
	Retries int64
	// Lost is how many beats were in hand, not stored, when Run ended.
	Lost int64
	// Limit of the next poll: lower than configured after an answer that was too large.
	Limit int
	// Behind: the last poll found as many messages as it asked for, so that there may be more,
	// and nothing is proven.
	Behind bool
	// Error of the last poll, "" if it was good, and since when there is one.
	Error string
	Since time.Time
	// Proven is when the path was proven last.
	Proven time.Time
}

// consumer is a [messagerouter.Client].
type consumer interface {
	Consume(ctx context.Context, group, consumer string, wait time.Duration, limit int) ([]json.RawMessage, error)
	Close()
}

// Router takes beats from a topic. It is made by [NewRouter].
type Router struct {
	cfg    RouterConfig
	client consumer

	ignored ignored // it logs; the counts are in stats

	mu    sync.Mutex
	stats RouterStats

	// What follows belongs to Run's goroutine.
	decoder
	limit  int
	good   int // polls since the limit was changed
	failed int // polls in a row
}

// NewRouter checks the configuration; see [RouterConfig.Validate]. Nothing is asked yet.
func NewRouter(c RouterConfig) (*Router, error) {
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	c = c.withDefaults()
	client, err := messagerouter.New(c.client())
	if err != nil {
		return nil, fmt.Errorf("intake: %w", err)
	}
	return newRouter(c, client), nil
}

func newRouter(c RouterConfig, client consumer) *Router {
	r := &Router{cfg: c, client: client, limit: c.Limit, ignored: ignored{log: c.Logger, path: "router." + c.Name}}
	r.anyDomain = c.AnyDomain
	r.stats = RouterStats{Name: c.Name, Limit: c.Limit}
	return r
}

// Stats returns the counts so far.
func (r *Router) Stats() RouterStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

func (r *Router) count(f func(*RouterStats)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.stats)
}

// Run polls until ctx ends. The poll that is under way then it lets come to its end, for
// 5 s at most, because the router would hand messages to nobody; what it has read it tries to store
// for 5 s more, if the flow still takes it: stop the flow after the routers. It returns nil.
func (r *Router) Run(ctx context.Context) error {
	defer r.client.Close()
	for ctx.Err() == nil {
		sleep(ctx, r.round(ctx))
	}
	return nil
}

// round polls once, stores what came, and returns how long to pause.
func (r *Router) round(ctx context.Context) time.Duration {
	begun := time.Now()
	lasting, cancel := withGrace(ctx)
	defer cancel()
	items, err := r.client.Consume(lasting, r.cfg.Group, r.cfg.Consumer, r.cfg.LongPoll, r.limit)
	answered := time.Now()
	full := len(items) >= r.limit
	r.count(func(s *RouterStats) {
		s.Polls++
		s.Messages += int64(len(items))
		if err == nil {
			s.Behind = full
		}
	})
	stored := r.deliver(ctx, items)
	if err != nil {
		if ctx.Err() != nil {
			return 0
		}
		return r.recordFailure(err)
	}
	r.recovered()
	r.grow()
	switch {
	case !stored || full:
		return 0
	case time.Since(answered) < proveWithin:
		r.prove(ctx, proveWithin-time.Since(answered))
	}
	if len(items) == 0 && time.Since(begun) < pauseLeast {
		return pauseLeast // it does not wait as it was asked to
	}
	return 0
}

// prove says that the router had no more. Later than a moment after it said so
// that is not known any longer.
func (r *Router) prove(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := r.cfg.Flow.RecordProbe(ctx); err != nil {
		r.cfg.Logger.Debug("probe not recorded", "router", r.cfg.Name, "err", err)
		return
	}
	r.count(func(s *RouterStats) { s.Proven = time.Now() })
}

// deliver stores what messages contain. It continues until that is done: the router
// will not give them again. It reports whether it was.
func (r *Router) deliver(ctx context.Context, items []json.RawMessage) bool {
	r.reset()
	all := true
	for _, item := range items {
		r.message(item)
		if r.items >= maxItems/2 {
			all = r.flush(ctx) && all
		}
	}
	return r.flush(ctx) && all
}

func (r *Router) flush(ctx context.Context) bool {
	defer r.reset()
	outcomes, stored := r.record(ctx, r.beats)
	if !stored {
		r.count(func(s *RouterStats) { s.Lost += int64(len(r.beats)) })
		r.cfg.Logger.Warn("unstored heartbeats at stop", "router", r.cfg.Name, "beats", len(r.beats))
	}
	var unknown, bad, other int64
	recordOutcomes(&r.decoder, outcomes, r.cfg.Name, r.cfg.Rejected, func(_ int, cause Cause, _ string) {
		switch {
		case cause.isUnknown():
			unknown++
		case cause == OtherDomain:
			other++
		default:
			bad++
		}
	})
	r.ignored.add(int(other), int(unknown))
	r.count(func(s *RouterStats) {
		s.Unknown += unknown
		s.Bad += bad
		s.OtherDomain += other
		for _, o := range outcomes {
			if o == monitor.Accepted {
				s.Accepted++
			}
		}
	})
	return stored
}

// record stores beats, however long that takes, unless ctx has ended.
func (r *Router) record(ctx context.Context, beats []monitor.Heartbeat) ([]monitor.Outcome, bool) {
	if len(beats) == 0 {
		return nil, true
	}
	// What was read has nobody but this process: it is worth a moment more.
	lasting, cancel := withGrace(ctx)
	defer cancel()
	for attempt := 0; ; attempt++ {
		once, done := context.WithTimeout(lasting, takeTimeout)
		outcomes, err := r.cfg.Flow.Record(once, beats)
		done()
		switch {
		case err == nil:
			if attempt > 0 {
				r.cfg.Logger.Info("heartbeats stored after retries", "router", r.cfg.Name, "beats", len(beats), "attempts", attempt+1)
			}
			return outcomes, true
		case errors.Is(err, lease.ErrInvalid):
			return r.recordHalves(ctx, beats)
		case attempt == 0:
			r.cfg.Logger.Warn("heartbeats not stored; retrying; polling is paused", "router", r.cfg.Name, "beats", len(beats), "err", err)
		}
		r.count(func(s *RouterStats) { s.Retries++ })
		if !sleep(ctx, backoff.Pause(attempt+1, pauseLeast, pauseMost)) && !sleep(lasting, backoff.Pause(1, pauseLeast, pauseMost)) {
			return nil, false
		}
	}
}

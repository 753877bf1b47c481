package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// maxWait is the longest that one request may wait for a lease.
const maxWait = time.Minute

// errWaited ends a wait that was in vain.
var errWaited = errors.New("waited in vain")

// leaseJSON is a lease as it stands. The holder's session is not shown.
type leaseJSON struct {
	Space string `json:"space"`
	Key   string `json:"key"`
	Held  bool   `json:"held"`
	Term  int64  `json:"term"`
	// Holder is missing when nobody has a claim on the lease.
	Holder      *lease.Instance `json:"holder,omitempty"`
	ExpiresInMS int64           `json:"expires_in_ms"`
	Since       time.Time       `json:"since"`
	AgeMS       int64           `json:"age_ms"`
	// Asked to give it up, for AskedFor if that is not "".
	Asked    bool   `json:"asked"`
	AskedFor string `json:"asked_for,omitempty"`
	// Successor for which it is kept, for so long.
	Successor  string `json:"successor,omitempty"`
	ReservedMS int64  `json:"reserved_ms,omitempty"`
	Waiting    int    `json:"waiting"`
}

func leaseToJSON(l lease.Lease) leaseJSON {
	out := leaseJSON{
		Space: l.Space, Key: l.Key, Held: l.Held(), Term: l.Term,
		ExpiresInMS: max(0, l.Remaining.Milliseconds()), Since: l.Since, AgeMS: l.Age.Milliseconds(),
		Asked: l.Asked, AskedFor: l.AskedFor, Waiting: l.Waiting,
	}
	if !l.Free() {
		out.Holder = &l.Holder
	}
	if l.Reserved > 0 {
		out.Successor, out.ReservedMS = l.Successor, l.Reserved.Milliseconds()
	}
	return out
}

func leaseID(r *http.Request) (lease.ID, error) {
	id := lease.ID{Space: r.PathValue("space"), Key: r.PathValue("key")}
	return id, id.Validate()
}

func (s *Server) listLeases(w http.ResponseWriter, r *http.Request) error {
	space, after := r.PathValue("space"), r.URL.Query().Get("after")
	if err := lease.ValidateSpace(space); err != nil {
		return err
	}
	if err := lease.ValidateText("after", after, 0, lease.MaxKey); err != nil {
		return err
	}
	limit, err := number(r, "limit", 1, lease.MaxList, 100)
	if err != nil {
		return err
	}
	leases, err := s.cfg.Store.List(r.Context(), space, after, int(limit))
	if err != nil {
		return err
	}
	out := struct {
		Leases []leaseJSON `json:"leases"`
		Next   string      `json:"next,omitempty"` // what to ask for with after, if there may be more
	}{Leases: make([]leaseJSON, 0, len(leases))}
	for _, l := range leases {
		out.Leases = append(out.Leases, leaseToJSON(l))
		if len(out.Leases) == int(limit) {
			out.Next = l.Key
		}
	}
	return writeJSON(w, http.StatusOK, out)
}

func (s *Server) getLease(w http.ResponseWriter, r *http.Request) error {
	id, err := leaseID(r)
	if err != nil {
		return err
	}
	l, err := s.cfg.Store.Get(r.Context(), id)
	if err != nil {
		return err
	}
	if l.Term == 0 {
		return fmt.Errorf("%w: %s was never held", lease.ErrNotFound, id)
	}
	return writeJSON(w, http.StatusOK, leaseToJSON(l))
}

// putLease takes a lease for a session, at once or within the time that the
// caller is willing to wait. Asking again for what the session holds succeeds
// and changes nothing, so that a request whose answer was lost can be repeated.
func (s *Server) putLease(w http.ResponseWriter, r *http.Request) error {
	id, err := leaseID(r)
	if err != nil {
		return err
	}
	wait, err := duration(r, "wait", maxWait)
	if err != nil {
		return err
	}
	var body struct {
		Session string `json:"session"`
	}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	l, err := s.take(r.Context(), id, body.Session)
	if wait > 0 && errors.Is(err, lease.ErrHeld) {
		lift(w, wait+2*s.cfg.Timeout)
		l, err = s.wait(r.Context(), id, body.Session, wait)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, leaseToJSON(l))
}

// take tries once.
func (s *Server) take(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	n, err := s.session(ctx, session)
	if err != nil {
		return lease.Lease{}, err
	}
	return s.beliefs.attempt(ctx, id, n)
}

// wait contends for a lease on behalf of a session for so long.
func (s *Server) wait(ctx context.Context, id lease.ID, session string, d time.Duration) (lease.Lease, error) {
	select {
	case s.waits <- struct{}{}:
		defer func() { <-s.waits }()
	default:
		return lease.Lease{}, errBusy
	}
	n, err := s.session(ctx, session)
	if err != nil {
		return lease.Lease{}, err
	}
	waiting, cancel := context.WithTimeoutCause(ctx, d, errWaited)
	defer cancel()
	waiting, end := context.WithCancelCause(waiting)
	defer context.AfterFunc(s.running, func() { end(errStopping) })()
	c := lease.Contender{
		Store: s.cfg.Store, Roster: s.cfg.Store, Hub: s.hub, Clock: s.cfg.Clock,
		Session: n.ID, Instance: n.Instance, Timing: n.Timing, Leases: []lease.ID{id},
		Jitter: s.cfg.Jitter, Logger: s.log,
	}
	l, err := c.Acquire(waiting)
	switch {
	case errors.Is(err, errWaited):
		return s.take(ctx, id, session) // tells who holds it and when to ask again
	case err == nil && ctx.Err() != nil:
		// Whoever asked has gone, and would not know what its session holds.
		call, cancelCall := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
		defer cancelCall()
		back := lease.Handback{Lease: id, Session: n.ID, Term: l.Term, Reason: "the one who asked has gone"}
		return l, errors.Join(context.Cause(ctx), s.cfg.Store.Release(call, back))
	}
	return l, err
}

func (s *Server) releaseLease(w http.ResponseWriter, r *http.Request) error {
	id, err := leaseID(r)
	if err != nil {
		return err
	}
	body := struct {
		Session   string `json:"session"`
		Term      int64  `json:"term"`
		Successor string `json:"successor"`
		Reason    string `json:"reason"`
	}{Reason: "released"}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	if err := validateSession(body.Session); err != nil {
		return err
	}
	back := lease.Handback{
		Lease: id, Session: body.Session, Term: body.Term, Successor: body.Successor, Reason: lease.CutReason(body.Reason),
	}
	if body.Successor != "" {
		if err := lease.ValidateText("successor", body.Successor, 1, lease.MaxName); err != nil {
			return err
		}
		n, err := s.session(r.Context(), body.Session)
		if err != nil {
			return err
		}
		back.Reserve = n.Timing.Timeout
	}
	if err := s.cfg.Store.Release(r.Context(), back); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/lease"
)

// maxState bounds a state as base64 in JSON.
const maxState = 2 * lease.MaxState

// maxWait is the longest that one request may wait for a lease.
const maxWait = time.Minute

// errWaited ends a wait that was in vain.
var errWaited = errors.New("waited in vain")

func viewLease(l lease.Lease) apitype.Lease {
	out := apitype.Lease{
		Space: l.Space, Key: l.Key, Held: l.HasLiveHolder(), Term: l.Term,
		ExpiresInMS: max(0, l.Remaining.Milliseconds()), Since: l.Since, AgeMS: l.Age.Milliseconds(),
		Asked: l.ReleaseRequested, AskedFor: l.RequestedSuccessor, Waiting: l.Waiting,
	}
	if !l.Free() {
		out.Holder = new(viewInstance(l.Holder))
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

func (s *Server) listLeases(r *http.Request) (out apitype.Leases, err error) {
	space, q := r.PathValue("space"), queryOf(r)
	if err := lease.ValidateSpace(space); err != nil {
		return out, err
	}
	after, limit := q.name("after"), q.limit(lease.MaxList)
	if q.err != nil {
		return out, q.err
	}
	leases, err := s.cfg.Store.List(r.Context(), space, after, limit)
	next := nextAfter(leases, limit, func(l lease.Lease) string { return l.Key })
	return apitype.Leases{Leases: views(leases, viewLease), Next: next}, err
}

func (s *Server) getLease(r *http.Request) (out apitype.Lease, err error) {
	id, err := leaseID(r)
	if err != nil {
		return out, err
	}
	l, err := s.cfg.Store.Get(r.Context(), id)
	if err == nil && l.Term == 0 {
		err = fmt.Errorf("%w: %s was never held", lease.ErrNotFound, id)
	}
	return viewLease(l), err
}

// putLease takes a lease for a session, at once or within the time that the
// caller is willing to wait. Asking again for what the session holds succeeds
// and changes nothing, so that a request whose answer was lost can be repeated.
func (s *Server) putLease(w http.ResponseWriter, r *http.Request) error {
	id, err := leaseID(r)
	if err != nil {
		return err
	}
	// The history has other events of a part of this name, and shows each under one name alone.
	if shownPart(id.Space) != id.Space || storedPart(id.Space) != id.Space {
		return fmt.Errorf("%w: space %q has this name in the history already: choose another", lease.ErrInvalid, id.Space)
	}
	wait, err := waitParameter(r)
	if err != nil {
		return err
	}
	body, err := bodyOf[apitype.AcquireRequest](r)
	if err != nil {
		return err
	}
	l, err := s.tryAcquire(r.Context(), id, body.Session)
	if wait > 0 && errors.Is(err, lease.ErrHeld) {
		extendWriteDeadline(w, wait+2*s.cfg.Timeout)
		leave, busy := s.waits.take(r, 0)
		if busy != nil {
			return busy
		}
		l, err = s.waitForLease(r.Context(), id, body.Session, wait)
		leave()
	}
	if err != nil {
		return err
	}
	out := viewLease(l)
	// Read after the acquisition, it is the last: nobody of an older term can write any more.
	state, err := s.cfg.Store.ReadState(r.Context(), id)
	if err != nil { // a caller that repeats the request gets the same lease
		return fmt.Errorf("%w: the session holds the lease, and its state could not be read: %w", lease.ErrUnknown, err)
	}
	out.State = state.Data
	return writeJSON(w, http.StatusOK, out)
}

func (s *Server) getState(r *http.Request) (out apitype.LeaseState, err error) {
	id, err := leaseID(r)
	if err != nil {
		return out, err
	}
	state, err := s.cfg.Store.ReadState(r.Context(), id)
	if err == nil && state.Term == 0 {
		err = fmt.Errorf("%w: nobody has written a state of %s", lease.ErrNotFound, id)
	}
	return apitype.LeaseState{Term: state.Term, State: state.Data}, err
}

func (s *Server) putState(w http.ResponseWriter, r *http.Request) error {
	id, err := leaseID(r)
	if err != nil {
		return err
	}
	body, err := bodyOf[apitype.LeaseState](r)
	if err != nil {
		return err
	}
	if err := s.cfg.Store.WriteState(r.Context(), id, body.Term, body.State); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// tryAcquire tries once.
func (s *Server) tryAcquire(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	n, err := s.session(ctx, session)
	if err != nil {
		return lease.Lease{}, err
	}
	return s.takeovers.acquire(ctx, id, n)
}

// waitForLease contends for a lease on behalf of a session for so long. What it acquires for a caller that has gone meanwhile stays
// with the session: the caller may have asked again, of another server too, and works under that term then.
func (s *Server) waitForLease(ctx context.Context, id lease.ID, session string, d time.Duration) (lease.Lease, error) {
	n, err := s.session(ctx, session)
	if err != nil {
		return lease.Lease{}, err
	}
	waiting, cancel := context.WithTimeoutCause(ctx, d, errWaited)
	defer cancel()
	waiting, end := context.WithCancelCause(waiting)
	defer context.AfterFunc(s.running, func() { end(errStopping) })()
	c := lease.Contender{
		Store: s.cfg.Store, Roster: s.cfg.Store, Notifier: s.notifier, Clock: s.cfg.Clock,
		Session: n.ID, Instance: n.Instance, Timing: n.Timing, Leases: []lease.ID{id},
		Jitter: s.cfg.Jitter, Logger: s.log,
	}
	l, err := c.Acquire(waiting)
	switch {
	case errors.Is(err, errWaited):
		return s.tryAcquire(ctx, id, session) // tells who holds it and when to ask again
	case errors.Is(err, errStopping):
		return s.heldAtStop(ctx, id, session)
	}
	return l, err
}

// heldAtStop returns the lease if the session holds it although the server stopped to wait for it: the last request may have been
// applied. If the store does not say, that is not known.
func (s *Server) heldAtStop(ctx context.Context, id lease.ID, session string) (lease.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	l, err := s.cfg.Store.Get(ctx, id)
	switch {
	case err != nil:
		return lease.Lease{}, fmt.Errorf("%w: %w", lease.ErrUnknown, errStopping)
	case l.Session == session && l.Held():
		return l, nil
	}
	return lease.Lease{}, errStopping
}

func (s *Server) releaseLease(w http.ResponseWriter, r *http.Request) error {
	id, err := leaseID(r)
	if err != nil {
		return err
	}
	body := apitype.ReleaseRequest{Reason: "released"}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	if err := validateSession(body.Session); err != nil {
		return err
	}
	back := lease.ReleaseRequest{
		Lease: id, Session: body.Session, Term: body.Term, Successor: body.Successor, Reason: lease.TruncateReason(body.Reason),
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

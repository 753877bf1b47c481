package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/lease"
)

func viewInstance(i lease.Instance) apitype.Instance { return apitype.Instance(i) }

// holderOf is the instance that holds something; nil when none does.
func holderOf(i lease.Instance) *apitype.Instance {
	if i.ID == "" {
		return nil
	}
	return new(viewInstance(i))
}

func viewSession(n lease.Session) apitype.Session {
	return apitype.Session{
		Instance: viewInstance(n.Instance), IntervalMS: n.Timing.Interval.Milliseconds(), TimeoutMS: n.Timing.Timeout.Milliseconds(),
		Renewals: n.Seq, Started: n.Started, ExpiresInMS: max(0, n.Remaining.Milliseconds()),
	}
}

func (s *Server) listSessions(r *http.Request) (out apitype.Sessions, err error) {
	q := queryOf(r)
	after, text, limit := q.name("after"), q.name("contains"), q.limit(lease.MaxList)
	if q.err != nil {
		return out, q.err
	}
	sessions, err := s.cfg.Store.Sessions(r.Context())
	sessions = matching(sessions, text, func(n lease.Session) string { return n.Instance.Name })
	// The instance and not the session, whose id is its owner's alone.
	position := func(n lease.Session) string { return fmt.Sprintf("%020d/%s", n.Started.UnixMicro(), n.Instance.ID) }
	slices.SortFunc(sessions, func(a, b lease.Session) int { return cmp.Compare(position(a), position(b)) })
	sessions, out.Next = pageOf(sessions, after, limit, position)
	out.Sessions = views(sessions, viewSession)
	return out, err
}

func (s *Server) startSession(w http.ResponseWriter, r *http.Request) error {
	body, err := bodyOf[apitype.NewSession](r)
	if err != nil {
		return err
	}
	n := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(body.Name, body.Address)}
	if err := n.Instance.Validate(); err != nil {
		return err
	}
	// Bounded before they are multiplied; Validate says what is wrong with them.
	const most = int64(2*lease.MaxTimeout) / int64(time.Millisecond)
	n.Timing = lease.Timing{
		Interval: time.Duration(min(max(body.IntervalMS, -1), most)) * time.Millisecond,
		Timeout:  time.Duration(min(max(body.TimeoutMS, -1), most)) * time.Millisecond,
	}.WithDefaults()
	if err := n.Timing.Validate(0); err != nil {
		return err
	}
	if err := s.sessionQuota.check(r.Context(), ""); err != nil {
		return err
	}
	if _, err := s.cfg.Store.StartSession(r.Context(), n); err != nil {
		return err
	}
	s.sessionQuota.add("")
	s.sessions.GetOrAdd(n.ID, func() lease.Session { return n })
	w.Header().Set("Location", "/v1/sessions/"+n.ID)
	return writeJSON(w, http.StatusCreated, apitype.StartedSession{
		Session: n.ID, Instance: viewInstance(n.Instance),
		IntervalMS: n.Timing.Interval.Milliseconds(), TimeoutMS: n.Timing.Timeout.Milliseconds(),
		TrustedForMS: (n.Timing.Timeout - n.Timing.Interval).Milliseconds(),
	})
}

func (s *Server) renewSession(r *http.Request) (out apitype.Renewal, err error) {
	id := r.PathValue("session")
	if err := validateSession(id); err != nil {
		return out, err
	}
	return s.renew(r.Context(), id)
}

func (s *Server) renew(ctx context.Context, id string) (apitype.Renewal, error) {
	renewal, err := s.cfg.Store.RenewSession(ctx, id)
	if errors.Is(err, lease.ErrLapsed) {
		s.sessions.Drop(id)
	}
	return apitype.Renewal{Renewals: renewal.Seq, Changes: renewal.Changes}, err
}

// renewSessions renews all sessions of a process: together they cost the server and the store little more than one. They are
// renewed at the same time, because a store lets such share a statement.
func (s *Server) renewSessions(r *http.Request) (out apitype.Renewals, err error) {
	body, err := bodyOf[apitype.SessionIDs](r)
	if err != nil {
		return out, err
	}
	if n := len(body.Sessions); n == 0 || n > maxRenewals {
		return out, fmt.Errorf("%w: %d sessions; 1 to %d are renewed at once", lease.ErrInvalid, n, maxRenewals)
	}
	for _, id := range body.Sessions {
		if err := validateSession(id); err != nil {
			return out, err
		}
	}
	type answer struct {
		apitype.Renewal
		err error
	}
	answers := make([]answer, len(body.Sessions))
	var all sync.WaitGroup
	for i, id := range body.Sessions {
		all.Go(func() { answers[i].Renewal, answers[i].err = s.renew(r.Context(), id) })
	}
	all.Wait()
	out.Renewed, out.Lapsed = map[string]apitype.Renewal{}, []string{}
	for i, id := range body.Sessions {
		switch err := answers[i].err; {
		case err == nil:
			out.Renewed[id] = answers[i].Renewal
		case errors.Is(err, lease.ErrLapsed):
			out.Lapsed = append(out.Lapsed, id)
		default:
			return out, err // to renew again those that were renewed does no harm
		}
	}
	return out, nil
}

// maxRenewals is how many sessions one request renews.
const maxRenewals = 1000

func (s *Server) endSession(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("session")
	if err := validateSession(id); err != nil {
		return err
	}
	if err := s.cfg.Store.EndSession(r.Context(), id, "stopped"); err != nil {
		return err
	}
	s.sessions.Drop(id)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func validateSession(id string) error { return lease.ValidateText("session", id, 1, lease.MaxName) }

// session returns what is known of a live session. One that was started through
// another server is looked up among the live ones, once.
func (s *Server) session(ctx context.Context, id string) (lease.Session, error) {
	if err := validateSession(id); err != nil {
		return lease.Session{}, err
	}
	if n, ok := s.sessions.Get(id); ok {
		return n, nil
	}
	live, err := s.cfg.Store.Sessions(ctx)
	if err != nil {
		return lease.Session{}, err
	}
	for _, n := range live {
		if n.ID == id {
			return s.sessions.GetOrAdd(id, func() lease.Session { return n }), nil
		}
	}
	return lease.Session{}, fmt.Errorf("%w: start another", lease.ErrLapsed)
}

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// sessionJSON is a session as it is listed. Its id is for its owner alone:
// whoever knows it can end it while the owner still believes in it.
type sessionJSON struct {
	Instance    lease.Instance `json:"instance"`
	IntervalMS  int64          `json:"interval_ms"`
	TimeoutMS   int64          `json:"timeout_ms"`
	Renewals    int64          `json:"renewals"`
	Started     time.Time      `json:"started"`
	ExpiresInMS int64          `json:"expires_in_ms"`
}

func sessionToJSON(n lease.Session) sessionJSON {
	return sessionJSON{
		Instance: n.Instance, IntervalMS: n.Timing.Interval.Milliseconds(), TimeoutMS: n.Timing.Timeout.Milliseconds(),
		Renewals: n.Seq, Started: n.Started, ExpiresInMS: max(0, n.Remaining.Milliseconds()),
	}
}

func (s *Server) listSessions(w http.ResponseWriter, r *http.Request) error {
	sessions, err := s.cfg.Store.Sessions(r.Context())
	if err != nil {
		return err
	}
	out := make([]sessionJSON, 0, len(sessions))
	for _, n := range sessions {
		out = append(out, sessionToJSON(n))
	}
	return writeJSON(w, http.StatusOK, map[string]any{"sessions": out})
}

func (s *Server) startSession(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Name       string `json:"name"`
		Address    string `json:"address"`
		IntervalMS int64  `json:"interval_ms"`
		TimeoutMS  int64  `json:"timeout_ms"`
	}
	if err := readJSON(r, &body); err != nil {
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
	if _, err := s.cfg.Store.StartSession(r.Context(), n); err != nil {
		return err
	}
	s.sessions.getOrAdd(n.ID, func() lease.Session { return n })
	w.Header().Set("Location", "/v1/sessions/"+n.ID)
	return writeJSON(w, http.StatusCreated, map[string]any{
		"session": n.ID, "instance": n.Instance,
		"interval_ms": n.Timing.Interval.Milliseconds(), "timeout_ms": n.Timing.Timeout.Milliseconds(),
		"trusted_for_ms": (n.Timing.Timeout - n.Timing.Interval).Milliseconds(),
	})
}

func (s *Server) renewSession(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("session")
	if err := validateSession(id); err != nil {
		return err
	}
	renewal, err := s.cfg.Store.RenewSession(r.Context(), id)
	if errors.Is(err, lease.ErrLapsed) {
		s.sessions.drop(id)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string]int64{"renewals": renewal.Seq, "changes": renewal.Changes})
}

func (s *Server) endSession(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("session")
	if err := validateSession(id); err != nil {
		return err
	}
	if err := s.cfg.Store.EndSession(r.Context(), id, "stopped"); err != nil {
		return err
	}
	s.sessions.drop(id)
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
	if n, ok := s.sessions.get(id); ok {
		return n, nil
	}
	live, err := s.cfg.Store.Sessions(ctx)
	if err != nil {
		return lease.Session{}, err
	}
	for _, n := range live {
		if n.ID == id {
			return s.sessions.getOrAdd(id, func() lease.Session { return n }), nil
		}
	}
	return lease.Session{}, fmt.Errorf("%w: start another", lease.ErrLapsed)
}

package api

import (
	"net/http"

	"github.com/understudy-ha/understudy/elect"
)

// PrimaryView is a primary as every surface shows it in JSON, the command line too.
type PrimaryView struct {
	elect.Primary
	ExpiresInMS int64 `json:"expires_in_ms"`
	// TimeoutMS is the T of the holder's session; only the state has it.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

// RoleView is a role in a list, as every surface shows it in JSON.
type RoleView struct {
	Role        string          `json:"role"`
	Primaries   []PrimaryView   `json:"primaries"`
	Standbys    []elect.Standby `json:"standbys"`
	Term        int64           `json:"term"`
	VacantForMS int64           `json:"vacant_for_ms"`
}

// whoJSON is a role by itself: its primary, all holders if there are more, and
// who stands by.
type whoJSON struct {
	PrimaryView
	Primaries []PrimaryView   `json:"primaries"`
	Standbys  []elect.Standby `json:"standbys"`
}

// ViewPrimary shows a primary.
func ViewPrimary(p elect.Primary) PrimaryView {
	return PrimaryView{Primary: p, ExpiresInMS: p.ExpiresIn.Milliseconds()}
}

func viewPrimaries(holders []elect.Primary) []PrimaryView {
	out := make([]PrimaryView, 0, len(holders))
	for _, p := range holders {
		out = append(out, ViewPrimary(p))
	}
	return out
}

// ViewRole shows a role; its lists are never null.
func ViewRole(r elect.Role) RoleView {
	standbys := r.Standbys
	if standbys == nil {
		standbys = []elect.Standby{}
	}
	return RoleView{
		Role: r.Name, Primaries: viewPrimaries(r.Primary), Standbys: standbys,
		Term: r.Term, VacantForMS: r.VacantFor.Milliseconds(),
	}
}

func (s *Server) listRoles(w http.ResponseWriter, r *http.Request) error {
	roles, err := elect.Roles(r.Context(), s.cfg.Store)
	if err != nil {
		return err
	}
	out := make([]RoleView, 0, len(roles))
	for _, role := range roles {
		out = append(out, ViewRole(role))
	}
	return writeJSON(w, http.StatusOK, map[string]any{"roles": out})
}

func (s *Server) getRole(w http.ResponseWriter, r *http.Request) error {
	role := r.PathValue("role")
	holders, err := elect.Holders(r.Context(), s.cfg.Store, role)
	if err != nil {
		return err
	}
	waiters, err := s.cfg.Store.Waiters(r.Context(), elect.Space)
	if err != nil {
		return err
	}
	out := whoJSON{PrimaryView: ViewPrimary(holders[0]), Primaries: viewPrimaries(holders), Standbys: []elect.Standby{}}
	for _, waiter := range waiters {
		if waiter.Lease.Key == role {
			i := waiter.Session.Instance
			out.Standbys = append(out.Standbys, elect.Standby{ID: i.ID, Name: i.Name, Address: i.Address})
		}
	}
	return writeJSON(w, http.StatusOK, out)
}

// self is for load balancers: it asks this process's own trust, never the store.
func (s *Server) self(w http.ResponseWriter, r *http.Request) error {
	role := r.PathValue("role")
	if err := elect.ValidateRole(role); err != nil {
		return err
	}
	term, ok := s.selfTerm(role)
	if !ok {
		return errNotPrimary
	}
	return writeJSON(w, http.StatusOK, map[string]any{"role": role, "term": term})
}

// selfTerm is the term under which this process may believe itself primary now.
func (s *Server) selfTerm(role string) (int64, bool) {
	term, ok := s.cfg.Self(role)
	if !ok || term.Live == nil || !term.Live.Valid() {
		return 0, false
	}
	return term.Number, true
}

// resign asks the primary to give the role up. The history shows who asked: what
// the caller says of itself, and the address it came from.
func (s *Server) resign(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		To string `json:"to"`
		By string `json:"by"`
	}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	who, err := by(r, body.By)
	if err != nil {
		return err
	}
	role := r.PathValue("role")
	if err := elect.Resign(r.Context(), s.cfg.Store, role, body.To, who); err != nil {
		return err
	}
	return writeJSON(w, http.StatusAccepted, map[string]string{"role": role, "asked": "resign", "to": body.To})
}

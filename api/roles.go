package api

import (
	"net/http"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/elect"
)

// ViewPrimary shows a primary.
func ViewPrimary(p elect.Primary) apitype.Primary {
	return apitype.Primary{
		Role: p.Role, ID: p.ID, Name: p.Name, Address: p.Address, Term: p.Term, Since: p.Since,
		ExpiresInMS: p.ExpiresIn.Milliseconds(),
	}
}

func viewPrimaries(holders []elect.Primary) []apitype.Primary {
	out := make([]apitype.Primary, 0, len(holders))
	for _, p := range holders {
		out = append(out, ViewPrimary(p))
	}
	return out
}

// viewRole shows a role; its lists are never null.
func viewRole(r elect.Role) apitype.Role {
	out := apitype.Role{
		Role: r.Name, Primaries: viewPrimaries(r.Primary), Standbys: make([]apitype.Standby, 0, len(r.Standbys)),
		Term: r.Term, VacantForMS: r.VacantFor.Milliseconds(),
	}
	for _, s := range r.Standbys {
		out.Standbys = append(out.Standbys, apitype.Standby{ID: s.ID, Name: s.Name, Address: s.Address})
	}
	return out
}

func (s *Server) listRoles(w http.ResponseWriter, r *http.Request) error {
	roles, err := elect.Roles(r.Context(), s.cfg.Store)
	if err != nil {
		return err
	}
	out := make([]apitype.Role, 0, len(roles))
	for _, role := range roles {
		out = append(out, viewRole(role))
	}
	return writeJSON(w, http.StatusOK, apitype.Roles{Roles: out})
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
	out := apitype.RoleHolders{Primary: ViewPrimary(holders[0]), Primaries: viewPrimaries(holders), Standbys: []apitype.Standby{}}
	for _, waiter := range waiters {
		if waiter.Lease.Key == role {
			i := waiter.Session.Instance
			out.Standbys = append(out.Standbys, apitype.Standby{ID: i.ID, Name: i.Name, Address: i.Address})
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
	return writeJSON(w, http.StatusOK, apitype.RoleSelf{Role: role, Term: term})
}

// selfTerm is the term under which this process may believe itself primary now.
func (s *Server) selfTerm(role string) (int64, bool) {
	term, ok := s.cfg.Self(role)
	if !ok || term.Session == nil || !term.Session.Valid() {
		return 0, false
	}
	return term.Number, true
}

// resign asks the primary to give the role up. The history shows who asked: what
// the caller says of itself, and the address it came from.
func (s *Server) resign(w http.ResponseWriter, r *http.Request) error {
	var body apitype.ResignRequest
	if err := readJSON(r, &body); err != nil {
		return err
	}
	who, err := requesterOf(r, body.By)
	if err != nil {
		return err
	}
	role := r.PathValue("role")
	if err := elect.Resign(r.Context(), s.cfg.Store, role, body.To, who); err != nil {
		return err
	}
	return writeJSON(w, http.StatusAccepted, apitype.ResignAccepted{Role: role, Asked: "resign", To: body.To})
}

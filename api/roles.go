package api

import (
	"net/http"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
)

// ViewPrimary shows a primary.
func ViewPrimary(p elect.Primary) apitype.Primary {
	return apitype.Primary{
		Role: p.Role, ID: p.ID, Name: p.Name, Address: p.Address, Term: p.Term, Since: p.Since,
		ExpiresInMS: p.ExpiresIn.Milliseconds(),
	}
}

// viewRole shows a role; its lists are never null.
func viewRole(r elect.Role) apitype.Role {
	return apitype.Role{
		Role: r.Name, Primaries: views(r.Primary, ViewPrimary), Standbys: views(r.Standbys, viewStandby),
		Term: r.Term, VacantForMS: r.VacantFor.Milliseconds(),
	}
}

func viewStandby(s elect.Standby) apitype.Standby { return apitype.Standby(s) }

func (s *Server) listRoles(r *http.Request) (out apitype.Roles, err error) {
	q := queryOf(r)
	after, text, limit := q.name("after"), q.name("contains"), q.limit(lease.MaxList)
	if q.err != nil {
		return out, q.err
	}
	roles, err := elect.Roles(r.Context(), s.cfg.Store)
	name := func(r elect.Role) string { return r.Name }
	roles, out.Next = pageOf(matching(roles, text, name), after, limit, name)
	out.Roles = views(roles, viewRole)
	return out, err
}

func (s *Server) getRole(r *http.Request) (out apitype.RoleHolders, err error) {
	role := r.PathValue("role")
	holders, err := elect.Holders(r.Context(), s.cfg.Store, role)
	if err != nil {
		return out, err
	}
	waiters, err := s.cfg.Store.Waiters(r.Context(), elect.Space)
	out = apitype.RoleHolders{Primary: ViewPrimary(holders[0]), Primaries: views(holders, ViewPrimary), Standbys: []apitype.Standby{}}
	for _, waiter := range waiters {
		if waiter.Lease.Key == role {
			out.Standbys = append(out.Standbys, apitype.Standby(waiter.Session.Instance))
		}
	}
	return out, err
}

// self is for load balancers: it asks this process's own trust, never the store.
func (s *Server) self(r *http.Request) (out apitype.RoleSelf, err error) {
	role := r.PathValue("role")
	if err := elect.ValidateRole(role); err != nil {
		return out, err
	}
	term, ok := s.selfTerm(role)
	if !ok {
		return out, errNotPrimary
	}
	return apitype.RoleSelf{Role: role, Term: term}, nil
}

// selfTerm is the term under which this process may believe itself primary now.
func (s *Server) selfTerm(role string) (int64, bool) {
	term, ok := s.cfg.Self(role)
	if !ok || term.Session == nil || !term.Session.Valid() {
		return 0, false
	}
	return term.Number, true
}

// resign asks a holder, or all, to give the role up. The history shows who asked: what
// the caller says of itself, and the address it came from.
func (s *Server) resign(w http.ResponseWriter, r *http.Request) error {
	body, err := bodyOf[apitype.ResignRequest](r)
	if err != nil {
		return err
	}
	who, err := requesterOf(r, body.By)
	if err != nil {
		return err
	}
	role := r.PathValue("role")
	asked, err := elect.Resign(r.Context(), s.cfg.Store, elect.ResignRequest{Role: role, Successor: body.To, All: body.All, By: who})
	if err != nil {
		return err
	}
	answer := apitype.ResignAccepted{Role: role, Asked: "resign", To: body.To, Primaries: make([]apitype.Primary, len(asked))}
	for i, p := range asked {
		answer.Primaries[i] = ViewPrimary(p)
	}
	return writeJSON(w, http.StatusAccepted, answer)
}

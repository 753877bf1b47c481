package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/lease"
)

// viewToken shows a token; now is the store's clock.
func viewToken(t access.Token, now time.Time) apitype.Token {
	out := apitype.Token{
		ID: t.ID, Name: t.Name, Scopes: t.Scopes.Names(), Created: t.Created, By: t.By,
		Expires: t.Expires, Revoked: t.Revoked, RevokedBy: t.RevokedBy, State: apitype.TokenLive,
	}
	switch {
	case !t.Revoked.IsZero():
		out.State = apitype.TokenRevoked
	case !t.IsLive(now):
		out.State = apitype.TokenExpired
	}
	return out
}

func (s *Server) tokenRoutes() []route {
	check := func(*http.Request) error {
		if s.router.auth.tokens == nil {
			return errNoTokens
		}
		return nil
	}
	return guarded(check, []route{
		{pattern: "GET /v1/tokens", handle: inJSON(s.listTokens), manages: true},
		{pattern: "POST /v1/tokens", handle: s.createToken, manages: true},
		{pattern: "DELETE /v1/tokens/{id}", handle: inJSON(s.revokeToken), manages: true},
	})
}

func (s *Server) listTokens(r *http.Request) (apitype.Tokens, error) {
	all, now, err := s.router.auth.tokens.tokens.List(r.Context())
	return apitype.Tokens{Tokens: views(all, func(t access.Token) apitype.Token { return viewToken(t, now) })}, err
}

func (s *Server) createToken(w http.ResponseWriter, r *http.Request) error {
	body, err := bodyOf[apitype.NewToken](r)
	if err != nil {
		return err
	}
	scopes, err := access.ParseScopes(body.Scopes)
	if err != nil {
		return err
	}
	if body.LastsMS < 0 || body.LastsMS > access.MaxLife.Milliseconds() {
		return fmt.Errorf("%w: lasts_ms is %d: use 0 for ever, or up to %d", lease.ErrInvalid, body.LastsMS, access.MaxLife.Milliseconds())
	}
	who, err := requesterOf(r, body.By)
	if err != nil {
		return err
	}
	t, secret, err := access.NewToken(body.Name, scopes, who)
	if err != nil {
		return err
	}
	tokens := s.router.auth.tokens
	if t, err = tokens.tokens.Add(r.Context(), t, millis(body.LastsMS)); err != nil {
		return err
	}
	tokens.snapshot.invalidate()
	return writeJSON(w, http.StatusCreated, apitype.TokenSecret{Token: viewToken(t, t.Created), Secret: secret})
}

// revokeToken ends a token that the path names by its id or its name. Here that counts at once, and on every
// other server when it reads the tokens next.
func (s *Server) revokeToken(r *http.Request) (out apitype.Token, err error) {
	who, err := requesterOf(r, r.URL.Query().Get("by"))
	if err != nil {
		return out, err
	}
	t, err := s.router.auth.tokens.revoke(r.Context(), r.PathValue("id"), who)
	return viewToken(t, t.Revoked), err
}

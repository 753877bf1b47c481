package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/lease"
)

// TokenState is what a token is good for.
type TokenState string

// States of a token.
const (
	TokenLive    TokenState = "live"
	TokenExpired TokenState = "expired"
	TokenRevoked TokenState = "revoked"
)

// TokenView is a token as every surface shows it in JSON, the command line too. It has no secret.
type TokenView struct {
	access.Token
	State TokenState `json:"state"`
}

// ViewToken shows a token; now is the store's clock.
func ViewToken(t access.Token, now time.Time) TokenView {
	v := TokenView{t, TokenLive}
	switch {
	case !t.Revoked.IsZero():
		v.State = TokenRevoked
	case !t.Live(now):
		v.State = TokenExpired
	}
	return v
}

// NewTokenView is a token that was just made, and its secret, which is shown this once.
type NewTokenView struct {
	Token  TokenView `json:"token"`
	Secret string    `json:"secret"`
}

func (s *Server) tokenRoutes() []route {
	out := []route{
		{pattern: "GET /v1/tokens", handle: s.listTokens, manages: true},
		{pattern: "POST /v1/tokens", handle: s.makeToken, manages: true},
		{pattern: "DELETE /v1/tokens/{id}", handle: s.revokeToken, manages: true},
	}
	for i := range out {
		handle := out[i].handle
		out[i].handle = func(w http.ResponseWriter, r *http.Request) error {
			if s.router.gate.book == nil {
				return errNoTokens
			}
			return handle(w, r)
		}
	}
	return out
}

func (s *Server) listTokens(w http.ResponseWriter, r *http.Request) error {
	all, now, err := s.router.gate.book.tokens.List(r.Context())
	if err != nil {
		return err
	}
	out := make([]TokenView, 0, len(all))
	for _, t := range all {
		out = append(out, ViewToken(t, now))
	}
	return writeJSON(w, http.StatusOK, map[string]any{"tokens": out})
}

func (s *Server) makeToken(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Name   string   `json:"name"`
		Scopes []string `json:"scopes"`
		// LastsMS is how long it lasts; 0 is for ever.
		LastsMS int64  `json:"lasts_ms"`
		By      string `json:"by"`
	}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	scopes, err := access.ParseScopes(body.Scopes)
	if err != nil {
		return err
	}
	if body.LastsMS < 0 || body.LastsMS > access.MaxLife.Milliseconds() {
		return fmt.Errorf("%w: lasts_ms is %d: use 0 for ever, or up to %d", lease.ErrInvalid, body.LastsMS, access.MaxLife.Milliseconds())
	}
	who, err := by(r, body.By)
	if err != nil {
		return err
	}
	t, secret, err := access.Make(body.Name, scopes, who)
	if err != nil {
		return err
	}
	book := s.router.gate.book
	if t, err = book.tokens.Add(r.Context(), t, millis(body.LastsMS)); err != nil {
		return err
	}
	book.seen.forget()
	return writeJSON(w, http.StatusCreated, NewTokenView{ViewToken(t, t.Created), secret})
}

// revokeToken ends a token that the path names by its id or its name. Here that counts at once, and on every
// other server when it reads the tokens next.
func (s *Server) revokeToken(w http.ResponseWriter, r *http.Request) error {
	who, err := by(r, r.URL.Query().Get("by"))
	if err != nil {
		return err
	}
	t, err := s.router.gate.book.revoke(r.Context(), r.PathValue("id"), who)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, ViewToken(t, t.Revoked))
}

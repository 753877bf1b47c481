package apitype

import "time"

// States of a [Token].
const (
	TokenLive    = "live"
	TokenExpired = "expired"
	TokenRevoked = "revoked"
)

// Token is a token of the store, without its secret.
type Token struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Scopes    []string  `json:"scopes" enum:"read,act,ingest"`
	Created   time.Time `json:"created"`
	By        string    `json:"by"`               // who made it
	Expires   time.Time `json:"expires,omitzero"` // missing: never
	Revoked   time.Time `json:"revoked,omitzero"`
	RevokedBy string    `json:"revoked_by,omitempty"`
	State     string    `json:"state" enum:"live,expired,revoked"`
}

// Tokens is a list of tokens.
type Tokens struct {
	Tokens []Token `json:"tokens"`
}

// NewToken asks for a token.
type NewToken struct {
	Name    string   `json:"name"`
	Scopes  []string `json:"scopes" enum:"read,act,ingest"`
	LastsMS int64    `json:"lasts_ms,omitempty"` // 0 is for ever
	By      string   `json:"by,omitempty"`
}

// TokenSecret is a new token and its secret, which is shown this once.
type TokenSecret struct {
	Token  Token  `json:"token"`
	Secret string `json:"secret"`
}

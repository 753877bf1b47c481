package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Token is a token of the store; its secret is known to whoever made it alone.
type Token struct {
	ID     string   `json:"id"`
	Name   string   `json:"name"`
	Scopes []string `json:"scopes"` // read, act, ingest
	State  string   `json:"state"`  // live, expired or revoked
	// Created and By: when, and by whom.
	Created time.Time `json:"created"`
	By      string    `json:"by"`
	// Expires is zero for one that lasts for ever.
	Expires time.Time `json:"expires"`
	// Revoked and RevokedBy: when it was ended, and by whom.
	Revoked   time.Time `json:"revoked"`
	RevokedBy string    `json:"revoked_by"`
}

// NewToken is a token to be made.
type NewToken struct {
	Name   string
	Scopes []string
	// Lasts is how long, in whole milliseconds; 0 is for ever.
	Lasts time.Duration
	// By is who asks, for the history.
	By string
}

// Tokens lists the tokens, the oldest first, those that are over too. This and what follows needs the token of
// the server's configuration.
func (c *Client) Tokens(ctx context.Context) ([]Token, error) {
	var out struct{ Tokens []Token }
	err := c.do(ctx, http.MethodGet, "/v1/tokens", nil, nil, &out)
	return out.Tokens, err
}

// MakeToken makes a token and returns its secret, which the server cannot show again. A call without an
// answer may have made one: see [Client.Tokens], and revoke it.
func (c *Client) MakeToken(ctx context.Context, n NewToken) (t Token, secret string, err error) {
	body := map[string]any{"name": n.Name, "scopes": n.Scopes, "lasts_ms": n.Lasts.Milliseconds(), "by": n.By}
	var out struct {
		Token  Token
		Secret string
	}
	err = c.do(ctx, http.MethodPost, "/v1/tokens", nil, body, &out)
	return out.Token, out.Secret, err
}

// RevokeToken ends a token, by its id or its name.
func (c *Client) RevokeToken(ctx context.Context, idOrName, by string) (Token, error) {
	v := url.Values{}
	set(v, "by", by)
	var out Token
	err := c.do(ctx, http.MethodDelete, "/v1/tokens/"+url.PathEscape(idOrName), v, nil, &out)
	return out, err
}

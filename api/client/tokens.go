package client

import (
	"context"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
)

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
func (c *Client) Tokens(ctx context.Context) ([]apitype.Token, error) {
	out, err := get[apitype.Tokens](ctx, c, "/v1/tokens", nil)
	return out.Tokens, err
}

// CreateToken makes a token and returns its secret, which the server cannot show again. A call without an
// answer may have made one: see [Client.Tokens], and revoke it.
func (c *Client) CreateToken(ctx context.Context, n NewToken) (t apitype.Token, secret string, err error) {
	body := apitype.NewToken{Name: n.Name, Scopes: n.Scopes, LastsMS: n.Lasts.Milliseconds(), By: n.By}
	out, err := call[apitype.TokenSecret](ctx, c, http.MethodPost, "/v1/tokens", nil, body)
	return out.Token, out.Secret, err
}

// RevokeToken ends a token, by its id or its name.
func (c *Client) RevokeToken(ctx context.Context, idOrName, by string) (apitype.Token, error) {
	return call[apitype.Token](ctx, c, http.MethodDelete, pathOf("tokens", idOrName), values("by", by), nil)
}

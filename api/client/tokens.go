package client

import (
	"context"
	"net/http"
	"net/url"
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
	var out apitype.Tokens
	err := c.do(ctx, http.MethodGet, "/v1/tokens", nil, nil, &out)
	return out.Tokens, err
}

// CreateToken makes a token and returns its secret, which the server cannot show again. A call without an
// answer may have made one: see [Client.Tokens], and revoke it.
func (c *Client) CreateToken(ctx context.Context, n NewToken) (t apitype.Token, secret string, err error) {
	body := apitype.NewToken{Name: n.Name, Scopes: n.Scopes, LastsMS: n.Lasts.Milliseconds(), By: n.By}
	var out apitype.TokenSecret
	err = c.do(ctx, http.MethodPost, "/v1/tokens", nil, body, &out)
	return out.Token, out.Secret, err
}

// RevokeToken ends a token, by its id or its name.
func (c *Client) RevokeToken(ctx context.Context, idOrName, by string) (apitype.Token, error) {
	v := url.Values{}
	set(v, "by", by)
	var out apitype.Token
	err := c.do(ctx, http.MethodDelete, "/v1/tokens/"+url.PathEscape(idOrName), v, nil, &out)
	return out, err
}

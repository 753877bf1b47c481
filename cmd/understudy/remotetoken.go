package main

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/store"
)

// tokenDesk is what the commands do with tokens, on the store or through a server.
type tokenDesk interface {
	create(ctx context.Context, name string, may access.Scopes, lasts time.Duration) (api.NewTokenView, error)
	list(ctx context.Context) ([]api.TokenView, error)
	revoke(ctx context.Context, idOrName string) (api.TokenView, error)
}

// withTokens lets f use the desk of the store or of a server within callTimeout.
func (a *app) withTokens(ctx context.Context, f func(context.Context, tokenDesk) error) error {
	if a.remote() {
		c, err := a.server()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return f(ctx, remoteTokens{c})
	}
	return a.ask(ctx, func(ctx context.Context, st store.Store) error {
		keeps, ok := st.(store.Tokens)
		if !ok {
			return usage.Errorf("this store keeps no tokens")
		}
		return f(ctx, storeTokens{keeps.Tokens()})
	})
}

// storeTokens are those of a store.
type storeTokens struct{ tokens access.Tokens }

func (s storeTokens) create(ctx context.Context, name string, may access.Scopes, lasts time.Duration) (out api.NewTokenView, err error) {
	t, secret, err := access.Make(name, may, who())
	if err != nil {
		return out, err
	}
	if t, err = s.tokens.Add(ctx, t, lasts); err != nil {
		return out, err
	}
	return api.NewTokenView{Token: api.ViewToken(t, t.Created), Secret: secret}, nil
}

func (s storeTokens) list(ctx context.Context) ([]api.TokenView, error) {
	all, now, err := s.tokens.List(ctx)
	out := make([]api.TokenView, len(all))
	for i, t := range all {
		out[i] = api.ViewToken(t, now)
	}
	return out, err
}

func (s storeTokens) revoke(ctx context.Context, idOrName string) (api.TokenView, error) {
	t, err := s.tokens.Revoke(ctx, idOrName, who())
	return api.ViewToken(t, t.Revoked), err
}

// remoteTokens are those that a server knows.
type remoteTokens struct{ c *client.Client }

func (r remoteTokens) create(ctx context.Context, name string, may access.Scopes, lasts time.Duration) (out api.NewTokenView, err error) {
	t, secret, err := r.c.MakeToken(ctx, client.NewToken{Name: name, Scopes: may.Names(), Lasts: lasts, By: who()})
	if err != nil {
		return out, heard(err)
	}
	out.Secret = secret
	out.Token, err = recast[api.TokenView](t)
	return out, err
}

func (r remoteTokens) list(ctx context.Context) ([]api.TokenView, error) {
	tokens, err := r.c.Tokens(ctx)
	if err != nil {
		return nil, heard(err)
	}
	return recast[[]api.TokenView](tokens)
}

func (r remoteTokens) revoke(ctx context.Context, idOrName string) (api.TokenView, error) {
	t, err := r.c.RevokeToken(ctx, idOrName, who())
	if err != nil {
		return api.TokenView{}, heard(err)
	}
	return recast[api.TokenView](t)
}

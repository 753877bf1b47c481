package main

import (
	"context"
	"log/slog"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/store"
)

// roleDesk is what the commands do with roles and the history, on the store or through a server.
type roleDesk interface {
	Roles(ctx context.Context) ([]elect.Role, error)
	Holders(ctx context.Context, role string) ([]elect.Primary, error)
	Resign(ctx context.Context, role, to, by string) error
	Read(ctx context.Context, q history.Query) ([]history.Event, error)
	// follow hands on events after the one named as they come, until ctx ends, which is no
	// error, or tell returns one.
	follow(ctx context.Context, after int64, part, subject string, tell func([]history.Event) error) error
}

// withRoles lets f use the desk; f bounds its own calls.
func (a *app) withRoles(ctx context.Context, f func(context.Context, roleDesk) error) error {
	if a.remote() {
		c, err := a.server()
		if err != nil {
			return err
		}
		return f(ctx, remoteRoles{c})
	}
	st, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	return f(ctx, storeRoles{st, a.Log})
}

// askRoles is withRoles within callTimeout.
func (a *app) askRoles(ctx context.Context, f func(context.Context, roleDesk) error) error {
	return a.withRoles(ctx, func(ctx context.Context, d roleDesk) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return f(ctx, d)
	})
}

// storeRoles are those of a store.
type storeRoles struct {
	store.Store
	log *slog.Logger
}

func (s storeRoles) Roles(ctx context.Context) ([]elect.Role, error) {
	return elect.Roles(ctx, s.Store)
}

func (s storeRoles) Holders(ctx context.Context, role string) ([]elect.Primary, error) {
	return elect.Holders(ctx, s.Store, role)
}

func (s storeRoles) Resign(ctx context.Context, role, to, by string) error {
	return elect.Resign(ctx, s.Store, role, to, by)
}

func (s storeRoles) follow(ctx context.Context, after int64, part, subject string, tell func([]history.Event) error) error {
	return follow(ctx, s.Store, s.log, history.NewFeed(s.Store, after, part, subject), tell)
}

// remoteRoles are those that a server knows.
type remoteRoles struct{ c *client.Client }

func (r remoteRoles) Roles(ctx context.Context) ([]elect.Role, error) {
	roles, err := r.c.Roles(ctx)
	if err != nil {
		return nil, heard(err)
	}
	var out []elect.Role
	for _, role := range roles {
		is := elect.Role{Name: role.Role, Primary: primaries(role.Primaries), Term: role.Term, VacantFor: millis(role.VacantForMS)}
		for _, s := range role.Standbys {
			is.Standbys = append(is.Standbys, elect.Standby(s))
		}
		out = append(out, is)
	}
	return out, nil
}

func primaries(list []client.Primary) (out []elect.Primary) {
	for _, p := range list {
		out = append(out, elect.Primary{
			Role: p.Role, ID: p.ID, Name: p.Name, Address: p.Address, Term: p.Term, Since: p.Since, ExpiresIn: millis(p.ExpiresInMS),
		})
	}
	return out
}

func (r remoteRoles) Holders(ctx context.Context, role string) ([]elect.Primary, error) {
	if err := elect.ValidateRole(role); err != nil {
		return nil, err
	}
	who, err := r.c.Who(ctx, role)
	return primaries(who.Primaries), heard(err)
}

func (r remoteRoles) Resign(ctx context.Context, role, to, by string) error {
	if err := elect.ValidateRole(role); err != nil {
		return err
	}
	return heard(r.c.Resign(ctx, role, to, by))
}

func (r remoteRoles) Read(ctx context.Context, q history.Query) ([]history.Event, error) {
	events, err := r.c.History(ctx, client.Query{Part: q.Part, Subject: q.Subject, After: q.After, Before: q.Before, Limit: q.Limit})
	if err != nil {
		return nil, heard(err)
	}
	out := make([]history.Event, len(events))
	for i, e := range events {
		out[i] = history.Event(e)
	}
	return out, nil
}

func (r remoteRoles) follow(ctx context.Context, after int64, part, subject string, tell func([]history.Event) error) error {
	err := r.c.Events(ctx, client.Follow{Part: part, Subject: subject, After: after, All: after == 0}, func(e client.Event) error {
		return tell([]history.Event{history.Event(e)})
	})
	if ctx.Err() != nil {
		return nil
	}
	return heard(err)
}

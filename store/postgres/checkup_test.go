package postgres

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

func TestPressureIsJudged(t *testing.T) {
	fine := pressure{most: 97, used: 10, autovacuum: true, snapshot: 2, live: 1000, dead: 5000, xidAge: 200_000_000}
	for name, c := range map[string]struct {
		change func(*pressure)
		check  string
		want   store.Verdict
	}{
		"all is well":             {func(*pressure) {}, "", ""},
		"many connections":        {func(p *pressure) { p.used = 80 }, "connections", store.Warn},
		"hardly any left":         {func(p *pressure) { p.used = 96 }, "connections", store.Bad},
		"an old snapshot":         {func(p *pressure) { p.snapshot = 3600 }, "snapshots", store.Warn},
		"a forgotten transaction": {func(p *pressure) { p.prepared = 86400 }, "snapshots", store.Warn},
		"a slot without a reader": {func(p *pressure) { p.slots = 1 }, "snapshots", store.Warn},
		"no autovacuum":           {func(p *pressure) { p.autovacuum = false }, "vacuum", store.Warn},
		"much was not cleaned":    {func(p *pressure) { p.dead = 1_000_000 }, "vacuum", store.Warn},
		"wraparound is near":      {func(p *pressure) { p.xidAge = 1_900_000_000 }, "vacuum", store.Bad},
		"a slow listener":         {func(p *pressure) { p.notify = 0.5 }, "notifications", store.Warn},
		"no room to notify":       {func(p *pressure) { p.notify = 0.95 }, "notifications", store.Bad},
	} {
		t.Run(name, func(t *testing.T) {
			p := fine
			c.change(&p)
			for _, f := range []store.Finding{p.connections(), p.horizon(), p.vacuum(), p.notifications()} {
				want := store.OK
				if f.Check == c.check {
					want = c.want
				}
				if f.Verdict != want || f.Says == "" || (f.Do == "") != (f.Verdict == store.OK) {
					t.Errorf("%+v; want %s", f, want)
				}
			}
		})
	}
}

// A full queue of notifications shares its SQLSTATE with other limits.
func TestFullNotificationQueue(t *testing.T) {
	for file, want := range map[string]bool{"async.c": true, "nbtutils.c": false} {
		err := classify(&pgconn.PgError{Code: "54000", File: file, Message: "in any language"})
		if !errors.Is(err, lease.ErrUnavailable) || strings.Contains(err.Error(), freeNotifications) != want {
			t.Errorf("%s: %v", file, err)
		}
	}
}

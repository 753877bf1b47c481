package postgres

import (
	"testing"

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
	} {
		t.Run(name, func(t *testing.T) {
			p := fine
			c.change(&p)
			for _, f := range []store.Finding{p.connections(), p.horizon(), p.vacuum()} {
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

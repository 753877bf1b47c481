package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim/claimtest"
	"github.com/understudy-ha/understudy/dispatch/dispatchtest"
	"github.com/understudy-ha/understudy/internal/realserver"
	"github.com/understudy-ha/understudy/store/postgres"
)

// fresh makes schemas in one database, each with a clock that can be stepped.
type fresh struct {
	database string
	schemas  int
}

// schema makes one; url leads to its database.
func (f *fresh) schema(t *testing.T, url string) (open func(*testing.T) *postgres.Store, step func(*testing.T, time.Duration)) {
	f.schemas++
	n := f.schemas
	url = fmt.Sprintf("%s&schema=s%d", url, n)
	open = func(t *testing.T) *postgres.Store { return openStore(t, url) }
	open(t)
	stepClock(t, f.database, n, 0)
	return open, func(t *testing.T, d time.Duration) { stepClock(t, f.database, n, d) }
}

func openStore(t *testing.T, url string) *postgres.Store { return open(t, url) }

// ways are the ways to a database on which the suites run.
func ways(t *testing.T, run func(t *testing.T, f *fresh, url string)) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	bouncer := realserver.PgBouncer(t, server)
	f := &fresh{database: server.NewDatabase(t)}
	t.Run("direct", func(t *testing.T) { run(t, f, f.database) })
	if testing.Short() {
		return
	}
	exec(t, f.database, `ALTER ROLE postgres SET default_transaction_isolation = 'serializable';
		ALTER ROLE postgres SET DateStyle = 'SQL, DMY'; ALTER ROLE postgres SET TimeZone = 'Asia/Kathmandu'`)
	t.Run("strange settings by pgbouncer", func(t *testing.T) { run(t, f, bouncer.URL(f.database)) })
}

func TestClaimConformance(t *testing.T) {
	ways(t, func(t *testing.T, f *fresh, url string) {
		claimtest.Run(t, func(t *testing.T) *claimtest.Harness {
			open, step := f.schema(t, url)
			return &claimtest.Harness{Open: func(t *testing.T) claimtest.Store { return open(t) }, Step: step}
		})
	})
}

func TestDispatchConformance(t *testing.T) {
	ways(t, func(t *testing.T, f *fresh, url string) {
		dispatchtest.Run(t, func(t *testing.T) *dispatchtest.Harness {
			open, step := f.schema(t, url)
			return &dispatchtest.Harness{Open: func(t *testing.T) dispatchtest.Store { return open(t) }, Step: step}
		})
	})
}

func TestClaimsAreLinearizable(t *testing.T) {
	url := realserver.Postgres(t, realserver.PostgresOptions{}).NewDatabase(t)
	claimtest.CheckLinearizable(t, func(t *testing.T) claimtest.Store { return open(t, url) }, claimtest.Concurrent{})
}

func TestDispatchKeepsOrder(t *testing.T) {
	url := realserver.Postgres(t, realserver.PostgresOptions{}).NewDatabase(t)
	dispatchtest.CheckOrder(t, func(t *testing.T) dispatchtest.Store { return open(t, url) }, dispatchtest.Concurrent{})
}

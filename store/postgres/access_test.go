package postgres_test

import (
	"testing"
	"time"

	"github.com/understudy-ha/understudy/access/accesstest"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

func TestAccess(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	f := newFresh(t, server)
	waysTo(t, server, func(t *testing.T, way func(string) string) {
		accesstest.TestTokens(t, func(t *testing.T) accesstest.Subject {
			d := f.empty(t, way)
			s := d.open(t)
			return accesstest.Subject{
				Tokens: s.Tokens(), Other: d.open(t).Tokens(), History: s,
				Advance: func(by time.Duration) { d.step(t, by) },
			}
		})
	})
}

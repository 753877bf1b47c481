package postgres_test

import (
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/job/jobtest"
)

func TestJobs(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	f := newFresh(t, server)
	waysTo(t, server, func(t *testing.T, way func(string) string) {
		jobtest.TestStore(t, func(t *testing.T) jobtest.Subject {
			d := f.empty(t, way)
			s := d.open(t)
			return jobtest.Subject{Jobs: s.Jobs(), Other: d.open(t).Jobs(), History: s, Leases: s, Advance: func(by time.Duration) { d.step(t, by) }}
		})
	})
}

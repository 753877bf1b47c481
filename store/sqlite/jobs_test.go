package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/understudy-ha/understudy/job/jobtest"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

func TestJobs(t *testing.T) {
	jobtest.TestStore(t, func(t *testing.T) jobtest.Subject {
		c := &clock{Clock: lease.BootClock()}
		cfg := sqlite.Config{Path: filepath.Join(t.TempDir(), "store.db"), Clock: c, Wall: c.Wall}
		s := open(t, cfg)
		return jobtest.Subject{Jobs: s.Jobs(), Other: open(t, cfg).Jobs(), History: s, Leases: s, Advance: c.step}
	})
}

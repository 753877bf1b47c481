//go:build linux

package fault_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
)

// scenario is one fault, from a cluster without nodes to what must come of it.
type scenario struct {
	name string
	run  func(t *testing.T, c *fault.Cluster)
	// server: the store's server itself is hurt; steps: its clock is.
	server, steps bool
	// outage is how long the scenario keeps everyone from holding the role.
	outage time.Duration
}

// TestFault runs every scenario on every store that can have it under
// UNDERSTUDY_PROVE=1. Otherwise each store has the random troubles and what hurts the
// store itself, and PostgreSQL alone has what hurts processes and links: the guard is
// the same on every store. The judge reads what came of each.
func TestFault(t *testing.T) {
	t.Parallel()
	programs := fault.Build(t)
	chaos := chaosRuns()
	onSQLite, onPostgres, onRedis := slices.Concat(chaos, files), slices.Concat(chaos, processes, links, servers), slices.Concat(chaos, servers)
	if prove {
		onSQLite, onRedis = slices.Concat(chaos, processes, files), onPostgres
	}
	t.Run("unguarded", func(t *testing.T) { unguarded(t, programs) })
	t.Run("program dies with its guard", func(t *testing.T) { diesWithGuard(t, programs) })
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		for _, s := range onSQLite {
			s.try(t, programs, func(t *testing.T) fault.Database { return fault.SQLite(t) })
		}
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		shared := realserver.Postgres(t, realserver.PostgresOptions{})
		for _, s := range onPostgres {
			s.try(t, programs, func(t *testing.T) fault.Database {
				if s.server {
					return fault.Postgres(t, s.steps)
				}
				return fault.SharedPostgres(t, shared)
			})
		}
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		for _, s := range onRedis {
			s.try(t, programs, func(t *testing.T) fault.Database { return fault.Redis(t, s.steps) })
		}
	})
}

func (s scenario) try(t *testing.T, programs fault.Programs, database func(*testing.T) fault.Database) {
	t.Run(s.name, func(t *testing.T) {
		t.Parallel()
		c := fault.NewCluster(t, fault.Config{Programs: programs, Database: database(t), Seed: 1})
		s.run(t, c)
		c.Finish(c.Bound() + s.outage)
	})
}

// diesWithGuard kills a guard long before its deadline: what it guarded does not
// wait for that, and its role is free as soon as that is dead.
func diesWithGuard(t *testing.T, programs fault.Programs) {
	t.Parallel()
	c := fault.NewCluster(t, fault.Config{Programs: programs, Database: fault.SQLite(t),
		Timing: lease.Timing{Interval: 10 * time.Second, Timeout: 60 * time.Second}})
	n := c.Start("a")
	term := c.AwaitPrimary(0).Term
	n.Signal(syscall.SIGKILL)
	c.NothingLeft()
	if !c.Released(term) {
		t.Error("the role waits for its session to lapse: no watcher has released it")
	}
}

// unguarded is the twin that the judge must catch: with guard and watchers all
// stopped, nobody stops the program when its time has ended.
func unguarded(t *testing.T, programs fault.Programs) {
	t.Parallel()
	c := fault.NewCluster(t, fault.Config{Programs: programs, Database: fault.SQLite(t)})
	p, _ := c.Three()
	for _, pid := range watchers(t, p) {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	p.Pause(t)
	realserver.Eventually(t, c.Bound(), "the judge sees two primaries", func() error {
		broken := map[fault.Rule]bool{}
		v := c.Judge(0, 0)
		for _, violation := range v.Violations {
			broken[violation.Rule] = true
		}
		if !broken[fault.Late] || !broken[fault.Overlap] || len(broken) > 2 {
			return fmt.Errorf("it sees %v", v.Violations)
		}
		return nil
	})
}

//go:build linux

package fault_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/fault/worker/ledger"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/job/jobtest"
)

// jobCase is one fault of jobs, from no host to what must come of it.
type jobCase struct {
	name string
	run  func(t *testing.T, p fault.Programs, db fault.Database)
	// stores that it is tried on, in every run, and more of them under UNDERSTUDY_PROVE=1; server: the store has its own
	// server, which is hurt, steps: and its clock.
	stores, more  []string
	server, steps bool
}

// TestFaultJob runs whole hosts of a job through faults. The judge knows every scheduled time and every start.
func TestFaultJob(t *testing.T) {
	t.Parallel()
	programs := fault.Build(t)
	shared := realserver.Postgres(t, realserver.PostgresOptions{})
	for _, c := range jobCases {
		stores := c.stores
		if prove {
			stores = append(stores[:len(stores):len(stores)], c.more...)
		}
		for _, s := range stores {
			t.Run(c.name+"/"+s, func(t *testing.T) {
				t.Parallel()
				c.run(t, programs, c.database(t, s, shared))
			})
		}
	}
}

func (c jobCase) database(t *testing.T, store string, shared *realserver.PostgresServer) fault.Database {
	switch {
	case store == "sqlite":
		return fault.SQLite(t)
	case store == "redis":
		return fault.Redis(t, c.steps)
	case c.server || c.steps:
		return fault.Postgres(t, c.steps)
	}
	return fault.SharedPostgres(t, shared)
}

var jobCases = []jobCase{
	{name: "random troubles", run: jobChaos, stores: []string{"sqlite", "postgres"}, more: []string{"redis"}, server: true},
	{name: "store down over due times", run: jobStoreDown, stores: []string{"postgres"}, more: []string{"redis"}, server: true, steps: true},
	{name: "restored from a backup", run: restored(false), stores: light},
	{name: "restored from a backup, times skipped", run: restored(true), stores: light},
	{name: "program ignores TERM", run: jobDeaf, stores: light, more: server},
	{name: "much output", run: jobLoud, stores: light, more: server},
	{name: "disk full", run: jobDiskFull, stores: light},
	{name: "twelve started at once", run: jobTwelve, stores: light, more: []string{"postgres", "redis"}},
	{name: "host frozen", run: jobFrozen, stores: server, more: []string{"redis"}},
	{name: "host killed, nobody left", run: jobNobodyLeft, more: both},
	{name: "date, host killed/lost", run: once(false), stores: light, more: server},
	{name: "date, host killed/declared safe", run: once(true), stores: light, more: server},
}

func restored(paused bool) func(*testing.T, fault.Programs, fault.Database) {
	return func(t *testing.T, p fault.Programs, db fault.Database) { jobRestored(t, p, db, paused) }
}

func once(safe bool) func(*testing.T, fault.Programs, fault.Database) {
	return func(t *testing.T, p fault.Programs, db fault.Database) { jobOnce(t, p, db, safe) }
}

const (
	jobPeriod = 2 * time.Second
	jobTakes  = 400 * time.Millisecond
)

// jobsOf makes a job that is due every two seconds, and takes 0.4 s.
func jobsOf(t *testing.T, p fault.Programs, db fault.Database, options ...string) *fault.Jobs {
	t.Helper()
	return fault.NewJobs(t, fault.JobsConfig{Programs: p, Database: db, Seed: 1,
		Options: append([]string{"--schedule", "every 2s"}, options...), Worker: []string{"-for", jobTakes.String()}})
}

// jobChaos kills, stops and pauses guards and hosts at random around the due times, and spoils links and servers.
func jobChaos(t *testing.T, p fault.Programs, db fault.Database) {
	seed := givenSeed()
	length, least := 8*time.Second, 3
	if prove {
		length, least = 3*time.Minute, 40
	}
	t.Logf("UNDERSTUDY_SEED=%d", seed)
	j := jobsOf(t, p, db, [][]string{nil, {"--retry-safe"}, {"--overlap", "queue"}, {"--missed", "all"}}[seed%4]...)
	chaos := fault.JobChaos{Jobs: j, Period: jobPeriod, Takes: jobTakes, Hosts: []string{"a", "b", "c"}, Seed: seed, For: length, Servers: 1 + int(length/(20*time.Second))}
	did := chaos.Run(t)
	t.Logf("did %v", did)
	tried(t, did)
	if v := j.Finish(); v.Starts < least {
		t.Error("nothing was tried")
	}
}

// TestJobStarts reads starts and ends from a ledger.
func TestJobStarts(t *testing.T) {
	zero := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	got, err := fault.JobStarts([]ledger.Effect{
		{At: time.Second, Term: 1, Holder: "a/1", Run: "2030-01-01T00:00:01Z/1"},
		{At: 2 * time.Second, Term: 1, Holder: "a/1"},
		{At: 3 * time.Second, Term: 2, Holder: "b/1", Run: "2030-01-01T00:00:01Z/2"},
		{At: 4 * time.Second, Term: 2, Holder: "b/1", Run: "2030-01-01T00:00:01Z/2", Ended: true},
	}, zero)
	at := zero.Add(time.Second)
	want := []jobtest.Start{
		{Scheduled: at, Attempt: 1, Term: 1, Holder: "a/1", At: at},
		{Scheduled: at, Attempt: 2, Term: 2, Holder: "b/1", At: zero.Add(3 * time.Second), Well: true},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

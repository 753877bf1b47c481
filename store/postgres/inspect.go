package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/store"
)

// Oldest is the oldest major version of PostgreSQL that has all functions which the schema calls.
const Oldest = 13

// server is what a server says about itself.
type server struct {
	version      string
	number       int
	replica      bool
	syncCommit   string
	fsync        string
	isolation    string
	jit          bool
	now          time.Time
	schema       int
	readers      int
	noRules      bool // this program's rule set is not there
	direct       bool
	asked, heard time.Time
}

// Inspect implements [store.Admin].
func (s *Store) Inspect(ctx context.Context) (store.Info, error) {
	known, err := steps()
	if err != nil {
		return store.Info{}, err
	}
	var v server
	err = s.pool.withConnection(ctx, ordinary, func(ctx context.Context, conn *pgx.Conn) (err error) {
		v, err = s.inspectServer(ctx, conn)
		return err
	})
	if err != nil {
		return store.Info{}, fmt.Errorf("inspecting %s: %w", s.location, err)
	}
	return store.Info{
		Kind: "postgres", Location: s.location, Server: "PostgreSQL " + v.version,
		Schema: v.schema, Readers: v.readers, Wanted: len(known), Now: v.now.UTC(), Notifies: v.direct, Warnings: v.warnings(),
	}, nil
}

func (s *Store) inspectServer(ctx context.Context, conn *pgx.Conn) (v server, err error) {
	found, err := s.readState(ctx, conn)
	if err != nil {
		return v, err
	}
	v.schema, v.readers, v.noRules = found.version, found.readers, found.version > 0 && !found.installed
	if v.direct, err = isDirect(ctx, conn); err != nil {
		return v, err
	}
	clock := "clock_timestamp()"
	if v.schema > 0 {
		clock = s.sql("{{schema}}.clock()")
	}
	v.asked = time.Now()
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('server_version_num')::bigint,
		pg_is_in_recovery(), current_setting('synchronous_commit'), current_setting('fsync'),
		current_setting('default_transaction_isolation'), pg_jit_available(), `+clock).
		Scan(&v.version, &v.number, &v.replica, &v.syncCommit, &v.fsync, &v.isolation, &v.jit, &v.now)
	v.heard = time.Now()
	return v, err
}

func (v server) warnings() (out []string) {
	warn := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if v.replica {
		warn("the server is a replica and accepts no writes: name the primary, or all hosts, in the URL")
	}
	if !v.direct {
		warn("a pooler stands before the server: hand-overs are found by polling, up to one interval later; for faster ones give a URL that leads to the server itself")
	}
	if v.number/10000 < Oldest {
		warn("PostgreSQL %s is older than %d, the oldest version that is supported", v.version, Oldest)
	}
	if v.noRules {
		warn("the functions of this version are not in the schema yet: a role that may create them has to run `understudy store migrate`")
	}
	if v.syncCommit == "off" {
		warn("synchronous_commit is off: a crash of the server may forget who took a lease, and for up to T there may be two holders; set it to on for this role")
	}
	if v.fsync == "off" {
		warn("fsync is off: a crash of the server's machine may destroy the database")
	}
	// Of the next two a connection says what suits it (pool.connect), unless a pooler keeps that from the server.
	if v.isolation != "read committed" {
		warn("default_transaction_isolation is %s, and the pooler passes on no other: calls that meet are tried again, which costs time; set it to read committed for this role", v.isolation)
	}
	if v.jit {
		warn("jit is on, which the pooler does not pass on as off: each overview of queues costs the server a second of processor time; set it to off for this role")
	}
	middle := v.asked.Add(v.heard.Sub(v.asked) / 2)
	if ahead := v.now.Sub(middle).Round(time.Second); ahead.Abs() >= time.Minute {
		warn("the server's clock is %v from this host's: leases do not mind, but times in the history will look wrong here", ahead)
	}
	return out
}

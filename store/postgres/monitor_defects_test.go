package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/monitortest"
	"github.com/understudy-ha/understudy/store/postgres"
)

func TestMonitorOutages(t *testing.T) {
	f := newFresh(t, realserver.Postgres(t, realserver.PostgresOptions{}))
	monitortest.CheckOutages(t, monitorRig(t, f.empty(t, direct)), monitortest.Outages{})
}

// TestD1: an instance that takes over is the one that hb_common shows, whether or not
// the one before could say goodbye, and also if both have the same process id.
func TestD1TakeoverIsShown(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	s := open(t, url)
	for _, host := range []string{"a", "b"} {
		me := start(t, s, host, time.Minute)
		member := monitor.Member{Session: me.ID, Instance: me.Instance, Process: 7, Host: host, Service: "hb", Active: true, Sinks: []string{"log"}}
		if err := s.Monitor().RegisterMember(t.Context(), member); err != nil {
			t.Fatal(err)
		}
		_, rows := view(t, url, "understudy.hb_common")
		if len(rows) != 1 || rows[0][0] != "7" || rows[0][1] != host+"-hb" || rows[0][3] != "RECONFIGURATION" {
			t.Errorf("after %s became active: %q", host, rows)
		}
	}
	look, err := s.Monitor().Overview(t.Context())
	if err != nil || len(look.Members) != 2 {
		t.Errorf("members: %+v, %v", look.Members, err)
	}
}

// TestD24: times of the view have the type that they always had, and do not overflow it.
func TestD24TimesFit(t *testing.T) {
	f := newFresh(t, realserver.Postgres(t, realserver.PostgresOptions{})).empty(t, direct)
	s := f.open(t)
	me := start(t, s, "a", 1000*time.Hour)
	f.step(t, 20*365*24*time.Hour) // to the year 2046
	me = start(t, s, "a", 1000*time.Hour)
	member := monitor.Member{Session: me.ID, Instance: me.Instance, Process: 1, Host: "h", Service: "s", Active: true}
	if err := s.Monitor().RegisterMember(t.Context(), member); err != nil {
		t.Fatal(err)
	}
	if _, rows := view(t, f.direct, "s1.hb_common"); len(rows) != 1 || rows[0][2] != strconv.Itoa(1<<31-1) {
		t.Errorf("in the year 2046: %q", rows)
	}
}

// TestD16: any number of instances may start at once, on an empty database and on one of
// each version before, with data; nothing has to be made for them.
func TestD16StartTogether(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	versions := []int{0, 3, 11}
	if prove {
		versions = []int{0, 1, 2, 3, 4, 5, 6, 11}
	}
	for _, version := range versions {
		t.Run(fmt.Sprintf("version %d", version), func(t *testing.T) {
			url := server.NewDatabase(t)
			migrateByHand(t, url, version)
			if version >= 4 {
				exec(t, url, `INSERT INTO understudy.queue (name, made) VALUES ('work', clock_timestamp()), ('alarms.log', clock_timestamp());
					INSERT INTO understudy.batch (queue, key, payload) SELECT 'work', 'key-' || n % 7, 'x' FROM generate_series(1, 100) n`)
			}
			twelveAtOnce(t, url)
			s := open(t, url)
			if out, err := s.QueueAdmin().Messages(t.Context(), dispatch.MessageQuery{Queue: "work"}); version >= 4 && (err != nil || len(out) != 100) {
				t.Errorf("of what was there before: %d batches, %v", len(out), err)
			}
			watched(t, s.Monitor(), "a")
		})
	}
}

// TestD8CostsDoNotGrow: with very many sources, no operation looks at more rows than what it
// is about, and its answer, ask for; whatever was planned when there were few.
func TestD8CostsDoNotGrow(t *testing.T) {
	var ids []int64
	checkCosts(t, func(t *testing.T, server *realserver.PostgresServer) (url string) {
		url, ids = manySources(t, server)
		return url
	}, func(ctx context.Context) []cost { return costsOfMonitor(ctx, ids) })
}

// manySources is a database with very many sources, of which some have beaten.
func manySources(t *testing.T, server *realserver.PostgresServer) (url string, ids []int64) {
	t.Helper()
	url, s, ids := fleet(t, server, 50)
	storeBeats(t, s.Monitor(), ids)
	exec(t, url, "ANALYZE")
	const more = 60_000
	exec(t, url, fmt.Sprintf(`WITH s AS (INSERT INTO understudy.monitor_source (event, name, number, known, base, declared)
			SELECT 1, 'more-' || n, 100 + n, 0, 0, false FROM generate_series(1, %d) n RETURNING id),
		b AS (INSERT INTO understudy.monitor_beat (id, at, width, path) SELECT id, 1, 60000000, 1 FROM s),
		a AS (INSERT INTO understudy.monitor_alarm (id, event, source, reason, started, raised, ended, finish)
			SELECT 'old-' || id, 'e', 'more-' || id, 'silent', clock_timestamp() - interval '1 hour', clock_timestamp() - interval '1 hour', clock_timestamp(), 'ABATED' FROM s)
		INSERT INTO understudy.monitor_due (id, due) SELECT id, 9000000000000000 FROM s`, more))
	exec(t, url, "UPDATE understudy.monitor_due SET due = 0 WHERE id IN (SELECT id FROM understudy.monitor_due ORDER BY id LIMIT 20)")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return url, ids
}

func costsOfMonitor(ctx context.Context, ids []int64) []cost {
	var look monitor.Scan
	return []cost{
		{"resolve", 1000, func(s *postgres.Store) error {
			_, err := s.Monitor().ResolveSources(ctx, []monitor.SourceRef{{Check: "e", Source: "more-7"}, {Check: "e", Source: "new"}})
			return err
		}},
		{"store", 1000, func(s *postgres.Store) error { return beating(ctx, s.Monitor(), ids) }},
		{"due", 1000, func(s *postgres.Store) (err error) {
			look, err = s.Monitor().DueSources(ctx, everywhere, 1000)
			return err
		}},
		{"move", 1000, func(s *postgres.Store) error {
			return apply(ctx, s.Monitor(), look.Candidates[:10], monitor.NoTransition)
		}},
		{"onset", 1000, func(s *postgres.Store) error { return apply(ctx, s.Monitor(), look.Candidates[10:], monitor.Onset) }},
		{"sources", 1000, func(s *postgres.Store) error {
			_, err := s.Monitor().Sources(ctx, monitor.SourceQuery{Limit: 50})
			return err
		}},
		{"sources that are down", 1000, func(s *postgres.Store) error {
			_, err := s.Monitor().Sources(ctx, monitor.SourceQuery{State: monitor.Down})
			return err
		}},
		{"sources with a label", 1000, func(s *postgres.Store) error {
			_, err := s.Monitor().Sources(ctx, monitor.SourceQuery{Label: "a", Value: "b"})
			return err
		}},
		{"alarms", 1000, func(s *postgres.Store) error {
			_, err := s.Monitor().Alarms(ctx, monitor.AlarmQuery{Check: "e", Source: "more-9", Limit: 10})
			return err
		}},
		{"standing alarms", 1000, func(s *postgres.Store) error {
			_, err := s.Monitor().Alarms(ctx, monitor.AlarmQuery{Standing: true})
			return err
		}},
		{"overview", 1000, func(s *postgres.Store) error { _, err := s.Monitor().Overview(ctx); return err }},
		{"settings", 1000, func(s *postgres.Store) error { _, err := s.Monitor().Settings(ctx); return err }},
		{"held", 1000, func(s *postgres.Store) error { _, err := s.Monitor().HeldGroups(ctx); return err }},
		{"sweep", 1000, func(s *postgres.Store) error { _, err := s.Monitor().Sweep(ctx, time.Hour, 100); return err }},
		{"pause", 1000, func(s *postgres.Store) error {
			return s.Monitor().ApplyAction(ctx, monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "more-8"})
		}},
	}
}

// TestDueInOrder: who is due longest comes first, whatever plan the server makes, which depends
// on when it counted its rows last.
func TestDueInOrder(t *testing.T) {
	url, _, ids := fleet(t, realserver.Postgres(t, realserver.PostgresOptions{}), 40)
	exec(t, url, "UPDATE understudy.monitor_due SET due = 1000 - (id * 7) % 41")
	slices.SortFunc(ids, func(a, b int64) int { return int(b*7%41 - a*7%41) })
	for _, plan := range []string{"", "&enable_nestloop=off", "&enable_nestloop=off&enable_hashjoin=off", "&enable_hashjoin=off&enable_mergejoin=off"} {
		look, err := open(t, url+plan).Monitor().DueSources(t.Context(), everywhere, 1000)
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, c := range look.Candidates {
			got = append(got, c.ID)
		}
		if !slices.Equal(got, ids) {
			t.Errorf("with %q due in the order %v, want %v", plan, got, ids)
		}
	}
}

// TestSweepInSteps: a sweep deletes no more than it was told to, also when the server counted its
// rows when there was one, and plans for that.
func TestSweepInSteps(t *testing.T) {
	url, s, _ := fleet(t, realserver.Postgres(t, realserver.PostgresOptions{}), 1)
	over := func(n int) {
		exec(t, url, fmt.Sprintf(`INSERT INTO understudy.monitor_alarm (id, event, source, reason, started, raised, ended, finish)
			SELECT gen_random_uuid(), 'e', 'gone', 'silent', t, t, t, 'ABATED' FROM generate_series(1, %d), (SELECT clock_timestamp() - interval '1 day') x (t)`, n))
	}
	over(1)
	exec(t, url, "ANALYZE understudy.monitor_alarm")
	over(6)
	for _, want := range []int{4, 1, 0} {
		if _, err := s.Monitor().Sweep(t.Context(), time.Hour, 3); err != nil {
			t.Fatal(err)
		}
		if all, err := s.Monitor().Alarms(t.Context(), monitor.AlarmQuery{}); err != nil || len(all) != want {
			t.Errorf("%d alarms are left, want %d; %v", len(all), want, err)
		}
	}
}

// apply makes the same turn of all.
func apply(ctx context.Context, m monitor.Store, all []monitor.Candidate, turn monitor.Transition) error {
	changes := make([]monitor.SourceChange, len(all))
	for i, c := range all {
		changes[i] = change(c, turn, never)
	}
	made, err := m.ApplyChanges(ctx, changes)
	if err == nil && slices.Contains(made, false) {
		err = fmt.Errorf("not all were made: %v", made)
	}
	return err
}

package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/postgres"
)

func TestOpenRefusesWhatCannotBeRight(t *testing.T) {
	for name, c := range map[string]postgres.Config{
		"no URL":           {},
		"another scheme":   {URL: "mysql://u:s3cret@h/db"},
		"no URL at all":    {URL: "postgres://u:s3cret@h:99999x/db"},
		"unknown sslmode":  {URL: "postgres://u:s3cret@h/db?sslmode=bogus&password=s3cret2"},
		"bad escape":       {URL: "postgres://u:s3cret%zz@h/db"},
		"SQL as schema":    {URL: "postgres://u:s3cret@127.0.0.1:1/db", Schema: `x"; DROP SCHEMA public CASCADE; --`},
		"schema in URL":    {URL: "postgres://u:s3cret@127.0.0.1:1/db?schema=a%22b"},
		"empty schema":     {URL: "postgres://u:s3cret@127.0.0.1:1/db?schema="},
		"schema too long":  {URL: "postgres://u:s3cret@127.0.0.1:1/db", Schema: strings.Repeat("s", 41)},
		"system's schema":  {URL: "postgres://u:s3cret@127.0.0.1:1/db", Schema: "pg_understudy"},
		"dollar in schema": {URL: "postgres://u:s3cret@127.0.0.1:1/db", Schema: "a$$b"},
		"capital letters":  {URL: "postgres://u:s3cret@127.0.0.1:1/db", Schema: "Understudy"},
	} {
		_, err := postgres.Open(t.Context(), c)
		if !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error shows a password: %v", name, err)
		}
	}
}

// What would have no effect is refused, and why: an operator who sets a lock timeout counts on it.
func TestOpenRefusesItsOwnSettings(t *testing.T) {
	for _, option := range []string{"lock_timeout=500", "jit=on", "default_transaction_isolation=serializable", "plan_cache_mode=auto", "TimeZone=Asia/Kathmandu", "DateStyle=SQL"} {
		name, _, _ := strings.Cut(option, "=")
		_, err := postgres.Open(t.Context(), postgres.Config{URL: "postgres://u:s3cret@127.0.0.1:1/db?" + option})
		if !errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), `"`+name+`"`) || !strings.Contains(err.Error(), "sets it itself") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want ErrInvalid, which option, and why", option, err)
		}
	}
}

func TestOpenWithoutServer(t *testing.T) {
	url := fmt.Sprintf("postgres://u:s3cret@127.0.0.1:%d/db?sslmode=disable&sslpassword=s3cret2&schema=other", realserver.FreePort(t))
	_, err := postgres.Open(t.Context(), postgres.Config{URL: url})
	if !errors.Is(err, lease.ErrUnavailable) || errors.Is(err, lease.ErrUnknown) {
		t.Errorf("Open without a server: %v, want ErrUnavailable", err)
	}
	if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "u@127.0.0.1") {
		t.Errorf("the error should say where, without passwords: %v", err)
	}
	_, err = postgres.Open(t.Context(), postgres.Config{URL: strings.Replace(url, "sslmode=disable", "sslmode=prefer", 1)})
	if text := fmt.Sprint(err); strings.Count(text, "connection refused") != 1 || strings.Contains(text, "\n") {
		t.Errorf("with and without TLS: %q, want the cause once, on one line", text)
	}
}

func TestMigrations(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	t.Run("twelve at once", func(t *testing.T) {
		for range 5 {
			twelveAtOnce(t, server.NewDatabase(t))
		}
	})
	t.Run("newer schema", func(t *testing.T) {
		url := server.NewDatabase(t)
		s := open(t, url)
		exec(t, url, "INSERT INTO understudy.migration (version) VALUES (99)")
		_, err := postgres.Open(t.Context(), postgres.Config{URL: url})
		if !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "version 99") {
			t.Errorf("Open of a newer schema: %v, want ErrSchema with the version", err)
		}
		if _, _, err := s.Migrate(t.Context()); !errors.Is(err, store.ErrSchema) {
			t.Errorf("Migrate of a newer schema: %v, want ErrSchema", err)
		}
	})
	t.Run("none", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), postgres.Config{URL: server.NewDatabase(t), NoMigrate: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if info, err := s.Inspect(t.Context()); err != nil || info.Schema != 0 || info.Now.IsZero() {
			t.Errorf("Inspect without a schema: %+v, %v", info, err)
		}
		_, err = s.RenewSession(t.Context(), "x")
		if !errors.Is(err, store.ErrSchema) || !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("a call without a schema: %v, want ErrSchema and ErrUnavailable", err)
		}
		if from, to, err := s.Migrate(t.Context()); err != nil || from != 0 || to < 1 {
			t.Errorf("Migrate = %d, %d, %v", from, to, err)
		}
		start(t, s, "a", 1e9)
	})
	t.Run("least rights", func(t *testing.T) {
		url := server.NewDatabase(t)
		open(t, url)
		exec(t, url, `CREATE ROLE instance LOGIN;
			GRANT USAGE ON SCHEMA understudy TO instance;
			GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA understudy TO instance;
			GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA understudy TO instance`)
		s := open(t, strings.Replace(url, "postgres@", "instance@", 1))
		a := start(t, s, "a", 60e9)
		take(t, s, role("r"), a, false)
		if err := s.EndSession(t.Context(), a.ID, "done"); err != nil {
			t.Error(err)
		}
	})
}

func twelveAtOnce(t *testing.T, url string) {
	ctx := amply(t)
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			s, err := postgres.Open(ctx, postgres.Config{URL: url})
			if err != nil {
				t.Errorf("start %d: %v", i, err)
				return
			}
			defer s.Close()
			if _, err := s.Sessions(ctx); err != nil {
				t.Errorf("start %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

func TestInspectWarns(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{Fsync: true})
	bouncer := realserver.PgBouncer(t, server)
	database := server.NewDatabase(t)
	var hasJIT bool // it may be installed without
	if err := connect(t, database).QueryRow(t.Context(), "SELECT pg_jit_available()").Scan(&hasJIT); err != nil {
		t.Fatal(err)
	}
	if info, err := open(t, database).Inspect(t.Context()); err != nil || !info.Notifies || len(info.Warnings) != 0 {
		t.Errorf("Inspect of a sound server, whose statements are compiled by default (%t): %+v, %v", hasJIT, info, err)
	}
	exec(t, database, "ALTER ROLE postgres SET jit = off")
	s := open(t, bouncer.URL(database))
	info, err := s.Inspect(t.Context())
	if err != nil || info.Notifies || len(info.Warnings) != 1 || !strings.Contains(info.Warnings[0], "pooler") {
		t.Errorf("Inspect through a pooler: %+v, %v", info, err)
	}
	exec(t, database, "ALTER ROLE postgres RESET jit")
	info, err = open(t, bouncer.URL(server.NewDatabase(t))).Inspect(t.Context())
	if jit := slices.ContainsFunc(info.Warnings, func(w string) bool { return strings.HasPrefix(w, "jit is on") }); err != nil || jit != hasJIT {
		t.Errorf("Inspect of a server that compiles statements (%t), behind a pooler: %q, %v", hasJIT, info.Warnings, err)
	}
	t.Run("when a client is gone", func(t *testing.T) { endsConnections(t, database, bouncer.URL(database)) })
	t.Run("options that the server refuses", func(t *testing.T) { refusesOptions(t, database, bouncer.URL(database)) })
	woken := false
	if err := s.Watch(t.Context(), func(lease.Change) { woken = true }); !errors.Is(err, errors.ErrUnsupported) || woken {
		t.Errorf("Watch through a pooler: %v (woken %t), want ErrUnsupported", err, woken)
	}
	exec(t, database, `ALTER ROLE postgres SET synchronous_commit = off; ALTER ROLE postgres SET default_transaction_isolation = 'repeatable read';
		CREATE OR REPLACE FUNCTION understudy.clock() RETURNS timestamptz LANGUAGE sql AS $$ SELECT clock_timestamp() + '1 hour' $$`)
	info, err = open(t, database).Inspect(t.Context())
	if err != nil || len(info.Warnings) != 2 || !strings.Contains(info.Warnings[0], "synchronous_commit") || !strings.Contains(info.Warnings[1], "1h0m0s") {
		t.Errorf("Inspect of doubtful settings: %q, %v", info.Warnings, err)
	}
	info, err = open(t, bouncer.URL(server.NewDatabase(t))).Inspect(t.Context())
	if err != nil || !slices.ContainsFunc(info.Warnings, func(w string) bool { return strings.Contains(w, "repeatable read") }) {
		t.Errorf("Inspect of an isolation level that a pooler leaves: %q, %v", info.Warnings, err)
	}
}

// endsConnections: the server is told when to end the connection of a client that does not answer, if there is no pooler between, and it
// knows the setting; otherwise the connection does without.
func endsConnections(t *testing.T, direct, pooled string) {
	unknowing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer unknowing.Close()
	server, err := url.Parse(direct)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for conn, err := unknowing.Accept(); err == nil; conn, err = unknowing.Accept() {
			go serveWithout(conn, server.Host, "tcp_user_timeout")
		}
	}()
	unknown := *server
	unknown.Host = unknowing.Addr().String()
	for name, c := range map[string]struct{ url, want string }{
		"direct":            {direct, "10000 off 10 3 3"},
		"as the URL says":   {direct + "&tcp_user_timeout=5000", "5000 off 10 3 3"},
		"an unknown option": {unknown.String(), "0 off "},
		"a pooler":          {pooled, "0 "},
	} {
		s, err := postgres.Open(amply(t), postgres.Config{URL: c.url, NoMigrate: true})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := postgres.ClientTimeouts(amply(t), s); err != nil || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: the settings are %q, %v; want %q", name, got, err, c.want)
		}
		_ = s.Close()
	}
}

// serveWithout is a server, behind which is the one at host, that does not know a setting.
func serveWithout(conn net.Conn, host, setting string) {
	defer conn.Close()
	first := make([]byte, 4096)
	n, err := conn.Read(first) // all of the startup message, which is short
	if err != nil {
		return
	}
	if bytes.Contains(first[:n], []byte(setting)) {
		refusal, err := (&pgproto3.ErrorResponse{Severity: "FATAL", Code: "42704", Message: fmt.Sprintf("unrecognized configuration parameter %q", setting)}).Encode(nil)
		if err == nil {
			_, _ = conn.Write(refusal)
		}
		return
	}
	server, err := net.Dial("tcp", host)
	if err != nil {
		return
	}
	defer server.Close()
	if _, err := server.Write(first[:n]); err == nil {
		go func() { _, _ = io.Copy(conn, server) }()
		_, _ = io.Copy(server, conn)
	}
}

// refusesOptions: waiting does not help against what the URL says wrong.
func refusesOptions(t *testing.T, urls ...string) {
	for _, url := range urls {
		for option, name := range map[string]string{"shema=x": "shema", "statement_timeout=soon": "statement_timeout"} {
			for _, noMigrate := range []bool{false, true} {
				s, err := postgres.Open(amply(t), postgres.Config{URL: url + "&" + option, NoMigrate: noMigrate})
				if err == nil {
					_ = s.Close()
				}
				if !errors.Is(err, lease.ErrInvalid) || errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), `"`+name+`"`) || !strings.Contains(err.Error(), "schema=NAME") {
					t.Errorf("%s of %s: %v, want ErrInvalid, which one, and what is known", option, url, err)
				}
			}
		}
	}
}

func TestReadOnlyServer(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	database := server.NewDatabase(t)
	s := open(t, database)
	a := start(t, s, "a", 60e9)
	// The way in which a server that became a replica answers.
	exec(t, database, `ALTER ROLE postgres SET default_transaction_read_only = on;
		SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'understudy'`)
	conn := connect(t, database)
	realserver.Eventually(t, ample, "the store's connections are closed", func() error {
		var n int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'understudy'").Scan(&n)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d are open", n)
		}
		return err
	})
	_, err := s.RenewSession(t.Context(), a.ID)
	if !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "replica") {
		t.Errorf("RenewSession on a server that accepts no writes: %v, want ErrUnavailable and why", err)
	}
	exec(t, database+"&default_transaction_read_only=off", "ALTER ROLE postgres RESET default_transaction_read_only")
	if _, err := s.RenewSession(t.Context(), a.ID); err != nil {
		t.Errorf("the connection to a former replica was kept: %v", err)
	}
}

func TestForgetsOldSessions(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	database := server.NewDatabase(t)
	s := open(t, database)
	for range 30 {
		n := start(t, s, "old", 60e9)
		if _, err := s.Join(t.Context(), role("r"), n.ID); err != nil {
			t.Fatal(err)
		}
	}
	holder := start(t, s, "holder", 60e9)
	take(t, s, role("kept"), holder, false)
	exec(t, database, "UPDATE understudy.session SET deadline = deadline - interval '25 hours'")
	live := start(t, s, "live", 60e9)
	var left string
	conn := connect(t, database)
	err := conn.QueryRow(t.Context(), "SELECT (SELECT string_agg(name, ' ' ORDER BY name) FROM understudy.session) || (SELECT count(*) FROM understudy.waiter)").Scan(&left)
	if err != nil || left != "holder live0" {
		t.Errorf("after a day there are the sessions and waiters %q, %v; want those of holder and live, and none", left, err)
	}
	if _, err := s.RenewSession(t.Context(), live.ID); err != nil {
		t.Error(err)
	}
}

// TestSeveralHosts: of the hosts in the URL, the one that accepts writes is found.
func TestSeveralHosts(t *testing.T) {
	replica := realserver.Postgres(t, realserver.PostgresOptions{Settings: map[string]string{"default_transaction_read_only": "on"}})
	primary := realserver.Postgres(t, realserver.PostgresOptions{})
	url := fmt.Sprintf("postgres://postgres@127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/postgres?sslmode=disable",
		realserver.FreePort(t), replica.Port, primary.Port)
	s := open(t, url)
	start(t, s, "a", 60e9)
	if info, err := s.Inspect(t.Context()); err != nil || !info.Notifies || !strings.Contains(info.Location, fmt.Sprint(primary.Port)) {
		t.Errorf("Inspect = %+v, %v", info, err)
	}
	t.Run("a silent one", func(t *testing.T) { passesSilentHost(t, primary.Port) })
}

// passesSilentHost: a host that neither answers nor refuses leaves time for the next, and the connections after that begin with the
// host that answered.
func passesSilentHost(t *testing.T, port int) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	var dialled atomic.Int32
	go func() {
		for conn, err := silent.Accept(); err == nil; conn, err = silent.Accept() {
			dialled.Add(1)
			defer conn.Close()
		}
	}()
	var s *postgres.Store
	// Both are less than the time for one connection; the second is for a busy machine.
	for _, within := range []time.Duration{1600 * time.Millisecond, 4800 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		s, err = postgres.Open(ctx, postgres.Config{NoMigrate: true,
			URL: fmt.Sprintf("postgres://postgres@%s,127.0.0.1:%d/postgres?sslmode=disable", silent.Addr(), port)})
		cancel()
		if err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("behind a host that is silent, the next is not reached: %v", err)
	}
	defer s.Close()
	before := dialled.Load()
	watching, stop := context.WithTimeout(t.Context(), ample)
	defer stop()
	connected := false
	_ = s.Watch(watching, func(lease.Change) { connected = true; stop() }) // on a connection of its own
	if n := dialled.Load() - before; !connected || n > 0 {
		t.Errorf("another connection (made: %t) tried the silent host %d times", connected, n)
	}
}

// TestEndsSessionWithManyLeases: all are free, each is in the history, and those
// who wait are told, though not lease by lease.
func TestEndsSessionWithManyLeases(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	s := open(t, url)
	a := start(t, s, "a", time.Minute)
	const many = 12_345 // not a multiple of what one statement releases
	exec(t, url, fmt.Sprintf(`INSERT INTO understudy.lease (space, key, term, session, holder_id, holder_name, holder_address, since)
		SELECT 'shard', 'key' || n, 1, '%s', 'a', 'a', '', clock_timestamp() FROM generate_series(1, %d) n`, a.ID, many))
	wakes := make(chan lease.Change, 100)
	go func() { _ = s.Watch(t.Context(), func(c lease.Change) { wakes <- c }) }()
	<-wakes // it is ready
	if err := s.EndSession(amply(t), a.ID, "stopped"); err != nil {
		t.Fatal(err)
	}
	var held, events int
	err := connect(t, url).QueryRow(t.Context(), `SELECT (SELECT count(*) FROM understudy.lease WHERE session <> ''),
		(SELECT count(*) FROM understudy.event WHERE reason = 'stopped' AND to_label = '')`).Scan(&held, &events)
	if err != nil || held != 0 || events != many {
		t.Errorf("%d leases are held and %d events written, %v; want 0 and %d", held, events, err, many)
	}
	if c := <-wakes; c != (lease.Change{}) {
		t.Errorf("woken with %+v, want the change that may be anything", c)
	}
	// As many are not deleted in one transaction either.
	exec(t, url, `CREATE FUNCTION few() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF (SELECT count(*) FROM gone) > 10000 THEN RAISE 'too many at once'; END IF; RETURN NULL; END $$;
		CREATE TRIGGER few AFTER DELETE ON understudy.event REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION few();
		DELETE FROM understudy.event WHERE reason <> 'stopped'`)
	if n, err := s.Trim(amply(t), 10); err != nil || n != many-10 {
		t.Errorf("Trim to 10 = %d, %v; want %d deleted", n, err, many-10)
	}
	left, err := s.Read(amply(t), history.Query{})
	if err != nil || len(left) != 10 {
		t.Errorf("%d events are left, %v; want 10", len(left), err)
	}
}

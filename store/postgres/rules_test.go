package postgres_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/previous"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/postgres"
)

// sets are the rule sets in the database, that of the entry points with a star, and how many
// functions each has.
func sets(t *testing.T, url string) string {
	t.Helper()
	var all string
	err := connect(t, url).QueryRow(t.Context(), `SELECT coalesce(string_agg(hash || CASE WHEN entry THEN '*' ELSE '' END, ' ' ORDER BY hash), '') FROM understudy.rule_set`).Scan(&all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// functionsOf counts the functions whose names begin so.
func functionsOf(t *testing.T, url, prefix string) (n int) {
	t.Helper()
	err := connect(t, url).QueryRow(t.Context(), "SELECT count(*) FROM pg_proc WHERE pronamespace = 'understudy'::regnamespace AND starts_with(proname, $1)", prefix).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// unusedFor makes a set look unused, but for the sessions of its programs.
func unusedFor(t *testing.T, url, hash string, d time.Duration) {
	t.Helper()
	exec(t, url, fmt.Sprintf("UPDATE understudy.rule_set SET used = clock_timestamp() - interval '%d seconds' WHERE hash = '%s'", int(d.Seconds()), hash))
}

const week = 7 * 24 * time.Hour

// TestRuleSets: the programs of two versions share a schema, each with functions of its own, and
// those that nothing uses any more are dropped.
func TestRuleSets(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	mine, other := postgres.RuleSet(), postgres.OtherRuleSet
	openOther := func() *postgres.Store {
		t.Helper()
		s, err := postgres.OpenOther(t.Context(), postgres.Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	expect := func(what string, want ...string) {
		t.Helper()
		slices.Sort(want)
		if got := sets(t, url); got != strings.Join(want, " ") {
			t.Fatalf("%s: the sets are %q, want %q", what, got, want)
		}
	}
	s := open(t, url)
	expect("of one version", mine+"*")
	o := openOther()
	expect("the set installed last has the entry points", mine, other+"*")
	open(t, url)
	expect("a restart changes nothing", mine, other+"*")

	a, b := start(t, s, "a", time.Hour), start(t, o, "b", time.Hour)
	l := take(t, s, role("r"), a, false)
	if _, err := o.Acquire(t.Context(), lease.Expectation{Lease: l.ID, Session: b.ID, Seen: l.Seen()}); !errors.Is(err, lease.ErrHeld) {
		t.Errorf("the other version takes a lease that is held: %v", err)
	}

	unusedFor(t, url, mine, 2*week)
	openOther()
	expect("a session keeps its set", mine, other+"*")
	if err := s.EndSession(t.Context(), a.ID, "done"); err != nil {
		t.Fatal(err)
	}
	exec(t, url, "UPDATE understudy.session SET deadline = deadline - interval '1 month' WHERE id = '"+a.ID+"'")
	unusedFor(t, url, mine, week-time.Minute)
	openOther()
	expect("until a week after it", mine, other+"*")
	unusedFor(t, url, mine, 2*week)
	openOther()
	expect("then nothing does", other+"*")
	if n := functionsOf(t, url, "r"+mine); n != 0 {
		t.Errorf("%d functions are left", n)
	}
	start(t, s, "c", time.Hour)
	expect("a process that still runs puts its set back", mine+"*", other)

	// Rolled back for good.
	unusedFor(t, url, mine, 2*week)
	exec(t, url, "UPDATE understudy.session SET deadline = deadline - interval '1 month' WHERE rules = '"+mine+"'")
	openOther()
	expect("the entry points leave a set that nothing uses", mine, other+"*")
	openOther()
	expect("and the next start drops it", other+"*")

	// Going back for longer: what the other version added to a view stays.
	open(t, url)
	exec(t, url, `UPDATE understudy.rule_set SET entry = hash = '`+other+`'; UPDATE understudy.session SET deadline = deadline - interval '1 month';
		DO $$ BEGIN EXECUTE 'CREATE OR REPLACE VIEW understudy.heartbeats AS SELECT h.*, 0 AS added FROM (' || rtrim(pg_get_viewdef('understudy.heartbeats'::regclass), ';') || ') h'; END $$`)
	unusedFor(t, url, other, 2*week)
	for range 2 {
		open(t, url)
		expect("entry points that cannot be replaced stay", mine, other+"*")
	}
	fillsNoEmptySchema(t, o, b, url)
}

// TestFirstUpgrade: the functions that migrations made are kept for the programs that call them,
// and dropped when there are none.
func TestFirstUpgrade(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	migrateByHand(t, url, 11)
	exec(t, url, `INSERT INTO understudy.queue (name, made) VALUES ('work', clock_timestamp());
		SELECT understudy.start_session('old', 'i', 'old', '', 1000000000, 3600000000000, 1000)`)
	s := open(t, url)
	if got, want := sets(t, url), " "+postgres.RuleSet()+"*"; got != want {
		t.Fatalf("the sets are %q, want %q", got, want)
	}
	exec(t, url, "SELECT understudy.renew_session('old', 1000); SELECT understudy.enqueue('work', 'k', 'payload')")
	if out, err := s.QueueAdmin().Messages(t.Context(), dispatch.MessageQuery{Queue: "work"}); err != nil || len(out) != 1 {
		t.Errorf("what an application of before enqueued: %v, %v", out, err)
	}
	readers := func() (n int) {
		t.Helper()
		if err := connect(t, url).QueryRow(t.Context(), "SELECT max(version) FROM understudy.migration").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	unusedFor(t, url, "", 2*week)
	open(t, url)
	if readers() != 11 {
		t.Error("a program of before could not start again beside its session")
	}
	exec(t, url, "UPDATE understudy.session SET deadline = deadline - interval '1 month'")
	unusedFor(t, url, "", 2*week)
	open(t, url)
	if got, want := sets(t, url), postgres.RuleSet()+"*"; got != want || readers() != 12 {
		t.Errorf("the sets are %q, want %q; a program must know version %d", got, want, readers())
	}
	names, err := os.ReadFile("retired.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(names)) {
		want := 0
		if name == "acquire" || name == "release" { // entry points of these names have come since
			want = 1
		}
		if n := functionsOf(t, url, name); n != want {
			t.Errorf("there are %d functions %s, want %d", n, name, want)
		}
	}
	exec(t, url, "SELECT understudy.enqueue('work', 'k', 'payload'); SELECT understudy.acquire('r', 'n')")
}

// fillsNoEmptySchema: a running process does not make a store of what an operator has left empty: others could take the leases that it
// still trusts. A start makes it.
func fillsNoEmptySchema(t *testing.T, running *postgres.Store, a lease.Session, url string) {
	t.Helper()
	for _, sql := range []string{"DROP SCHEMA understudy CASCADE", "CREATE SCHEMA understudy"} {
		exec(t, url, sql)
		_, renewing := running.RenewSession(amply(t), a.ID)
		_, starting := running.StartSession(amply(t), lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("b", ""), Timing: a.Timing})
		for _, err := range []error{renewing, starting} {
			if !errors.Is(err, lease.ErrUnavailable) || !errors.Is(err, store.ErrSchema) {
				t.Errorf("after %s a call gets %v, want ErrUnavailable and ErrSchema", sql, err)
			}
		}
	}
	start(t, open(t, url), "c", time.Hour)
}

// TestExpandedSchema: a program works with a schema of a newer version that only adds to it.
func TestExpandedSchema(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	open(t, url)
	exec(t, url, `INSERT INTO understudy.schema_step (version) VALUES (99); ALTER TABLE understudy.lease ADD COLUMN added text NOT NULL DEFAULT '';
		ALTER TABLE understudy.session ADD COLUMN added text NOT NULL DEFAULT ''`)
	s := open(t, url)
	if from, to, err := s.Migrate(t.Context()); from != 99 || to != 99 || err != nil {
		t.Errorf("Migrate = %d, %d, %v; want 99, 99", from, to, err)
	}
	if info, err := s.Inspect(t.Context()); info.Schema != 99 || err != nil {
		t.Errorf("Inspect = %+v, %v", info, err)
	}
	take(t, s, role("r"), start(t, s, "a", time.Hour), false)
	exec(t, url, "INSERT INTO understudy.migration (version) VALUES (98)")
	if _, err := postgres.Open(t.Context(), postgres.Config{URL: url}); !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "version 98") {
		t.Errorf("Open of a schema that takes away: %v", err)
	}
}

// lastWithFunctions is the last commit whose migrations held functions too.
const lastWithFunctions = "ed83120"

// migrateByHand makes a schema as the programs of before version 12 did.
func migrateByHand(t *testing.T, url string, version int) {
	t.Helper()
	names, err := filepath.Glob("migrations/*.sql")
	if err != nil || len(names) < version {
		t.Fatal(names, err)
	}
	slices.Sort(names)
	if version > 0 {
		exec(t, url, "CREATE SCHEMA understudy; CREATE TABLE understudy.migration (version bigint PRIMARY KEY, applied timestamptz NOT NULL DEFAULT clock_timestamp())")
	}
	for i := range version {
		text := previous.File(t, lastWithFunctions, "store/postgres/"+names[i])
		sql := strings.ReplaceAll(strings.ReplaceAll(text, "{{schema}}", `"understudy"`), "{{channel}}", "'understudy'")
		exec(t, url, sql+fmt.Sprintf("; INSERT INTO understudy.migration (version) VALUES (%d)", i+1))
	}
}

// TestOldestServer: no SQL of this package calls a function that the oldest promised server does not have.
func TestOldestServer(t *testing.T) {
	since := map[string]int{
		"gen_random_uuid": 13, "gcd": 13, "lcm": 13, "pg_current_xact_id": 13, "pg_current_snapshot": 13,
		"date_bin": 14, "bit_count": 14, "string_to_table": 14, "trim_array": 14, "range_agg": 14, "unistr": 14,
		"regexp_count": 15, "regexp_instr": 15, "regexp_like": 15, "regexp_substr": 15,
		"any_value": 16, "array_sample": 16, "array_shuffle": 16, "date_add": 16, "json_arrayagg": 16, "json_objectagg": 16,
		"json_exists": 17, "json_query": 17, "json_table": 17, "json_value": 17, "to_bin": 17,
		"array_reverse": 18, "array_sort": 18, "casefold": 18, "crc32": 18, "uuidv4": 18, "uuidv7": 18,
	}
	call := regexp.MustCompile(`([a-z0-9_]+)\(`)
	files, err := filepath.Glob("*/*.sql")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range call.FindAllSubmatch(text, -1) {
			if version := since[string(c[1])]; version > postgres.Oldest {
				t.Errorf("%s: %s came with PostgreSQL %d; the oldest is %d", file, c[1], version, postgres.Oldest)
			}
		}
	}
}

// A row that is found by its key is not looked for by its session: see common.sql.
func TestKeysAreFoundByKey(t *testing.T) {
	wrong := regexp.MustCompile(`key = \S+\s+AND (\w\.)?session = p_session AND (\w\.)?session <> ''`)
	files, err := filepath.Glob("functions/*.sql")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if found := wrong.Find(text); found != nil {
			t.Errorf("%s: %s", name, found)
		}
	}
}

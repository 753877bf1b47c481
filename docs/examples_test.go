package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// An example is a folder of ../examples. Its page is followed as the tutorials are, in a copy of the folder.
type example struct {
	name     string
	programs []string // that it needs besides understudy and a shell
	database bool
	judge    func(t *testing.T, r exampleRun)
}

var allExamples = []example{
	{"guarded-service", []string{"psql"}, true, judgeGuardedService},
	{"outbox", []string{"psql"}, true, judgeOutbox},
	{"role-from-sql", []string{"psql"}, true, judgeRoleFromSQL},
	{"cron", nil, true, judgeCron},
	{"backup-alarm", []string{"pg_dump", "curl"}, true, judgeBackupAlarm},
	{"redis-haproxy", []string{"redis-server", "redis-cli", "haproxy"}, false, nil}, // its commands fail if the promise is broken
	{"cached-report", []string{"curl"}, false, judgeCachedReport},
}

// exampleRun is what the judge of an example sees when its page has been followed.
type exampleRun struct {
	dir, database string
	printed       []string // by each step
	env           []string
}

// read returns a file of the example's folder.
func (r exampleRun) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func examples(t *testing.T, bin string) {
	folders, err := filepath.Glob("../examples/*/README.md")
	if err != nil || len(folders) != len(allExamples) {
		t.Fatalf("there are judges for %d examples, and these pages: %v, %v", len(allExamples), folders, err)
	}
	t.Run("on PostgreSQL", func(t *testing.T) {
		t.Parallel()
		server := realserver.Postgres(t, realserver.PostgresOptions{})
		runExamples(t, bin, true, server.NewDatabase)
	})
	runExamples(t, bin, false, func(testing.TB) string { return "" })
}

func runExamples(t *testing.T, bin string, onDatabase bool, newDatabase func(testing.TB) string) {
	for _, e := range allExamples {
		if e.database == onDatabase {
			t.Run(e.name, func(t *testing.T) {
				t.Parallel()
				for _, program := range e.programs {
					realserver.Find(t, program, "/usr/sbin/"+program)
				}
				e.run(t, bin, newDatabase(t))
			})
		}
	}
}

func (e example) run(t *testing.T, bin, database string) {
	t.Helper()
	r := exampleRun{dir: t.TempDir(), database: database}
	page := filepath.Join("../examples", e.name, "README.md")
	steps := stepsOf(e.copyTo(t, r.dir))
	switch e.name {
	case "outbox":
		needsPsycopg(t)
		steps = withoutNode(t, steps)
	case "role-from-sql":
		needsPsycopg(t)
		if os.Getenv("UNDERSTUDY_PROVE") != "1" {
			t.Skip("set UNDERSTUDY_PROVE=1: its programs end when a busy machine lets them wait for four seconds; store/postgres runs them always")
		}
	}
	r.env = append(environment(bin+":"+pythonOfDebian(t), r.dir), "DATABASE_URL="+database)
	r.env = append(r.env, goSettings(t)...)
	r.printed = followIn(t, r.dir, r.env, steps)
	for i, printed := range r.printed {
		if err := steps[i].judge(printed); err != nil {
			t.Errorf("%s:%d: %v", page, steps[i].line, err)
		}
	}
	if e.judge != nil {
		e.judge(t, r)
	}
}

// copyTo copies an example with free ports in place of its own, and returns its page. A Go program becomes a module of its own, as in
// the hands of somebody who copies it.
func (e example) copyTo(t *testing.T, dir string) (page string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../examples", e.name, "*"))
	if err != nil {
		t.Fatal(err)
	}
	const between = "\x00"
	var texts []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	texts = strings.Split(ported(t, strings.Join(texts, between)), between)
	if os.Getenv("UNDERSTUDY_PROVE") != "1" { // a reader waits for the next minute, and the two after it
		for i := range texts {
			texts[i] = strings.Replace(texts[i], `schedule: "* * * * *"`, "schedule: every 5s", 1)
		}
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		write(t, filepath.Join(dir, filepath.Base(f)), texts[i])
		switch filepath.Base(f) {
		case "README.md":
			page = texts[i]
		case "main.go":
			write(t, filepath.Join(dir, "go.mod"), "module example\n\ngo 1.26.0\n")
			write(t, filepath.Join(dir, "go.work"), fmt.Sprintf("go 1.26.0\n\nuse (\n\t.\n\t%q\n)\n", root))
		}
	}
	return page
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// goSettings build as build does, so that nothing is compiled twice.
func goSettings(t *testing.T) []string {
	t.Helper()
	env := []string{"CGO_ENABLED=0", "GOFLAGS=" + strings.TrimSpace(os.Getenv("GOFLAGS")+" -trimpath -ldflags=-w")}
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(out)))
	}
	return env
}

// pythonOfDebian is a folder in which python3 is that of the system, for which there are packages.
func pythonOfDebian(t *testing.T) (bin string) {
	t.Helper()
	bin = t.TempDir()
	if err := os.Symlink("/usr/bin/python3", filepath.Join(bin, "python3")); err != nil {
		t.Fatal(err)
	}
	return bin
}

// needsPsycopg skips a test where Python has no driver for PostgreSQL, but not where servers are required.
func needsPsycopg(t *testing.T) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import psycopg").CombinedOutput(); err != nil {
		if os.Getenv(realserver.RequireEnv) == "1" {
			t.Fatalf("python3-psycopg is not installed: %s", out)
		}
		t.Skip("python3-psycopg is not installed")
	}
}

// withoutNode leaves out the steps that need what npm fetches, unless that may take its time.
func withoutNode(t *testing.T, steps []step) []step {
	t.Helper()
	why := "set UNDERSTUDY_PROVE=1: it has npm fetch a driver"
	if os.Getenv("UNDERSTUDY_PROVE") == "1" {
		_, node := exec.LookPath("node")
		_, npm := exec.LookPath("npm")
		if node == nil && npm == nil {
			return steps
		}
		why = "node or npm is not installed"
	}
	t.Run("node", func(t *testing.T) { t.Skip(why) })
	return slices.DeleteFunc(steps, func(s step) bool { return strings.Contains(s.commands, "npm") })
}

// judgeGuardedService wants writes of growing terms alone, and none that was late.
func judgeGuardedService(t *testing.T, r exampleRun) {
	db, err := pgx.Connect(t.Context(), r.database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	rows, err := db.Query(t.Context(), "SELECT term, by FROM bill ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	var term, last int64
	var by string
	count := map[string]int{}
	if _, err := pgx.ForEachRow(rows, []any{&term, &by}, func() error {
		if term < last {
			t.Errorf("%s wrote in term %d after one of term %d", by, term, last)
		}
		last = term
		count[by]++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if count["web-1"] == 0 || count["web-2"] == 0 || len(count) != 2 {
		t.Errorf("bills by instance: %v", count)
	}
}

// judgeOutbox wants what was committed at the receiver, once and in this order.
func judgeOutbox(t *testing.T, r exampleRun) {
	want := "acme go-1 1 pieces\nacme python-1 1 pieces\nacme go-2 2 pieces\nacme python-2 2 pieces\n"
	if strings.Contains(strings.Join(r.printed, ""), "node-1") {
		want += "acme node-1 3 pieces\nacme go-3 3 pieces\n"
	}
	if got := r.read(t, "received.log"); got != want {
		t.Errorf("received:\n%swant:\n%s", got, want)
	}
}

var aPrimary = regexp.MustCompile(`primary (\d+) from (\d+)`)

// judgeRoleFromSQL wants a second primary of a higher term, that goes on where the first was.
func judgeRoleFromSQL(t *testing.T, r exampleRun) {
	one, two := aPrimary.FindStringSubmatch(r.read(t, "one.log")), aPrimary.FindStringSubmatch(r.read(t, "two.log"))
	if one == nil || two == nil || one[1] >= two[1] || one[2] != "0" || two[2] == "0" {
		t.Errorf("the first was %q, the second %q", one, two)
	}
}

// aRun is a line of `job runs`.
var aRun = regexp.MustCompile(`(?m)^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) +(\w+)`)

// judgeCron wants each time once, and another host after the first was killed. On a busy machine seconds may pass with no instance
// able to run, minutes may not.
func judgeCron(t *testing.T, r exampleRun) {
	times, hosts := map[string]bool{}, []string{}
	for line := range strings.Lines(r.read(t, "ran.log")) {
		at, host, _ := strings.Cut(strings.TrimSpace(line), " on ")
		if times[at] {
			t.Errorf("the job ran twice for %s", at)
		}
		times[at], hosts = true, append(hosts, host)
	}
	if hosts[0] == hosts[len(hosts)-1] {
		t.Errorf("it ran on %v: the first was killed", hosts)
	}
	if os.Getenv("UNDERSTUDY_PROVE") != "1" {
		return
	}
	var after time.Time // the runs are listed from the newest on
	for _, run := range aRun.FindAllStringSubmatch(strings.Join(r.printed, "\n"), -1) {
		at, err := time.Parse(time.DateTime, run[1])
		if err != nil || !after.IsZero() && !at.Equal(after.Add(-time.Minute)) || run[2] != "succeeded" && run[2] != "lost" {
			t.Errorf("the run of %s is %s, the next one is that of %s (%v)", run[1], run[2], after, err)
		}
		after = at
	}
	if after.IsZero() {
		t.Error("no runs were listed")
	}
}

// alarmSent is a line of the log sink: an alarm that began or ended, and its ID.
var alarmSent = regexp.MustCompile(`alarm (raised|ended)" sink=ops request_id=(\S+)`)

// judgeBackupAlarm wants each outage to be one alarm and one end of it, and a backup that fails to leave the last one.
func judgeBackupAlarm(t *testing.T, r exampleRun) {
	logs := r.read(t, "one.log") + r.read(t, "two.log")
	sent, outages := map[string]int{}, map[string]bool{}
	for _, m := range alarmSent.FindAllStringSubmatch(logs, -1) {
		sent[m[1]+m[2]]++
		outages[m[2]] = true
	}
	for id := range outages {
		if sent["raised"+id] != 1 || sent["ended"+id] != 1 {
			t.Errorf("of outage %s the beginning was sent %d times, the end %d times:\n%s", id, sent["raised"+id], sent["ended"+id], logs)
		}
	}
	if len(outages) == 0 {
		t.Errorf("no alarm was sent:\n%s", logs)
	}
	backup := exec.CommandContext(t.Context(), "./backup.sh")
	backup.Dir, backup.Env = r.dir, append(r.env, "DATABASE_URL=postgres://127.0.0.1:1/none")
	before := r.read(t, "backup.sql.out")
	if err := backup.Run(); err == nil || before == "" || r.read(t, "backup.sql.out") != before {
		t.Errorf("without the database it ends with %v, and there were %d bytes and are %d", err, len(before), len(r.read(t, "backup.sql.out")))
	}
}

var madeBy = regexp.MustCompile(`the report of tuesday, made by (\d)`)

// judgeCachedReport wants one report per day, and a second one only of the day on which its maker died.
func judgeCachedReport(t *testing.T, r exampleRun) {
	logs := r.read(t, "1.log") + r.read(t, "2.log") + r.read(t, "3.log")
	made := func(day string) int { return strings.Count(logs, "day="+day+" ") }
	answers := strings.Split(strings.TrimSpace(r.read(t, "answers.log")), "\n")
	if len(answers) != 10 || len(slices.Compact(answers)) != 1 || made("monday") != 1 {
		t.Errorf("ten callers were answered %q by %d reports", answers, made("monday"))
	}
	by := madeBy.FindStringSubmatch(strings.Join(r.printed, ""))
	if by == nil || by[1] == "1" && made("tuesday") != 1 || by[1] != "1" && made("tuesday") != 2 {
		t.Errorf("the caller was answered %q, by %d reports", by, made("tuesday"))
	}
}

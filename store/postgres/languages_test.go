package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os"
	osexec "os/exec"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// javaDriver is where Debian's package libpostgresql-jdbc-java has the driver.
const javaDriver = "/usr/share/java/postgresql.jar"

// The programs of examples/role-from-sql: one takes the role over from the other, with its state, and ends when the
// database has gone silent.
func TestProgramsInOtherLanguages(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	for _, l := range []struct {
		language    string
		driver, run []string // driver succeeds where the driver is there
	}{
		{"python", []string{"/usr/bin/python3", "-c", "import psycopg"}, []string{"/usr/bin/python3", "primary.py"}},
		{"js", []string{"node", "-e", "require('pg')"}, []string{"node", "primary.js"}},
		{"java", []string{"javap", "-cp", javaDriver, "org.postgresql.Driver"}, []string{"java", "-cp", javaDriver, "Primary.java"}},
	} {
		t.Run(l.language, func(t *testing.T) {
			if out, err := osexec.CommandContext(t.Context(), l.driver[0], l.driver[1:]...).CombinedOutput(); err != nil {
				t.Skipf("no driver for %s: %v: %.200s", l.language, err, out)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*ample)
			defer cancel()
			db := server.NewDatabase(t)
			s := open(t, db)
			start := func(name string) (said *bufio.Scanner) {
				t.Helper()
				c := osexec.CommandContext(ctx, l.run[0], append(l.run[1:], name)...)
				c.Dir, c.Stderr = "../../examples/role-from-sql", os.Stderr
				c.Env = append(os.Environ(), "DATABASE_URL="+db, "JDBC_URL="+jdbc(t, db), "JAVA_TOOL_OPTIONS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC") // it starts in half the time
				out, err := c.StdoutPipe()
				if err == nil {
					err = c.Start()
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
				return bufio.NewScanner(out)
			}
			first := start("one")
			var term, done int64
			if !first.Scan() || sscan(first.Text(), &term, &done) != nil || done != 0 {
				t.Fatalf("the first program said %q", first.Text())
			}
			second := start("two")
			deadline := time.Now().Add(ample)
			for range time.Tick(20 * time.Millisecond) {
				_, err := elect.Resign(t.Context(), s, elect.ResignRequest{Role: "report", Successor: "two", By: "me"})
				if err == nil {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("the second is no standby: %v", err)
				}
			}
			if first.Scan() {
				t.Errorf("asked to resign, the first said %q", first.Text())
			}
			var next int64
			if !second.Scan() || sscan(second.Text(), &next, &done) != nil || next <= term || done == 0 {
				t.Errorf("after term %d the second said %q", term, second.Text())
			}
			if !prove { // it takes as long as a call may
				return
			}
			server.Pause() // as a host that is cut off: its connections stay open
			defer server.Resume()
			if second.Scan() || ctx.Err() != nil {
				t.Errorf("the database is silent, and the second goes on: %q, %v", second.Text(), ctx.Err())
			}
		})
	}
}

func sscan(line string, term, done *int64) error {
	_, err := fmt.Sscanf(line, "primary %d from %d", term, done)
	return err
}

// jdbc is a database's URL as its Java driver takes it.
func jdbc(t *testing.T, db string) string {
	t.Helper()
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	return "jdbc:postgresql://" + u.Host + u.Path + "?" + url.Values{"user": {u.User.Username()}, "password": {password}}.Encode()
}

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// understudy runs the program in this process, and wants it to succeed.
func understudy(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(context.WithoutCancel(t.Context()), args, &stdout, &stderr); code != 0 {
		t.Fatalf("understudy %s: exit %d\n%s%s", strings.Join(args, " "), code, &stdout, &stderr)
	}
	return stdout.String()
}

// tool runs another program, and wants it to succeed; without it the test is skipped.
func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed", name)
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// enqueue puts a batch into the queue.
func enqueue(t *testing.T, url, id string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "payload")
	if err := os.WriteFile(file, []byte("paid: 10"), 0o600); err != nil {
		t.Fatal(err)
	}
	understudy(t, "batch", "add", "orders", "--key", "a", "--id", id, "--create", "--store", url, file)
}

// goesOn wants that a restored store has its batch, and takes another one in its order.
func goesOn(t *testing.T, url string) {
	t.Helper()
	understudy(t, "store", "check", "--store", url)
	enqueue(t, url, "after")
	list := understudy(t, "batch", "list", "orders", "--store", url)
	before, after := strings.Index(list, "before"), strings.Index(list, "after")
	if before < 0 || after < before {
		t.Errorf("the restored queue has\n%s", list)
	}
}

// What docs/backup.md says about SQLite works while a program has the file open.
func TestBackupOfSQLite(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	dir := t.TempDir()
	file := filepath.Join(dir, "state", "understudy.db")
	url := "sqlite:" + file
	enqueue(t, url, "before")
	st, err := (&app{Host: instance.Host{StoreURL: url}}).openStore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string]string{"vacuum.db": "VACUUM INTO '%'", "backup.db": ".backup '%'"} {
		tool(t, "sqlite3", file, strings.ReplaceAll(command, "%", filepath.Join(dir, name)))
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"vacuum.db", "backup.db"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			for _, end := range []string{"", "-wal", "-shm"} {
				if err := os.RemoveAll(file + end); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			goesOn(t, url)
		})
	}
}

// What docs/backup.md says about PostgreSQL.
func TestBackupOfPostgres(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	if _, err := exec.LookPath("pg_restore"); err != nil {
		t.Skip("pg_restore is not installed")
	}
	url := realserver.Postgres(t, realserver.PostgresOptions{}).NewDatabase(t)
	dump := filepath.Join(t.TempDir(), "understudy.dump")
	enqueue(t, url, "before")
	tool(t, "pg_dump", "-Fc", "-d", url, "-n", "understudy", "-f", dump)
	enqueue(t, url, "forgotten")
	tool(t, "psql", url, "-q", "-c", "DROP SCHEMA understudy CASCADE")
	tool(t, "pg_restore", "-d", url, dump)
	goesOn(t, url)
	if list := understudy(t, "batch", "list", "orders", "--store", url); strings.Contains(list, "forgotten") {
		t.Errorf("it is not what was backed up:\n%s", list)
	}
}

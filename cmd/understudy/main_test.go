package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"understudy": main})
}

// TestExitCodeOfSeveral: what is known of one name does not hide that the outcome for another is not.
func TestExitCodeOfSeveral(t *testing.T) {
	for _, known := range []error{dispatch.ErrNoMessage, lease.ErrInvalid, dispatch.ErrState} {
		for _, unknown := range []error{lease.ErrUnknown, lease.ErrUnavailable} {
			err := errors.Join(fmt.Errorf("a: %w", known), fmt.Errorf("b: %w", unknown))
			if got := exitCode(err); got != exitUnreachable {
				t.Errorf("%v: exit code %d", err, got)
			}
		}
	}
}

// TestScripts runs the command line as people type it: testdata/script/*.txt.
func TestScripts(t *testing.T) {
	testscript.Run(t, scripts(t, "testdata/script", nil, func(e *testscript.Env) string { return "sqlite:" + e.WorkDir + "/state/understudy.db" }))
}

// TestScriptsOnPostgres runs those of queues and of the monitor on the other store
// that has some: make prove all, make test what asks most of the store.
func TestScriptsOnPostgres(t *testing.T) {
	var files []string
	patterns := []string{"queue.txt", "queuerun.txt", "monitor.txt"}
	if os.Getenv("UNDERSTUDY_PROVE") == "1" {
		patterns = []string{"queue*.txt", "monitor*.txt"}
	}
	for _, pattern := range patterns {
		found, err := filepath.Glob("testdata/script/" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%v, %v", found, err)
		}
		files = append(files, found...)
	}
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	testscript.Run(t, scripts(t, "", files, func(*testscript.Env) string { return server.NewDatabase(t) }))
}

// scripts of a folder, or those that are named.
func scripts(t *testing.T, dir string, files []string, store func(*testscript.Env) string) testscript.Params {
	return testscript.Params{
		Dir: dir, Files: files,
		Setup: func(e *testscript.Env) error {
			e.Setenv("LISTEN", realserver.FreeAddress(t))
			e.Setenv("UNDERSTUDY_STORE", store(e))
			e.Setenv("HOME", e.WorkDir)
			// A program built with the race detector would sleep for a second at each
			// exit, and a guard, its two watchers and a command exit one after another.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds:      map[string]func(*testscript.TestScript, bool, []string){"eventually": eventually, "exits": exits, "addresses": addresses(t), "receiver": receiver},
		Condition: func(name string) (bool, error) { return name == "root" && os.Getuid() == 0, nil },
	}
}

// patience is how long a script waits for what should take milliseconds, or a few
// seconds: a busy machine is given more.
const patience = 90 * time.Second

// eventually runs a command until it succeeds or, with a "!" before it, until it
// fails.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: [!] eventually COMMAND [ARG…]")
	}
	for began := time.Now(); ; {
		failed := ts.Exec(args[0], args[1:]...)
		if (failed != nil) == neg {
			return
		}
		waited := time.Since(began)
		if waited > patience {
			ts.Fatalf("not within %v: %v; the last answer: %v", patience, args, failed)
		}
		// A look starts a program with the race detector: one after the other would take a processor for itself.
		<-time.After(min(max(waited/5, 10*time.Millisecond), 300*time.Millisecond))
	}
}

// exits runs a command and checks its exit code: exits CODE COMMAND [ARG…].
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG…]")
	}
	script := append([]string{"-c", `"$@"; code=$?; [ $code = ` + args[0] + ` ] || { echo "exit code $code" >&2; exit 1; }`, "sh"}, args[1:]...)
	ts.Check(ts.Exec("sh", script...))
}

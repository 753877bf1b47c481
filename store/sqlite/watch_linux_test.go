package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// A watcher learns of another process's commit from the kernel: this one would poll after an hour.
func TestWatchDoesNotWaitForThePoll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	watching := open(t, sqlite.Config{Path: path, PollInterval: time.Hour})
	other := open(t, sqlite.Config{Path: path})
	changes := make(chan lease.Change, 100)
	go func() { _ = watching.Watch(t.Context(), func(c lease.Change) { changes <- c }) }()
	id := lease.ID{Space: "role", Key: "billing"}
	wait := func(what string, arrived func(lease.Change) bool) {
		t.Helper()
		for deadline := time.After(time.Minute); ; {
			select {
			case c := <-changes:
				if arrived(c) {
					return
				}
			case <-deadline:
				t.Fatalf("not told in a minute: %s", what)
			}
		}
	}
	wait("the watch is ready", func(c lease.Change) bool { return c == lease.Change{} })
	me := session(t, other, "me", lease.Timing{Interval: time.Minute, Timeout: time.Hour})
	for range 20 {
		seen, err := other.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		held, err := other.Acquire(t.Context(), lease.Expectation{Lease: id, Session: me.ID, Seen: seen.Seen()})
		if err != nil {
			t.Fatal(err)
		}
		wait("acquired", func(c lease.Change) bool { return c == lease.Change{Lease: id, Term: held.Term} })
		if err := other.Release(t.Context(), lease.ReleaseRequest{Lease: id, Session: me.ID, Term: held.Term}); err != nil {
			t.Fatal(err)
		}
		wait("released", func(c lease.Change) bool { return c == lease.Change{Lease: id, Term: held.Term, Free: true} })
	}
}

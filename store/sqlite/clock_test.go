package sqlite_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// counted counts how often it is read.
type counted struct {
	lease.Clock
	reads atomic.Int64
}

func (c *counted) Now() time.Duration { c.reads.Add(1); return c.Clock.Now() }

// A writer that read the clock before it waited for the lock would judge by a
// time that has passed.
func TestTheClockIsReadUnderTheLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	c := &counted{Clock: lease.BootClock()}
	s := open(t, sqlite.Config{Path: path, Clock: c})
	n := session(t, s, "a", patient)
	conn, err := plain(t, path).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	before := c.reads.Load()
	for name, call := range map[string]func(context.Context) error{
		"RenewSession": func(ctx context.Context) error { _, err := s.RenewSession(ctx, n.ID); return err },
		"Acquire": func(ctx context.Context) error {
			_, err := s.Acquire(ctx, lease.Expectation{Lease: roleR, Session: n.ID})
			return err
		},
		"StartSession": func(ctx context.Context) error {
			_, err := s.StartSession(ctx, lease.Session{ID: lease.NewID(), Instance: n.Instance, Timing: n.Timing})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := call(ctx); !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("%s while another has the lock: %v, want ErrUnavailable", name, err)
		}
		cancel()
		if reads := c.reads.Load() - before; reads != 0 {
			t.Errorf("%s read the clock %d times before it had the lock", name, reads)
		}
	}
	if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RenewSession(t.Context(), n.ID); err != nil {
		t.Fatal(err)
	}
	if c.reads.Load() == before {
		t.Error("a renewal read no clock: the test above proves nothing")
	}
}

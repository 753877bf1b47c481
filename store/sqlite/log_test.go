package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// TestLogRemoved: a write-ahead log that somebody removes, or puts another file in place of, is noticed at the next write, and what
// was committed before is there after a restart.
func TestLogRemoved(t *testing.T) {
	for what, spoil := range map[string]func(log string) error{
		"removed": os.Remove,
		"replaced": func(log string) error {
			return errors.Join(os.WriteFile(log+".new", nil, 0o600), os.Rename(log+".new", log))
		},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			open := func() *Store {
				s, err := Open(t.Context(), Config{Path: path})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			s := open()
			begin := func(s *Store, id string) error {
				timing := lease.Timing{Interval: time.Second, Timeout: time.Hour}
				_, err := s.StartSession(context.Background(), lease.Session{ID: id, Instance: lease.NewInstance(id, ""), Timing: timing})
				return err
			}
			if err := begin(s, "a"); err != nil {
				t.Fatal(err)
			}
			if err := spoil(path + "-wal"); err != nil {
				t.Fatal(err)
			}
			for _, err := range []error{begin(s, "b"), func() error { _, err := s.RenewSession(t.Context(), "a"); return err }()} {
				if !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "-wal was removed or replaced while in use") {
					t.Errorf("a write: %v", err)
				}
			}
			_ = s.Close()
			s = open()
			defer s.Close()
			if err := begin(s, "c"); err != nil {
				t.Errorf("after a restart: %v", err)
			}
			if _, err := s.RenewSession(t.Context(), "a"); what == "removed" && err != nil {
				t.Errorf("what was committed before: %v", err)
			}
		})
	}
}

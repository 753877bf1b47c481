package memory_test

import (
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/access/accesstest"
	"github.com/understudy-ha/understudy/store/memory"
)

func TestAccess(t *testing.T) {
	accesstest.TestTokens(t, func(*testing.T) accesstest.Subject {
		var mu sync.Mutex
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		s := memory.New(func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return now
		})
		return accesstest.Subject{Tokens: s.Tokens(), History: s, Advance: func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			now = now.Add(d)
		}}
	})
}

// TestAccessRestored: what a backup does not have is not there when it was put back.
func TestAccessRestored(t *testing.T) {
	s := memory.New(nil)
	add := func(name string) {
		t.Helper()
		one, _, err := access.NewToken(name, access.Scopes{access.Read}, "alice")
		if err == nil {
			_, err = s.Tokens().Add(t.Context(), one, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	add("before")
	backup := s.Snapshot()
	add("after")
	s.Restore(backup)
	all, _, err := s.Tokens().List(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "before" {
		t.Errorf("restored: %+v, %v", all, err)
	}
}

package checks_test

import (
	"os"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/memstore/checks"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

func TestMain(m *testing.M) {
	checks.NewSessions = func(now func() time.Time) interface {
		lease.Store
		lease.Roster
		history.Log
	} {
		return memory.New(now)
	}
	os.Exit(m.Run())
}

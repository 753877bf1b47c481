package queues_test

import (
	"os"
	"testing"

	"github.com/understudy-ha/understudy/internal/memstore/claims"
	"github.com/understudy-ha/understudy/internal/memstore/queues"
	"github.com/understudy-ha/understudy/store/memory"
)

func TestMain(m *testing.M) {
	queues.NewSessions = func() claims.Backend { return memory.New(nil) }
	os.Exit(m.Run())
}

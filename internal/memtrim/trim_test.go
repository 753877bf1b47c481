package memtrim_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/understudy-ha/understudy/internal/memtrim"
)

// TestAfterStart: the program runs on when its pages are gone.
func TestAfterStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memtrim.AfterStart(t.Context())
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		memtrim.AfterStart(ended)
	})
}

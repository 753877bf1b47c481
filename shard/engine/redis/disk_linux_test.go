package redis_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/shard"
)

// A full disk under the append-only file does the same.
func TestFullDisk(t *testing.T) {
	dir := realserver.SmallDisk(t, "1m")
	a := realserver.Redis(t, realserver.RedisOptions{Args: []string{"--dir", dir, "--appendonly", "yes", "--appendfsync", "everysec"}})
	n := node(t, a)
	must(t, n.TryWrite(t.Context()))
	_, _ = a.Do("SET", "big", strings.Repeat("x", 2<<20))
	var unwell error
	realserver.Eventually(t, patience, "the disk is full", func() error {
		if unwell = n.TryWrite(t.Context()); unwell == nil {
			return errors.New("it still writes")
		}
		return nil
	})
	wantError(t, "TryWrite", unwell, shard.ErrNodeUnhealthy)
	probe(t, n)
}

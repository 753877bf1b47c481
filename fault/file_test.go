//go:build linux

package fault_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// files are the faults of a store that is a file.
var files = []scenario{
	{name: "file locked for long", run: fileLocked, outage: 10 * time.Second},
	{name: "disk full", run: diskFull, outage: 15 * time.Second},
}

// A long write transaction of someone else's is, for all others, a store that
// does not answer.
func fileLocked(t *testing.T, c *fault.Cluster) {
	c.Three()
	term := c.Last().Term
	ctx, cancel := context.WithTimeout(t.Context(), c.Bound())
	defer cancel()
	db, err := sql.Open("sqlite", strings.TrimPrefix(c.Database.URL, "sqlite:")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	silent(c)
	if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
		t.Fatal(err)
	}
	c.AwaitPrimary(term)
	c.Settled()
}

// Whether the role can be kept on a full disk is the file system's luck; there
// are never two primaries, and there is one again when there is space.
func diskFull(t *testing.T, c *fault.Cluster) {
	disk := realserver.SmallDisk(t, "1m")
	c.Database = fault.Database{URL: "sqlite:" + filepath.Join(disk, "store.db")}
	c.Three()
	free := realserver.FillDisk(t, disk)
	c.Pass(3 * c.Timing.Timeout)
	if p := c.Node(c.Last().Holder); p != nil {
		p.Signal(syscall.SIGKILL)
	}
	c.Pass(2 * c.Timing.Timeout)
	free()
	c.AwaitPrimary(0)
	c.Settled()
}

package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/monitortest"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// twoClocks are a boot-time clock that stands still until it is stepped, and a wall
// clock that can be set back.
type twoClocks struct {
	mu   sync.Mutex
	boot time.Duration
	wall time.Time
}

func newTwoClocks() *twoClocks {
	return &twoClocks{boot: time.Hour, wall: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func (c *twoClocks) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
	c.boot += max(0, d)
}

func (c *twoClocks) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot
}

func (c *twoClocks) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

func (c *twoClocks) Timer(d time.Duration) (<-chan time.Time, func() bool) {
	t := time.NewTimer(d)
	return t.C, t.Stop
}

func TestMonitorConformance(t *testing.T) {
	monitortest.Run(t, func(t *testing.T) monitortest.Rig { return monitorRig(t) })
}

func TestMonitorOutages(t *testing.T) {
	monitortest.CheckOutages(t, monitorRig(t), monitortest.Outages{})
}

func monitorRig(t *testing.T) monitortest.Rig {
	path := filepath.Join(t.TempDir(), "store.db")
	c := newTwoClocks()
	cfg := sqlite.Config{Path: path, Clock: c, Wall: c.Wall}
	s := open(t, cfg)
	return monitortest.Rig{
		Table:    s.Monitor(),
		Open:     func(t *testing.T) monitor.Store { return open(t, cfg).Monitor() },
		Step:     func(_ *testing.T, d time.Duration) { c.step(d) },
		Sent:     func(t *testing.T, sink string) []monitor.Notification { return sent(t, s, sink) },
		Sessions: s,
		History:  s,
		View:     func(t *testing.T, name string) ([]string, [][]string) { return view(t, path, name) },
	}
}

// sent are the notices in the queue of a sink, in order key by key.
func sent(t testing.TB, s *sqlite.Store, sink string) (out []monitor.Notification) {
	t.Helper()
	q := dispatch.MessageQuery{Queue: monitor.SinkQueue(sink)}
	for {
		page, err := s.QueueAdmin().Messages(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			whole, err := s.QueueAdmin().Message(t.Context(), r.Queue, r.ID)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, monitor.Notification{Sink: sink, Key: r.Key, ID: r.ID, Payload: whole.Payload})
			q.AfterKey, q.AfterSeq = r.Key, r.Seq
		}
		if len(page) < dispatch.MaxPage {
			return out
		}
	}
}

// view reads a view as any other program would.
func view(t testing.TB, path, name string) (columns []string, rows [][]string) {
	t.Helper()
	found, err := plain(t, path).Query("SELECT * FROM " + name)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	if columns, err = found.Columns(); err != nil {
		t.Fatal(err)
	}
	for found.Next() {
		values := make([]sql.NullString, len(columns))
		dest := make([]any, len(columns))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := found.Scan(dest...); err != nil {
			t.Fatal(err)
		}
		row := make([]string, len(columns))
		for i, v := range values {
			row[i] = v.String
		}
		rows = append(rows, row)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return columns, rows
}

package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
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

// TestSinkAfterInterruptedRemoval: the queue of a sink that is configured again is empty, also if a removal was cut short.
func TestSinkAfterInterruptedRemoval(t *testing.T) {
	const messages = 600
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := -1 // transactions that begin before the removal is cut short
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, sqlite.Config{Path: path, Wall: func() time.Time {
		if left--; left == 0 {
			cancel()
		}
		return time.Now()
	}})
	me := session(t, s, "me", patient)
	queue := monitor.SinkQueue("hook")
	if err := s.QueueAdmin().CreateQueue(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	var all []dispatch.Message
	for i := range messages {
		all = append(all, dispatch.Message{Queue: queue, Key: fmt.Sprint("k", i%3), ID: fmt.Sprint(i)})
	}
	if _, err := s.QueueAdmin().Add(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	left = 2 // that of the queue, and one of what is in it
	if err := s.QueueAdmin().RemoveQueue(ctx, queue, messages, "test"); !errors.Is(err, lease.ErrUnavailable) {
		t.Fatalf("RemoveQueue = %v, want ErrUnavailable", err)
	}
	if n := count(t, path, "understudy_batch"); n == 0 || n == messages {
		t.Fatalf("%d messages are left of %d", n, messages)
	}
	register := func(sinks ...string) {
		t.Helper()
		if err := s.Monitor().RegisterMember(t.Context(), monitor.Member{Session: me.ID, Sinks: sinks}); err != nil {
			t.Fatal(err)
		}
	}
	register("hook")
	for _, table := range []string{"understudy_batch", "understudy_payload", "understudy_claim"} {
		if n := count(t, path, table); n != 0 {
			t.Errorf("%d rows are left of %s", n, table)
		}
	}
	if _, err := s.QueueAdmin().Add(t.Context(), all[:1]); err != nil {
		t.Fatal(err)
	}
	register("hook", "mail") // what is in a queue stays in it
	held, err := s.Claims().ClaimKeys(t.Context(), claim.ClaimRequest{Space: dispatch.Space(queue), Session: me.ID, Limit: 10, Fresh: 10})
	if err != nil {
		t.Fatal(err)
	}
	x, err := s.Queue().Exchange(t.Context(), dispatch.Exchange{Queue: queue, Session: me.ID, Begin: held, Window: time.Minute})
	if err != nil || len(x.Begun) != 1 || x.Begun[0].Seq != 1 {
		t.Errorf("Exchange = %+v, %v; want the first message", x.Begun, err)
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

package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// pretender is a server that keeps one list, and tells where the primary is.
type pretender struct {
	net.Listener

	mu      sync.Mutex
	list    []string
	primary string // as a Sentinel tells it; "" is nobody
	refuses bool   // as a replica does
	conns   []net.Conn
}

func startPretender(t *testing.T) *pretender {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pretender{Listener: l}
	t.Cleanup(func() { l.Close() })
	go serveEach(l, p.serve)
	return p
}

func (p *pretender) address() string { return p.Addr().String() }

func (p *pretender) serve(c net.Conn) {
	defer c.Close()
	p.mu.Lock()
	p.conns = append(p.conns, c)
	p.mu.Unlock()
	in := &respConn{Conn: c, in: bufio.NewReader(c)}
	for {
		r, err := in.answer() // a request looks like an answer
		if err != nil || len(r.list) == 0 {
			return
		}
		if _, err := c.Write([]byte(p.reply(r))); err != nil {
			return
		}
	}
}

func (p *pretender) reply(r reply) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch r.list[0].text {
	case "RPUSH":
		if p.refuses {
			return "-READONLY no\r\n"
		}
		p.list = append(p.list, r.list[2].text)
		return fmt.Sprintf(":%d\r\n", len(p.list))
	case "LRANGE":
		from, _ := strconv.Atoi(r.list[2].text)
		to, _ := strconv.Atoi(r.list[3].text)
		part := p.list[min(from, len(p.list)):min(to+1, len(p.list))]
		var out strings.Builder
		fmt.Fprintf(&out, "*%d\r\n", len(part))
		for _, text := range part {
			fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(text), text)
		}
		return out.String()
	case "SENTINEL":
		host, port, err := net.SplitHostPort(p.primary)
		if err != nil {
			return "*-1\r\n"
		}
		return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
	}
	return "-ERR unknown\r\n"
}

func (p *pretender) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// TestWriter moves a writer from one primary to another, which lacks some of the writes, and
// a replica in between refuses it.
func TestWriter(t *testing.T) {
	for name, batch := range map[string]int{"one at a time": 1, "in batches": 16} {
		t.Run(name, func(t *testing.T) {
			guide, first, second := startPretender(t), startPretender(t), startPretender(t)
			guide.primary = first.address()
			gone := realserver.FreeAddress(&bed{})
			w := &writer{key: "k", batch: batch, pause: time.Millisecond, patience: time.Second,
				newFind: func() finder { return &guideFinder{guides: []string{gone, guide.address()}, name: "m"} }}
			w.start(context.Background())
			eventually(t, "the first accepts writes", func() bool { return w.countBy(first.address(), time.Time{}) >= 20*batch })

			moment := time.Now()
			guide.set(func() { guide.primary = "" })
			first.set(func() { first.refuses = true })
			second.set(func() { guide.set(func() { guide.primary = second.address() }) })
			eventually(t, "the second accepts writes", func() bool { return w.countBy(second.address(), moment) >= 5*batch })
			w.stop()

			if a, ok := w.firstAfter(moment, first.address()); !ok || a.address != second.address() {
				t.Errorf("the first write after the change: %+v, %v", a, ok)
			}
			if last, ok := w.lastBy(first.address(), time.Now()); !ok || last.seq < 20*batch-1 {
				t.Errorf("the last write before the change: %+v, %v", last, ok)
			}
			old := w.countBy(first.address(), time.Time{})
			if lost, acked, err := w.lost(second.address()); err != nil || lost != old || acked != len(w.acks) {
				t.Errorf("lost %d of %d, %v; want %d of %d: nothing was copied", lost, acked, err, old, len(w.acks))
			}
			// All but three of what the first acknowledged was copied.
			second.set(func() { second.list = append(slices.Clone(first.list[3:]), second.list...) })
			if lost, _, err := w.lost(second.address()); err != nil || lost != 3 {
				t.Errorf("lost %d, %v; want 3", lost, err)
			}
		})
	}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it takes more than 30 s until %s", what)
		}
	}
}

// TestTurn finds the pause in what several writers were told.
func TestTurn(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	all := []*writer{
		{acks: []ack{{1, "old", at(1)}, {2, "old", at(12)}, {3, "new", at(50)}}},
		{acks: []ack{{1, "old", at(20)}, {2, "new", at(45)}, {3, "old", at(60)}}},
		{},
	}
	first, gap, ok := turnOf(all, "old", at(10))
	if !ok || !first.at.Equal(at(45)) || gap != 25*time.Millisecond {
		t.Errorf("first %v, gap %v, %v; want 45 ms, 25 ms", first.at.Sub(start), gap, ok)
	}
	if _, _, ok := turnOf(all[2:], "old", at(10)); ok {
		t.Error("nobody wrote, and yet there was a turn")
	}
	if n := all[1].countBy("old", first.at); n != 1 {
		t.Errorf("the old one accepted %d afterwards, want 1", n)
	}
}

func TestPIDIn(t *testing.T) {
	for text, want := range map[string]int{`{"pid":24564,"start":"2812805"}`: 24564, `{"start":"1","pid": 7}`: 7, ``: 0, `{"pid":null}`: 0} {
		if got := pidIn(text); got != want {
			t.Errorf("pidIn(%q) = %d, want %d", text, got, want)
		}
	}
}

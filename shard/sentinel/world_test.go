package sentinel_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/sentinel"
)

func id(n int) string { return fmt.Sprintf("%040x", n) }

// view of a shard whose nodes, numbered from 1, are at the addresses; primary is one of their
// numbers.
func view(name string, primary int, addresses ...string) shard.View {
	v := shard.View{Row: shard.Row{Name: name, Rev: 1, Epoch: int64(primary), Primary: id(primary), PrimaryEpoch: int64(primary)}}
	for i, a := range addresses {
		r := shard.Record{
			Shard: name, ID: id(i + 1), Address: a, Role: shard.Replica, PrimaryID: id(primary), Condition: shard.Up, Synced: true,
			Interval: time.Second, Timeout: 5 * time.Second, Priority: 100, Link: &shard.Upstream{Up: true}, Run: fmt.Sprint("run", i+1),
		}
		if i+1 == primary {
			r.Role, r.PrimaryID, r.Link = shard.Primary, "", nil
		}
		v.Nodes = append(v.Nodes, r)
		v.Row.Members = append(v.Row.Members, shard.Member{ID: r.ID, Address: a})
	}
	return v
}

// failing is the view while the primary is being replaced.
func failing(v shard.View, epoch int64) shard.View {
	v.Row.Plan = &shard.Plan{Epoch: epoch, Kind: shard.Failover, From: v.Row.Primary, Phase: shard.Detaching}
	return v
}

// serve runs an endpoint until the test ends.
func serve(t *testing.T, cfg sentinel.Config) (address string, s *sentinel.Server) {
	t.Helper()
	s, err := sentinel.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return l.Addr().String(), s
}

// peer is a client that speaks the protocol by hand.
type peer struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, address string) *peer {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &peer{t, c, bufio.NewReader(c)}
}

// do sends a request of words and returns the answer as one line.
func (p *peer) do(words ...string) string {
	p.t.Helper()
	p.send(words...)
	return p.read()
}

func (p *peer) send(words ...string) {
	p.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := io.WriteString(p, b.String()); err != nil {
		p.t.Fatalf("sending %q: %v", words, err)
	}
}

func (p *peer) read() string {
	p.t.Helper()
	s, err := p.value()
	if err != nil {
		p.t.Fatalf("reading: %v", err)
	}
	return s
}

// value reads one answer: arrays as [a b], maps as {a b}, pushes as >a b<.
func (p *peer) value() (string, error) {
	line, err := p.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	n, _ := strconv.Atoi(line[1:])
	list := func(n int, from, to string) (string, error) {
		var all []string
		for range n {
			s, err := p.value()
			if err != nil {
				return "", err
			}
			all = append(all, s)
		}
		return from + strings.Join(all, " ") + to, nil
	}
	switch line[0] {
	case '$', '=':
		if n < 0 {
			return "nil", nil
		}
		text := make([]byte, n+2)
		_, err := io.ReadFull(p.r, text)
		return string(text[:n]), err
	case '*':
		if n < 0 {
			return "nil-array", nil
		}
		return list(n, "[", "]")
	case '%':
		return list(2*n, "{", "}")
	case '>':
		return list(n, ">", "<")
	case '_':
		return "null", nil
	}
	return line, nil
}

package sabledb_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/access/accesstest"
	stand "github.com/understudy-ha/understudy/internal/testkit/sabledb"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/shard/engine/wire"
	"github.com/understudy-ha/understudy/shard/shardtest"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/sabledb"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a SableDB, a stand-in or a real one, with one empty store.
type server struct {
	*stand.Node
	prefix string
}

func startServer(t *testing.T) server {
	t.Helper()
	s := server{(&stand.Cluster{Window: 2 * time.Millisecond}).Start(t), lease.NewID()}
	t.Cleanup(func() {
		if refused := s.Refused(); len(refused) > 0 {
			t.Errorf("SableDB has no %q", refused)
		}
	})
	first, err := sabledb.Open(t.Context(), sabledb.Config{URL: s.url()})
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	s.step(t, 100*time.Hour) // it has been up for long
	return s
}

func (s server) url() string { return "sabledb://" + s.Addr + "?prefix=" + s.prefix }

// open opens the store as another process would have it.
func (s server) open(t *testing.T) *sabledb.Store {
	t.Helper()
	return open(t, s.url())
}

func open(t *testing.T, url string) *sabledb.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		out, err := sabledb.Open(ctx, sabledb.Config{URL: url})
		if err == nil {
			t.Cleanup(func() { _ = out.Close() })
			return out
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

func (s server) do(t *testing.T, commands ...string) []wire.Reply {
	t.Helper()
	var words [][]string
	for _, command := range commands {
		words = append(words, strings.Fields(command))
	}
	return s.send(t, words...)
}

func (s server) send(t *testing.T, commands ...[]string) []wire.Reply {
	t.Helper()
	c := wire.New(s.Addr, wire.Config{Timeout: time.Minute})
	defer c.Close()
	replies, err := c.Do(context.Background(), commands...)
	if err != nil {
		t.Fatal(err)
	}
	return replies
}

// step moves the server's clock as far as the store can see it: every key that expires does so that much earlier, or later.
func (s server) step(t *testing.T, d time.Duration) {
	t.Helper()
	if stand.Real() == "" {
		s.Step(d)
		return
	}
	for cursor := int64(0); ; {
		page := s.do(t, fmt.Sprintf("SCAN %d COUNT 1000", cursor))[0]
		for _, key := range page.Items[1].Items {
			left := s.do(t, "TTL "+key.Text)[0].Int
			if !strings.HasPrefix(key.Text, "{"+s.prefix+"}:") || left < 0 {
				continue
			}
			s.do(t, fmt.Sprintf("EXPIRE %s %d", key.Text, max(0, left-int64(d/time.Second)))) // 0 deletes
		}
		if cursor = page.Items[0].Int; cursor == 0 {
			return
		}
	}
}

func TestConformance(t *testing.T) {
	leasetest.Run(t, func(t *testing.T) *leasetest.Harness {
		s := startServer(t)
		return &leasetest.Harness{Open: func(t *testing.T) store.Store { return s.open(t) }, Step: s.step}
	})
}

func TestAccess(t *testing.T) {
	accesstest.TestTokens(t, func(t *testing.T) accesstest.Subject {
		s := startServer(t)
		one, other := s.open(t), s.open(t)
		return accesstest.Subject{Tokens: one.Tokens(), Other: other.Tokens(), History: one, Advance: func(d time.Duration) { s.step(t, d) }}
	})
}

func TestShardConformance(t *testing.T) {
	t.Parallel()
	shardtest.TestRegistry(t, func(t *testing.T) shardtest.Subject {
		t.Parallel() // some topics wait
		return startServer(t).subject(t)
	})
}

func (s server) subject(t *testing.T) shardtest.Subject {
	own := s.open(t)
	return shardtest.Subject{
		Registry: own.Registry(), Commands: own.Commands(), Leases: own, History: own, Grain: time.Second,
		Advance: func(d time.Duration) { s.step(t, d) },
		Open:    func(t *testing.T) shardtest.Subject { return s.subject(t) },
	}
}

func TestLinearizable(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	leasetest.CheckLinearizable(t, func(t *testing.T) leasetest.Target { return s.open(t) }, leasetest.Concurrent{Worlds: 4, Clients: 3, Timeout: 5 * time.Second, Length: 8 * time.Second})
}

package redis_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
)

// The master is replaced in a planned way: its name leads elsewhere, and nobody closes the connections to the old one.
func TestDemotedMaster(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{})
	b := realserver.Redis(t, realserver.RedisOptions{ReplicaOf: a})
	addr, lead := movingName(t)
	lead(a)
	s := open(t, "redis://"+addr, "")
	me := start(t, s, "me", time.Hour)
	demote(t, a, b, me)
	lead(b)
	if _, err := s.RenewSession(t.Context(), me.ID); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("the renewal on a connection to the old master: %v, want ErrUnavailable", err)
	}
	if _, err := s.RenewSession(t.Context(), me.ID); err != nil {
		t.Errorf("the next renewal: %v; want it at the new master", err)
	}
	// This one has connections of its own.
	if _, err := s.Join(t.Context(), contended, me.ID); err != nil {
		t.Errorf("the first other call after it: %v; want it at the new master", err)
	}
}

// A master is demoted, and promoted again without what the other one acknowledged meanwhile: a client that looked at it in between
// may not be given what another holds.
func TestPromotedAgain(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprintf("it knows of the other/%t", known), func(t *testing.T) {
			t.Parallel()
			a := realserver.Redis(t, realserver.RedisOptions{})
			b := realserver.Redis(t, realserver.RedisOptions{ReplicaOf: a})
			s := open(t, a.URL(), "")
			me := start(t, s, "me", time.Hour)
			demote(t, a, b, me)
			if _, err := s.RenewSession(t.Context(), me.ID); !errors.Is(err, lease.ErrUnavailable) {
				t.Fatalf("a renewal on a replica: %v, want ErrUnavailable", err)
			}
			look := func() {
				if _, err := s.Get(t.Context(), contended); err != nil {
					t.Fatalf("a look at a replica: %v", err)
				}
			}
			if !known {
				look() // the last to write was the server itself
			}
			other := open(t, b.URL(), "")
			realserver.Eventually(t, ample, "the replica hears of a client of the new master", func() error {
				return sameValue("{understudy}:server", a, b)
			})
			if known {
				look()
			}
			if _, err := a.Do("REPLICAOF", "127.0.0.1", "1"); err != nil { // which is nobody
				t.Fatal(err)
			}
			if _, err := acquire(t.Context(), other, contended, start(t, other, "other", time.Hour).ID); err != nil {
				t.Fatal(err)
			}
			b.Kill()
			if _, err := a.Do("REPLICAOF", "NO", "ONE"); err != nil {
				t.Fatal(err)
			}
			l, err := acquire(t.Context(), s, contended, me.ID)
			if !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "took over a moment ago") {
				t.Errorf("right after the promotion a lease that another holds is given away: %+v, %v", l, err)
			}
		})
	}
}

// demote makes b the master and a its replica, once b has the session.
func demote(t *testing.T, a, b *realserver.RedisServer, has lease.Session) {
	t.Helper()
	realserver.Eventually(t, ample, "the replica is in step", func() error {
		return sameValue("{understudy}:s:"+has.ID, a, b)
	})
	host, port, _ := net.SplitHostPort(b.Addr)
	for _, step := range []struct {
		server *realserver.RedisServer
		of     [2]string
	}{{b, [2]string{"NO", "ONE"}}, {a, [2]string{host, port}}} {
		if _, err := step.server.Do("REPLICAOF", step.of[0], step.of[1]); err != nil {
			t.Fatal(err)
		}
	}
	realserver.Eventually(t, ample, "the old master follows", func() error {
		info, err := a.Do("INFO", "replication")
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = errors.New(info)
		}
		return err
	})
}

func sameValue(key string, a, b *realserver.RedisServer) error {
	const dump = "return redis.sha1hex(redis.call('DUMP', KEYS[1]) or '')"
	one, err := a.Do("EVAL", dump, "1", key)
	if err != nil {
		return err
	}
	two, err := b.Do("EVAL", dump, "1", key)
	if err == nil && one != two {
		err = fmt.Errorf("%s differs", key)
	}
	return err
}

// movingName is an address that leads to a server, as a DNS name does: new connections to another one later.
func movingName(t *testing.T) (addr string, lead func(*realserver.RedisServer)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	var to atomic.Pointer[realserver.RedisServer]
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to.Load().Addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			pass := func(dst, src net.Conn) {
				_, _ = io.Copy(dst, src)
				_ = dst.Close()
			}
			go pass(server, client)
			go pass(client, server)
		}
	}()
	return l.Addr().String(), func(s *realserver.RedisServer) { to.Store(s) }
}

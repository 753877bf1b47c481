package sentinel_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/shard/sentinel"
	"github.com/understudy-ha/understudy/shard/shardtest"
)

// pair is a primary with a replica, and what moves clients from one to the other.
type pair struct {
	servers [2]*realserver.RedisServer
	world   *shardtest.Views
}

func newPair(t *testing.T, name string) *pair {
	p := &pair{}
	p.servers[0] = realserver.Redis(t, realserver.RedisOptions{})
	p.servers[1] = realserver.Redis(t, realserver.RedisOptions{ReplicaOf: p.servers[0]})
	p.world = shardtest.NewViews(view(name, 1, p.servers[0].Addr, p.servers[1].Addr))
	return p
}

// failOver kills the primary and promotes the replica, as agents do.
func (p *pair) failOver(t *testing.T, name string) {
	t.Helper()
	v := view(name, 1, p.servers[0].Addr, p.servers[1].Addr)
	p.world.Set(failing(v, 2))
	p.servers[0].Kill()
	if _, err := p.servers[1].Do("REPLICAOF", "NO", "ONE"); err != nil {
		t.Fatal(err)
	}
	after := view(name, 2, p.servers[0].Addr, p.servers[1].Addr)
	after.Nodes[0].Age = time.Hour
	p.world.Set(after)
}

func TestGoRedisFailsOver(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			p := newPair(t, "orders")
			address, _ := serve(t, sentinel.Config{Where: p.world, Password: "of the endpoint"})
			other, _ := serve(t, sentinel.Config{Where: p.world, Password: "of the endpoint"})
			c := goredis.NewFailoverClient(&goredis.FailoverOptions{
				MasterName: "orders", SentinelAddrs: []string{address, other}, SentinelPassword: "of the endpoint", Protocol: protocol,
			})
			t.Cleanup(func() { c.Close() })
			ctx := context.Background()
			if err := c.Set(ctx, "k", "before", 0).Err(); err != nil {
				t.Fatal(err)
			}
			realserver.Eventually(t, time.Minute, "the replica has the key", func() error {
				if got, err := p.servers[1].Do("GET", "k"); got != "before" {
					return fmt.Errorf("%q, %v", got, err)
				}
				return nil
			})
			p.failOver(t, "orders")
			realserver.Eventually(t, time.Minute, "a write after the failover", func() error {
				return c.Set(ctx, "k", "after", 0).Err()
			})
			if got, err := p.servers[1].Do("GET", "k"); got != "after" || err != nil {
				t.Errorf("the new primary has %q, %v", got, err)
			}
		})
	}
}

// TestGoRedisLeavesDeposed shows that a client whose connections to the old primary are well leaves it as
// soon as it is told.
func TestGoRedisLeavesDeposed(t *testing.T) {
	p := newPair(t, "orders")
	address, s := serve(t, sentinel.Config{Where: p.world})
	c := goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: "orders", SentinelAddrs: []string{address}})
	t.Cleanup(func() { c.Close() })
	ctx := context.Background()
	if err := c.Set(ctx, "k", "before", 0).Err(); err != nil {
		t.Fatal(err)
	}
	realserver.Eventually(t, time.Minute, "the client listens", func() error {
		if s.Stats().Subscribers == 0 {
			return errors.New("no subscriber")
		}
		return nil
	})
	if _, err := p.servers[1].Do("REPLICAOF", "NO", "ONE"); err != nil {
		t.Fatal(err)
	}
	p.world.Set(view("orders", 2, p.servers[0].Addr, p.servers[1].Addr))
	realserver.Eventually(t, time.Minute, "writes go to the new primary", func() error {
		if err := c.Set(ctx, "k", "after", 0).Err(); err != nil {
			return err
		}
		if got, err := p.servers[1].Do("GET", "k"); got != "after" {
			return fmt.Errorf("it has %q, %v", got, err)
		}
		return nil
	})
}

func TestGoRedisReplicaReads(t *testing.T) {
	p := newPair(t, "orders")
	address, _ := serve(t, sentinel.Config{Where: p.world})
	c := goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: "orders", SentinelAddrs: []string{address}, ReplicaOnly: true})
	t.Cleanup(func() { c.Close() })
	role, err := c.Do(context.Background(), "ROLE").Slice()
	if err != nil || role[0] != "slave" {
		t.Errorf("reads go to %v, %v", role, err)
	}
}

// TestPythonFailsOver runs redis-py's own client.
func TestPythonFailsOver(t *testing.T) {
	const python = "/usr/bin/python3"
	if exec.Command(python, "-c", "import redis").Run() != nil {
		if os.Getenv(realserver.RequireEnv) == "1" {
			t.Fatal("python3-redis is not installed")
		}
		t.Skip("python3-redis is not installed")
	}
	p := newPair(t, "orders")
	address, _ := serve(t, sentinel.Config{Where: p.world, Password: "secret"})
	cmd := exec.Command(python, "testdata/failover.py", address, "orders", "secret", p.servers[0].Addr, p.servers[1].Addr)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	client := realserver.Start(t, cmd)
	said := func(what string) {
		t.Helper()
		realserver.Eventually(t, time.Minute, what, func() error {
			ended := client.Exited() // before its output is read
			switch out := client.Output(); {
			case strings.Contains(out, what):
				return nil
			case ended:
				t.Fatalf("%q was never printed, but %s", what, out)
			}
			return errors.New("not printed yet")
		})
	}
	tell := func() {
		t.Helper()
		if _, err := in.Write([]byte("go on\n")); err != nil {
			t.Fatal(err)
		}
	}
	said("wrote before")
	p.world.Set(failing(view("orders", 1, p.servers[0].Addr, p.servers[1].Addr), 2))
	tell()
	said("no master")
	p.failOver(t, "orders")
	tell()
	said("wrote after")
	said("told of the switch")
	said("done")
}

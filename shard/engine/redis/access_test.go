package redis_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/redis"
)

func TestWrongPassword(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{Password: "right"})
	open := realserver.Redis(t, realserver.RedisOptions{})
	for name, c := range map[string]struct {
		address string
		cfg     redis.Config
	}{
		"none":               {a.Addr, redis.Config{}},
		"wrong":              {a.Addr, redis.Config{Password: "wrong"}},
		"unknown user":       {a.Addr, redis.Config{Username: "who", Password: "right"}},
		"one that has none":  {open.Addr, redis.Config{Password: "right"}},
		"tls where none is":  {open.Addr, redis.Config{TLS: &tls.Config{}, Timeout: 200 * time.Millisecond}},
		"tls at the default": {a.Addr, redis.Config{TLS: &tls.Config{}, Password: "right", Timeout: 200 * time.Millisecond}},
	} {
		e := enginesOf(t, c.cfg)
		n := at(t, e, c.address)
		_, err := n.Probe(t.Context())
		want := shard.ErrNodeAccess
		if c.cfg.TLS != nil {
			// Redis waits for the end of what it takes for a command.
			if err == nil || errors.Is(err, shard.ErrNodeGone) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		wantError(t, name, err, want)
		wantError(t, name, n.SetFence(t.Context(), shard.Closed, 0), want)
		if strings.Contains(err.Error(), "right") {
			t.Errorf("%s: the password is in the error: %v", name, err)
		}
		if v := e.ProbePeer(t.Context(), c.address); v != shard.Reachable {
			t.Errorf("%s: probing: %s", name, v)
		}
	}
	n := at(t, enginesOf(t, redis.Config{Username: "default", Password: "right"}), a.Addr)
	probe(t, n)
}

// A user with nothing but Rights can do everything, and replicas can be that user.
func TestLeastRights(t *testing.T) {
	a, b := realserver.Redis(t, realserver.RedisOptions{}), realserver.Redis(t, realserver.RedisOptions{})
	e := enginesOf(t, redis.Config{Username: "understudy", Password: "secret"})
	for _, s := range []*realserver.RedisServer{a, b} {
		do(t, s, append([]string{"ACL", "SETUSER", "understudy", "on", ">secret"}, strings.Fields(redis.Rights)...)...)
	}
	// Nobody else is let in as the user of a replica.
	do(t, a, "ACL", "SETUSER", "default", "resetpass", "-psync")
	na, nb := at(t, e, a.Addr), at(t, e, b.Addr)
	must(t, na.SetFence(t.Context(), shard.Closed, 0))
	must(t, na.SetFence(t.Context(), shard.Armed, 1))
	must(t, na.SetFence(t.Context(), shard.Open, 0))
	must(t, na.Pause(t.Context(), time.Second))
	must(t, na.Pause(t.Context(), 0))
	must(t, na.TryWrite(t.Context()))
	must(t, nb.Follow(t.Context(), a.Addr))
	until(t, nb, "the replica follows", linked)
	must(t, nb.Follow(t.Context(), ""))
	must(t, nb.Promote(t.Context()))
	if v := e.ProbePeer(t.Context(), a.Addr); v != shard.Reachable {
		t.Errorf("probing: %s", v)
	}
	// One right less is an error that names what is needed.
	do(t, b, "ACL", "SETUSER", "understudy", "-config|set", "-del")
	for name, err := range map[string]error{
		"SetFence": nb.SetFence(t.Context(), shard.Closed, 0), "TryWrite": nb.TryWrite(t.Context()), "Follow": nb.Follow(t.Context(), a.Addr),
	} {
		wantError(t, name, err, shard.ErrNodeAccess)
		if err != nil && (!strings.Contains(err.Error(), "+config|set") || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	do(t, b, "ACL", "SETUSER", "understudy", "-config|get")
	_, err := nb.Probe(t.Context())
	wantError(t, "Probe", err, shard.ErrNodeAccess)
}

// A replica that takes writes of its own is not kept, until it is made to follow by the engine, which ends that.
func TestWritableReplica(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{})
	b := realserver.Redis(t, realserver.RedisOptions{ReplicaOf: a, Args: []string{"--replica-read-only", "no"}})
	n := node(t, b)
	_, err := n.Probe(t.Context())
	wantError(t, "a replica that takes writes", err, shard.ErrUnsupported)
	if err != nil && !strings.Contains(err.Error(), "set replica-read-only yes") {
		t.Errorf("it does not say what to set: %v", err)
	}
	must(t, n.Follow(t.Context(), a.Addr))
	probe(t, n)
	if _, err := b.Do("SET", "k", "v"); err == nil {
		t.Error("it still takes writes")
	}
}

func TestCommandsTakenAway(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{Args: []string{"--rename-command", "CONFIG", "", "--rename-command", "REPLICAOF", "hidden"}})
	n := node(t, a)
	wantError(t, "SetFence", n.SetFence(t.Context(), shard.Closed, 0), shard.ErrNodeAccess)
	wantError(t, "Promote", n.Promote(t.Context()), shard.ErrNodeAccess)
	must(t, n.TryWrite(t.Context()))
}

func TestOtherModes(t *testing.T) {
	cluster := realserver.Redis(t, realserver.RedisOptions{Args: []string{"--cluster-enabled", "yes"}})
	_, err := node(t, cluster).Probe(t.Context())
	wantError(t, "cluster mode", err, shard.ErrUnsupported)
	a := realserver.Redis(t, realserver.RedisOptions{})
	sentinel := realserver.RedisSentinel(t, "m", a, time.Minute)
	if _, err := node(t, sentinel).Probe(t.Context()); err == nil {
		t.Error("a Sentinel is taken for a node")
	}
}

func TestTLS(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{TLS: true, Password: "secret"})
	b := realserver.Redis(t, realserver.RedisOptions{TLS: true, Password: "secret", Args: []string{"--tls-ca-cert-file", a.CACert}})
	roots := x509.NewCertPool()
	for _, s := range []*realserver.RedisServer{a, b} {
		pem, err := os.ReadFile(s.CACert)
		must(t, err)
		roots.AppendCertsFromPEM(pem)
	}
	e := enginesOf(t, redis.Config{Password: "secret", TLS: &tls.Config{RootCAs: roots}})
	na, nb := at(t, e, a.Addr), at(t, e, b.Addr)
	must(t, na.TryWrite(t.Context()))
	must(t, nb.Follow(t.Context(), a.Addr))
	until(t, nb, "the replica follows over TLS", linked)
	if v := e.ProbePeer(t.Context(), a.Addr); v != shard.Reachable {
		t.Errorf("probing: %s", v)
	}
	// A certificate that is not trusted is no silence: the node lives.
	strangers := enginesOf(t, redis.Config{Password: "secret", TLS: &tls.Config{RootCAs: x509.NewCertPool()}})
	_, err := at(t, strangers, a.Addr).Probe(t.Context())
	wantError(t, "a certificate that is not trusted", err, shard.ErrNodeAccess)
	if v := strangers.ProbePeer(t.Context(), a.Addr); v != shard.Reachable {
		t.Errorf("probing without trust: %s", v)
	}
	a.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if v := strangers.ProbePeer(ctx, a.Addr); v != shard.TimedOut {
		t.Errorf("a hung server, before its handshake: %s", v)
	}
	a.Kill()
	_, err = na.Probe(t.Context())
	wantError(t, "a killed server", err, shard.ErrNodeGone)
	if v := e.ProbePeer(t.Context(), a.Addr); v != shard.Refused {
		t.Errorf("a killed server: %s", v)
	}
}

// A server whose snapshots fail refuses writes, and answers.
func TestFailingSnapshot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	must(t, os.Mkdir(dir, 0o700))
	a := realserver.Redis(t, realserver.RedisOptions{Args: []string{"--dir", dir, "--save", "3600", "1"}})
	n := node(t, a)
	must(t, n.TryWrite(t.Context()))
	must(t, os.Remove(dir))
	do(t, a, "SET", "k", "v")
	do(t, a, "BGSAVE")
	var unwell error
	realserver.Eventually(t, patience, "the snapshot fails", func() error {
		if unwell = n.TryWrite(t.Context()); unwell == nil {
			return errors.New("it still writes")
		}
		return nil
	})
	wantError(t, "TryWrite", unwell, shard.ErrNodeUnhealthy)
	must(t, n.SetFence(t.Context(), shard.Closed, 0))
	if s := probe(t, n); s.Keys != 1 || s.Fence != shard.Closed {
		t.Errorf("%+v", s)
	}
}

// At its maxmemory a node still proves that it can write: see the package's promise.
func TestFullMemory(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{Args: []string{"--maxmemory", "1"}})
	if _, err := a.Do("SET", "k", "v"); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Fatalf("the server is not full: %v", err)
	}
	must(t, node(t, a).TryWrite(t.Context()))
}

// In a script that does not end, the server answers BUSY.
func TestBusyScript(t *testing.T) {
	a := realserver.Redis(t, realserver.RedisOptions{Args: []string{"--lua-time-limit", "1"}})
	e := enginesOf(t, redis.Config{})
	n := at(t, e, a.Addr)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = a.Do("EVAL", "while true do end", "0")
	}()
	var busy error
	realserver.Eventually(t, patience, "the server is busy", func() error {
		if busy = n.TryWrite(t.Context()); busy == nil {
			return errors.New("it writes")
		}
		return nil
	})
	wantError(t, "TryWrite", busy, shard.ErrNodeUnhealthy)
	wantError(t, "SetFence", n.SetFence(t.Context(), shard.Closed, 0), shard.ErrNodeUnhealthy)
	if v := e.ProbePeer(t.Context(), a.Addr); v != shard.Reachable {
		t.Errorf("probing: %s", v)
	}
	do(t, a, "SCRIPT", "KILL")
	<-done
	realserver.Eventually(t, patience, "the script has ended", func() error { return n.TryWrite(t.Context()) })
}

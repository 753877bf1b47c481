package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/redis"
)

func start(tb testing.TB, s *redis.Store, name string, timeout time.Duration) lease.Session {
	tb.Helper()
	n := newSession(name, timeout)
	if _, err := s.StartSession(context.Background(), n); err != nil {
		tb.Fatalf("StartSession: %v", err)
	}
	return n
}

func acquire(ctx context.Context, s *redis.Store, id lease.ID, session string) (lease.Lease, error) {
	l, err := s.Get(ctx, id)
	if err != nil {
		return l, err
	}
	return s.Acquire(ctx, lease.Expectation{Lease: id, Session: session, Seen: l.Seen()})
}

func TestHostileKeys(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	s := open(t, server.URL(), "")
	a := start(t, s, "a\r\n\x00", time.Hour)
	ids := []lease.ID{
		{Space: "a", Key: "b:c"}, {Space: "a:b", Key: "c"}, {Space: "1:a", Key: "b"}, {Space: "", Key: "x"}, {Space: "x", Key: ""},
		{Space: "}:s", Key: "{"}, {Space: "sp\r\nSET x y", Key: "\x00\xff\xfe"}, {Space: "a", Key: "'\"]]--"}, {Space: "a", Key: "%d%s\\"},
	}
	for _, id := range ids {
		l, err := acquire(t.Context(), s, id, a.ID)
		if err != nil || l.ID != id || l.Holder != a.Instance {
			t.Errorf("Acquire(%q) = %+v, %v", id, l, err)
		}
	}
	seen := map[string]bool{}
	for _, id := range ids {
		ls, err := s.List(t.Context(), id.Space, "", 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range ls {
			seen[fmt.Sprintf("%q", l.ID)] = true
		}
	}
	// The empty key is greater than no key, so that no list shows it.
	if len(seen) != len(ids)-1 {
		t.Errorf("lists show %d leases, want %d: %v", len(seen), len(ids)-1, seen)
	}
	if err := s.EndSession(t.Context(), a.ID, "done"); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if l, err := s.Get(t.Context(), id); err != nil || !l.Free() || l.Session != "" {
			t.Errorf("after the end %q is %+v, %v", id, l, err)
		}
	}
}

func TestFlush(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	s := open(t, server.URL(), "")
	a := start(t, s, "a", time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	flushes := 0
	wg.Go(func() {
		for ctx.Err() == nil {
			if _, err := server.Do("SCRIPT", "FLUSH"); err != nil {
				t.Errorf("SCRIPT FLUSH: %v", err)
			}
			flushes++
		}
	})
	id := lease.ID{Space: "role", Key: "r"}
	for i := range 300 {
		r, err := s.RenewSession(t.Context(), a.ID)
		if err != nil || r.Seq != int64(i+2) {
			t.Fatalf("renewal %d = %+v, %v: lost or done twice", i, r, err)
		}
		l, err := acquire(t.Context(), s, id, a.ID)
		if err == nil {
			err = s.Release(t.Context(), lease.ReleaseRequest{Lease: id, Session: a.ID, Term: l.Term})
		}
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	cancel()
	wg.Wait()
	if flushes == 0 {
		t.Error("nothing was flushed")
	}

	// The next session notices that all was deleted, and a new connection does not take that back.
	runID, err := server.Do("GET", s.Root()+"server")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Do("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	b := start(t, s, "b", time.Hour)
	if err := s.Arrive(t.Context(), runID, 24*time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := acquire(t.Context(), s, id, b.ID); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("Acquire within T after FLUSHALL: %v, want ErrUnavailable", err)
	}
}

func TestPausedServer(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	s := open(t, server.URL(), "")
	a := start(t, s, "a", time.Hour)
	if _, err := s.RenewSession(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	watching := make(chan error, 1)
	ready := make(chan lease.Change, 10)
	go func() { watching <- s.Watch(t.Context(), func(c lease.Change) { ready <- c }) }()
	<-ready

	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	_, err := s.RenewSession(ctx, a.ID)
	cancel()
	if !errors.Is(err, lease.ErrUnknown) {
		t.Errorf("RenewSession on a paused server: %v, want ErrUnknown", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Hour)
	stop := time.AfterFunc(100*time.Millisecond, cancel)
	got := make(chan error, 1)
	go func() { _, err := s.Get(ctx, lease.ID{Space: "role", Key: "r"}); got <- err }()
	select {
	case err := <-got:
		if !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("Get, cancelled after 100ms: %v, want ErrUnavailable", err)
		}
	case <-time.After(ample):
		t.Error("Get, cancelled after 100ms, goes on")
	}
	stop.Stop()
	select {
	case err := <-watching:
		if !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("Watch on a paused server: %v, want ErrUnavailable", err)
		}
	case <-time.After(ample):
		t.Error("Watch does not notice that its connection is dead")
	}
	server.Resume()
	realserver.Eventually(t, ample, "renewal after the pause", func() error {
		_, err := s.RenewSession(t.Context(), a.ID)
		return err
	})
}

func TestServerGone(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	s := open(t, server.URL(), "")
	a := start(t, s, "a", time.Hour)
	watching := make(chan error, 1)
	ready := make(chan lease.Change, 10)
	go func() { watching <- s.Watch(t.Context(), func(c lease.Change) { ready <- c }) }()
	<-ready
	server.Kill()
	if err := <-watching; !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("Watch after the server's end: %v, want ErrUnavailable", err)
	}
	// The first call may have been written to the dying connection.
	_, _ = s.RenewSession(t.Context(), a.ID)
	if _, err := s.RenewSession(t.Context(), a.ID); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("RenewSession without a server: %v, want ErrUnavailable", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.RenewSession(t.Context(), a.ID); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("RenewSession after Close: %v, want ErrUnavailable", err)
	}
}

// A full server keeps what is held and takes back what is given up.
func TestOutOfMemory(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	s := open(t, server.URL(), "")
	a := start(t, s, "a", time.Hour)
	one, two := lease.ID{Space: "role", Key: "one"}, lease.ID{Space: "role", Key: "two"}
	l, err := acquire(t.Context(), s, one, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Do("CONFIG", "SET", "maxmemory", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RenewSession(t.Context(), a.ID); err != nil {
		t.Errorf("RenewSession without memory: %v", err)
	}
	before := everything(t, server)
	if _, err := acquire(t.Context(), s, two, a.ID); !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "maxmemory") {
		t.Errorf("Acquire without memory: %v, want ErrUnavailable and what to do", err)
	}
	if _, err := s.StartSession(t.Context(), newSession("b", time.Hour)); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("StartSession without memory: %v, want ErrUnavailable", err)
	}
	if diff := cmp.Diff(before, everything(t, server)); diff != "" {
		t.Errorf("refused calls left something:\n%s", diff)
	}
	if err := s.Release(t.Context(), lease.ReleaseRequest{Lease: one, Session: a.ID, Term: l.Term}); err != nil {
		t.Errorf("Release without memory: %v", err)
	}
	if err := s.EndSession(t.Context(), a.ID, ""); err != nil {
		t.Errorf("EndSession without memory: %v", err)
	}
	if es, err := s.Read(t.Context(), history.Query{}); err != nil || len(es) != 2 {
		t.Errorf("the history has %d events, %v; want the acquisition and the release", len(es), err)
	}
}

// A full server that was started again, or that took over, still accepts the new connections of those who hold.
func TestOutOfMemoryAfterRestart(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{AppendOnly: true})
	s := open(t, server.URL(), "")
	a := start(t, s, "a", time.Hour)
	l, err := acquire(t.Context(), s, contended, a.ID)
	if err != nil {
		t.Fatal(err)
	}
	server.Kill()
	server.Start(t)
	if _, err := server.Do("CONFIG", "SET", "maxmemory", "1"); err != nil {
		t.Fatal(err)
	}
	// The first call may have been written to the connection that died.
	_, _ = s.RenewSession(t.Context(), a.ID)
	if _, err := s.RenewSession(t.Context(), a.ID); err != nil {
		t.Errorf("RenewSession on a full server after its restart: %v", err)
	}
	if err := s.Release(t.Context(), lease.ReleaseRequest{Lease: contended, Session: a.ID, Term: l.Term}); err != nil {
		t.Errorf("Release on a full server after its restart: %v", err)
	}
}

// everything is a digest of all that the server has.
func everything(tb testing.TB, server *realserver.RedisServer) string {
	tb.Helper()
	digest, err := server.Do("EVAL", "local all = {} for _, k in ipairs(redis.call('KEYS', '*')) do all[#all+1] = k .. ' ' .. redis.sha1hex(redis.call('DUMP', k)) end table.sort(all) return table.concat(all, '\\n')", "0")
	if err != nil {
		tb.Fatal(err)
	}
	return digest
}

// A renewal and a takeover meet at the deadline: never do both succeed.
func TestRenewAgainstTakeover(t *testing.T) {
	const rounds, timeout = 1500, time.Minute
	server := realserver.Redis(t, realserver.RedisOptions{})
	s, other := open(t, server.URL(), ""), open(t, server.URL(), "")
	var skew time.Duration
	for _, h := range []*redis.Store{s, other} {
		h.SetSkew(func() time.Duration { return skew })
	}
	id := lease.ID{Space: "role", Key: "r"}
	renewed, taken := 0, 0
	early := time.Millisecond // how long before the deadline they set out, about what the calls take
	for i := range rounds {
		a := start(t, s, "a", timeout)
		held, err := acquire(t.Context(), s, id, a.ID)
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		b := start(t, s, "b", time.Hour)
		skew += timeout - rand.N(early)
		var wg sync.WaitGroup
		var renewal, takeover error
		wg.Go(func() { _, renewal = s.RenewSession(t.Context(), a.ID) })
		wg.Go(func() {
			_, takeover = other.Acquire(t.Context(), lease.Expectation{Lease: id, Session: b.ID, Seen: held.Seen()})
		})
		wg.Wait()
		switch {
		case renewal == nil && takeover == nil:
			t.Fatalf("round %d: the session was renewed and its lease was taken", i)
		case renewal == nil:
			renewed++
		case takeover == nil:
			taken++
		}
		// So that now the one and now the other comes in time, on whatever machine.
		if early = early * 11 / 10; renewal == nil {
			early = max(early*8/10, 10*time.Microsecond)
		}
		for _, session := range []string{a.ID, b.ID} {
			if err := s.EndSession(t.Context(), session, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	if renewed == 0 || taken == 0 {
		t.Errorf("%d renewals and %d takeovers: the two never met", renewed, taken)
	}
	t.Logf("%d renewed, %d taken, %d neither", renewed, taken, rounds-renewed-taken)
}

func TestEndOfManyLeases(t *testing.T) {
	const leases = 5000
	server := realserver.Redis(t, realserver.RedisOptions{})
	s := open(t, server.URL(), "")
	a := start(t, s, "a", time.Hour)
	hold(t, s, a.ID, leases)
	b := start(t, s, "b", time.Hour)
	ended := make(chan error, 1)
	go func() { ended <- s.EndSession(t.Context(), a.ID, "done") }()
	worst, calls := time.Duration(0), 0
	for done := false; !done; calls++ {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		default:
		}
		began := time.Now()
		if _, err := s.Get(t.Context(), lease.ID{Space: "role", Key: b.ID}); err != nil {
			t.Fatal(err)
		}
		worst = max(worst, time.Since(began))
	}
	t.Logf("another client's worst of %d calls meanwhile: %v", calls, worst)
	if calls < 3 {
		t.Errorf("another client had %d calls answered while the session ended: it was shut out", calls)
	}
	for after, n := "", 0; ; {
		ls, err := s.List(t.Context(), "role", after, lease.MaxList)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range ls {
			if l.Session != "" || l.Term == 0 {
				t.Fatalf("after the end a lease is %+v", l)
			}
			after, n = l.Key, n+1
		}
		if len(ls) == 0 {
			if n != leases {
				t.Errorf("%d leases are listed, want %d", n, leases)
			}
			return
		}
	}
}

// hold takes many leases.
func hold(tb testing.TB, s *redis.Store, session string, n int) {
	tb.Helper()
	var wg sync.WaitGroup
	for part := range 8 {
		wg.Go(func() {
			for i := part; i < n; i += 8 {
				_, err := s.Acquire(context.Background(), lease.Expectation{Lease: lease.ID{Space: "role", Key: fmt.Sprintf("k%07d", i)}, Session: session})
				if err != nil {
					tb.Errorf("Acquire: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

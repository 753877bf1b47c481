package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/internal/testkit/sableplain"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/redis"
)

func plainSession(tb testing.TB, s store.Store, name string, timeout time.Duration) lease.Session {
	tb.Helper()
	n := newSession(name, timeout)
	n.Timing.Interval = max(time.Second, n.Timing.Interval)
	r, err := s.StartSession(context.Background(), n)
	if err != nil {
		tb.Fatal(err)
	}
	n.Seq = r.Seq
	return n
}

func plainClaim(ctx context.Context, s store.Store, id lease.ID, session string) (lease.Lease, error) {
	l, err := s.Get(ctx, id)
	if err != nil {
		return l, err
	}
	return s.Acquire(ctx, lease.Expectation{Lease: id, Session: session, Seen: l.Seen()})
}

var roleR = lease.ID{Space: "role", Key: "r"}

// Two who meet between looking and taking: one of them wins, by WATCH alone.
func TestPlainTakersMeet(t *testing.T) {
	for name, c := range map[string]struct {
		broken bool
		want   int
	}{"as it is": {false, 1}, "a server without WATCH": {true, 2}} {
		t.Run(name, func(t *testing.T) {
			s, prefix := startSable(t), prefixOf(t)
			if c.broken {
				s.IgnoreWatch()
			}
			var claims []func() error
			for i := range 2 {
				st := s.open(t, prefix)
				me := plainSession(t, st, fmt.Sprint("c", i), time.Minute)
				claims = append(claims, func() error {
					_, err := st.Acquire(t.Context(), lease.Expectation{Lease: roleR, Session: me.ID})
					return err
				})
			}
			// Nobody goes on before both have looked.
			var mu sync.Mutex
			both, arrived := make(chan struct{}), 0
			s.Before(func(args []string) {
				if args[0] != "MULTI" {
					return
				}
				mu.Lock()
				if arrived++; arrived == 2 {
					close(both)
				}
				mu.Unlock()
				<-both
			})
			var wg sync.WaitGroup
			won := 0
			for _, claim := range claims {
				wg.Go(func() {
					err := claim()
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						won++
					case !errors.Is(err, lease.ErrHeld):
						t.Errorf("Acquire: %v", err)
					}
				})
			}
			wg.Wait()
			if won != c.want {
				t.Errorf("%d won, want %d", won, c.want)
			}
		})
	}
}

// A session that lapses between the look and the renewal stays lapsed, even on
// a server whose WATCH does not mind that a key expires.
func TestPlainRenewalComesTooLate(t *testing.T) {
	s, prefix := startSable(t), prefixOf(t)
	s.IgnoreWatch()
	st := s.open(t, prefix)
	me := plainSession(t, st, "a", time.Minute)
	var once sync.Once
	s.Before(func(args []string) {
		if args[0] == "MULTI" {
			once.Do(func() { s.step(t, prefix, time.Hour) })
		}
	})
	if _, err := st.RenewSession(t.Context(), me.ID); !errors.Is(err, lease.ErrLapsed) {
		t.Errorf("RenewSession: %v, want ErrLapsed", err)
	}
	if got, err := s.real.Do("EXISTS", "{"+prefix+"}:alive:"+me.ID); got != "0" || err != nil {
		t.Errorf("the lapsed session lives again: %s, %v", got, err)
	}
}

// What was sent and not answered may have been done, and what was not sent was not.
func TestPlainUnknownOutcome(t *testing.T) {
	for _, c := range []struct {
		at   string
		want error
	}{{"WATCH", lease.ErrUnavailable}, {"EXEC", lease.ErrUnknown}} {
		t.Run(c.at, func(t *testing.T) {
			s, prefix := startSable(t), prefixOf(t)
			st := s.open(t, prefix)
			me := plainSession(t, st, "a", time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), ample)
			defer cancel()
			hold := make(chan struct{})
			s.Before(func(args []string) {
				if args[0] == c.at {
					cancel()
					<-hold
				}
			})
			_, err := st.Acquire(ctx, lease.Expectation{Lease: roleR, Session: me.ID})
			if !errors.Is(err, c.want) {
				t.Errorf("Acquire that hangs at %s: %v, want %v", c.at, err, c.want)
			}
			close(hold)
			s.Before(nil)
			realserver.Eventually(t, time.Minute, "the store answers again", func() error {
				_, err := st.Get(t.Context(), roleR)
				return err
			})
		})
	}
}

// A server that may have lost something gives nothing away for one T: one that was
// killed, and one to which a connection broke.
func TestPlainServerMayHaveForgotten(t *testing.T) {
	for name, harm := range map[string]func(s sable){
		"restarted":         func(s sable) { s.real.Kill(); s.real.Start(t) },
		"connection broken": func(s sable) { s.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			s, prefix := startSable(t), prefixOf(t)
			st := s.open(t, prefix)
			old := plainSession(t, st, "old", time.Minute)
			before, err := plainClaim(t.Context(), st, roleR, old.ID)
			if err != nil {
				t.Fatal(err)
			}
			harm(s)
			var heir lease.Session
			realserver.Eventually(t, time.Minute, "the store answers again", func() error {
				heir = lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("heir", ""), Timing: old.Timing}
				_, err := st.StartSession(t.Context(), heir)
				return err
			})
			if err := st.EndSession(t.Context(), old.ID, "gone"); err != nil {
				t.Fatal(err)
			}
			_, err = plainClaim(t.Context(), st, roleR, heir.ID)
			if !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "forgotten") {
				t.Errorf("Acquire at once: %v, want ErrUnavailable and why", err)
			}
			s.step(t, prefix, 62*time.Second)
			late := plainSession(t, st, "late", time.Minute)
			l, err := plainClaim(t.Context(), st, roleR, late.ID)
			if err != nil || l.Term <= before.Term {
				t.Errorf("Acquire after T: term %d, was %d, %v", l.Term, before.Term, err)
			}
		})
	}
}

// A call that waits for a command ends when the server dies.
func TestPlainNextOfADeadServer(t *testing.T) {
	t.Parallel()
	s, prefix := startSable(t), prefixOf(t)
	c := s.open(t, prefix).(store.Shards).Commands()
	node := strings.Repeat("ab", 20)
	begun := make(chan struct{})
	var once sync.Once
	s.Before(func(args []string) {
		if args[0] == "BRPOP" {
			once.Do(func() { close(begun) })
		}
	})
	failed := make(chan error, 1)
	go func() { _, err := c.Next(t.Context(), node, shard.MaxWait); failed <- err }()
	<-begun
	s.real.Pause()
	defer s.real.Resume()
	if err := <-failed; !errors.Is(err, lease.ErrUnknown) && !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("Next: %v, want ErrUnknown or ErrUnavailable", err)
	}
}

func TestPlainUnsafeTimings(t *testing.T) {
	s, prefix := startSable(t), prefixOf(t)
	st := s.open(t, prefix)
	for _, timing := range []lease.Timing{
		{Interval: 200 * time.Millisecond, Timeout: time.Second}, {Interval: 999 * time.Millisecond, Timeout: 10 * time.Second},
		{Interval: time.Second, Timeout: 2 * time.Second}, {Interval: 2 * time.Second, Timeout: 3 * time.Second}, {},
	} {
		n := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("a", ""), Timing: timing}
		_, err := st.StartSession(t.Context(), n)
		if !errors.Is(err, lease.ErrUnsafeTiming) {
			t.Errorf("StartSession with %+v: %v, want ErrUnsafeTiming", timing, err)
			continue
		}
		_, safe, _ := strings.Cut(err.Error(), "use ")
		var interval, timeout string
		if _, err := fmt.Sscanf(safe, "%s and %s or more", &interval, &timeout); err != nil {
			t.Fatalf("%v does not say what would be safe", safe)
		}
		n.Timing.Interval, _ = time.ParseDuration(interval)
		n.Timing.Timeout, _ = time.ParseDuration(timeout)
		if _, err := st.StartSession(t.Context(), n); err != nil {
			t.Errorf("StartSession with what is called safe, %+v: %v", n.Timing, err)
		}
	}
}

// In real time: what remains is never shown as less than it is, the session lives as
// long as its holder trusts it, and no longer than two seconds more.
func TestPlainRealTime(t *testing.T) {
	t.Parallel()
	s, prefix := startSable(t), prefixOf(t)
	st, clock := s.open(t, prefix), lease.BootClock()
	me := plainSession(t, st, "a", 10*time.Second)
	heir := plainSession(t, s.open(t, prefix), "heir", time.Minute)
	if _, err := plainClaim(t.Context(), st, roleR, me.ID); err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Second)
	sent := clock.Now()
	if _, err := st.RenewSession(t.Context(), me.ID); err != nil {
		t.Fatal(err)
	}
	trust := lease.NewTrust(sent, me.Timing)
	var patience lease.TakeoverPolicy
	for {
		l, err := st.Get(t.Context(), roleR)
		if err != nil {
			t.Fatal(err)
		}
		now := clock.Now()
		if least := sent + me.Timing.Timeout - now; l.Remaining < least {
			t.Errorf("%v are shown to remain, and %v do", l.Remaining, least)
		}
		patience.Observe(l, now, false, me.Timing.Timeout)
		if now < patience.Due() {
			<-time.After(min(100*time.Millisecond, patience.Due()-now))
			continue
		}
		seen, waited := patience.Expectation(now)
		if _, err = st.Acquire(t.Context(), lease.Expectation{Lease: roleR, Session: heir.ID, Seen: seen, Waited: waited}); err == nil {
			break
		} else if !errors.Is(err, lease.ErrHeld) {
			t.Fatal(err)
		}
	}
	if trust.Remaining(clock.Now()) > 0 {
		t.Errorf("the lease was given away %v before the end of its holder's trust", trust.Remaining(clock.Now()))
	}
	if _, err := st.RenewSession(t.Context(), me.ID); !errors.Is(err, lease.ErrLapsed) {
		t.Errorf("RenewSession after the takeover: %v, want ErrLapsed", err)
	}
}

func TestPlainURLs(t *testing.T) {
	for _, url := range []string{
		"redis://h?scripts=maybe", "redis://h?scripts=", "redis://:p@h?scripts=off", "redis://u@h?scripts=off", "redis://h/1?scripts=off",
		"redis+sentinel://h/m?scripts=off",
	} {
		if _, err := redis.Open(t.Context(), redis.Config{URL: url}); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("Open(%q): %v, want ErrInvalid", url, err)
		}
	}
}

// One prefix is used with scripts or without, never both.
func TestPlainPrefixIsNotShared(t *testing.T) {
	s := startSable(t)
	s.open(t, "plain")
	if _, err := redis.Open(t.Context(), redis.Config{URL: s.real.URL() + "?prefix=plain"}); !errors.Is(err, store.ErrSchema) {
		t.Errorf("Open with scripts: %v, want ErrSchema", err)
	}
	openFresh(t, s.real.URL(), "scripts")
	if _, err := redis.Open(t.Context(), redis.Config{URL: s.url("scripts")}); !errors.Is(err, store.ErrSchema) {
		t.Errorf("Open without scripts: %v, want ErrSchema", err)
	}
}

// Something that is no such server, or talks without end, is an error and no more.
func TestPlainNoServer(t *testing.T) {
	for name, answer := range map[string]string{
		"http": "HTTP/1.1 400 Bad Request\r\n\r\n", "huge text": "$999999999999\r\n", "huge list": "*999999999\r\n", "deep": strings.Repeat("*1\r\n", 1000),
		"endless line": "+" + strings.Repeat("x", 1<<20), "negative": "*-7\r\n", "nothing": "", "empty line": "\r\n", "error": "-NOAUTH Authentication required.\r\n",
		"too little": "+OK\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			go func() {
				for {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Read(make([]byte, 4096))
					_, _ = conn.Write([]byte(answer))
					_ = conn.Close()
				}
			}()
			if _, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + ln.Addr().String() + "?scripts=off"}); !errors.Is(err, lease.ErrUnavailable) {
				t.Errorf("Open: %v, want ErrUnavailable", err)
			}
		})
	}
}

// The keys of the specification, byte for byte, as others would read them.
func TestPlainKeys(t *testing.T) {
	s, prefix := startSable(t), prefixOf(t)
	st := s.open(t, prefix).(store.Shards)
	reg, root := st.Registry(), "{"+prefix+"}:"
	a, b := strings.Repeat("a1", 20), strings.Repeat("b2", 20)
	record := shard.Record{
		Shard: "orders", ID: a, Address: "10.0.0.1:6379", Role: shard.Primary, Txn: 42, Instance: "i", Engine: "redis",
		Interval: time.Second, Timeout: 5 * time.Second,
	}
	if _, err := reg.Report(t.Context(), record, true); err != nil {
		t.Fatal(err)
	}
	row := shard.Row{Name: "orders", Epoch: 1, Primary: a, PrimaryEpoch: 1, Members: []shard.Member{{ID: a, Address: "x:1"}, {ID: b, Address: "y:1"}}}
	command := shard.Command{ID: "c1", Shard: "orders", Node: b, Epoch: 1, Order: shard.OrderFence, Within: time.Minute}
	if _, err := reg.UpdateRow(t.Context(), shard.RowUpdate{Row: row, Commands: []shard.Command{command}}); err != nil {
		t.Fatal(err)
	}
	if err := reg.Lock(t.Context(), shard.Lock{Shard: "orders", Primary: a, Value: "me:1"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"HGET " + a + " node_id", a}, {"HGET " + a + " node_address", "10.0.0.1:6379"}, {"HGET " + a + " role", "primary"},
		{"HGET " + a + " last_txn_id", "42"}, {"HGET " + a + " primary_node_id", ""},
		{"TYPE " + a + "_replicas", "set"}, {"SCARD " + a + "_replicas", "1"}, {"SISMEMBER " + a + "_replicas " + b, "1"},
		{"GET " + a + "_FAILOVER", "me:1"},
		{"TYPE " + b + "_queue", "list"}, {"LLEN " + b + "_queue", "1"}, {"TYPE shard:orders", "hash"},
	} {
		args := strings.Fields(c.args)
		args[1] = root + args[1]
		if got, err := s.real.Do(args...); got != c.want || err != nil {
			t.Errorf("%s = %q, %v; want %q", c.args, got, err, c.want)
		}
	}
	ttl, err := s.real.Do("TTL", root+a+"_FAILOVER")
	if left, _ := strconv.Atoi(ttl); left < 20 || left > 60 || err != nil {
		t.Errorf("the lock expires in %s s, %v; want 60", ttl, err)
	}
	odd := shard.Row{Name: "odd", Paused: &shard.Pause{By: "x", Since: time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)}}
	if _, err := reg.UpdateRow(t.Context(), shard.RowUpdate{Row: odd}); !errors.Is(err, lease.ErrInvalid) {
		t.Errorf("Decide with a time that cannot be written: %v, want ErrInvalid", err)
	}
	// Retired: everything of the node is gone but what the row says.
	view, err := reg.ReadView(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	next := view.Row
	next.Primary = b
	if _, err := reg.UpdateRow(t.Context(), shard.RowUpdate{Row: next, Drop: []string{a}}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{a, a + "_replicas", a + "_age", a + "_queue"} {
		if got, err := s.real.Do("EXISTS", root+key); got != "0" || err != nil {
			t.Errorf("%s is still there: %s, %v", key, got, err)
		}
	}
}

func TestPlainInspect(t *testing.T) {
	s, prefix := startSable(t), prefixOf(t)
	info, err := s.open(t, prefix).Inspect(t.Context())
	if err != nil || info.Kind != "redis" || !strings.HasPrefix(info.Server, "SableDB") || info.Notifies || len(info.Warnings) != 2 || !strings.Contains(info.Location, "scripts=off") {
		t.Errorf("Inspect = %+v, %v", info, err)
	}
	direct, err := redis.Open(t.Context(), redis.Config{URL: s.real.URL() + "?scripts=off&prefix=d"})
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close()
	info, err = direct.Inspect(t.Context())
	if err != nil || !strings.HasPrefix(info.Server, "Redis") || !strings.Contains(strings.Join(info.Warnings, "\n"), "leave scripts=off out") {
		t.Errorf("Inspect of a Redis = %+v, %v", info, err)
	}
	quiet, err := redis.Open(t.Context(), redis.Config{URL: s.url("none"), NoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	if info, err := quiet.Inspect(t.Context()); err != nil || info.Schema != 0 || info.Wanted != 1 {
		t.Errorf("Inspect of an empty store = %+v, %v", info, err)
	}
	if from, to, err := quiet.Migrate(t.Context()); from != 0 || to != 1 || err != nil {
		t.Errorf("Migrate = %d, %d, %v", from, to, err)
	}
}

// A store with scripts asks for what SableDB lacks, which the stand-in notices.
func TestPlainStandInCatchesScripts(t *testing.T) {
	server, err := sableplain.Start(realserver.Redis(t, realserver.RedisOptions{}).Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := redis.Open(t.Context(), redis.Config{URL: "redis://" + server.Addr()}); err == nil || len(server.Refused()) == 0 {
		t.Errorf("a store with scripts was opened on a server without: %v; refused: %q", err, server.Refused())
	}
}

// The history keeps its length, and its ids go on.
func TestPlainHistoryIsBounded(t *testing.T) {
	s, prefix := startSable(t), prefixOf(t)
	st, err := redis.Open(t.Context(), redis.Config{URL: s.url(prefix), KeepEvents: 50})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for i := range 200 {
		if err := st.Append(t.Context(), history.Event{Part: "p", Subject: "s", Term: int64(i)}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := st.Read(t.Context(), history.Query{})
	if err != nil || len(all) < 50 || len(all) > 80 {
		t.Fatalf("%d events are kept, %v; want 50 to 80", len(all), err)
	}
	for i, e := range all {
		if e.Term != int64(200-len(all)+i) || e.ID != all[0].ID+int64(i) {
			t.Fatalf("event %d of %d is %+v, the first was %d", i, len(all), e, all[0].ID)
		}
	}
}

// A lock that changes hands between the look and the deletion is not deleted.
func TestPlainUnlockComparesAndDeletes(t *testing.T) {
	for name, c := range map[string]struct {
		broken bool
		want   string
	}{"as it is": {false, "another:1"}, "a server without WATCH": {true, ""}} {
		t.Run(name, func(t *testing.T) {
			s, prefix := startSable(t), prefixOf(t)
			if c.broken {
				s.IgnoreWatch()
			}
			reg := s.open(t, prefix).(store.Shards).Registry()
			l := shard.Lock{Shard: "orders", Primary: strings.Repeat("a1", 20), Value: "me:1"}
			if err := reg.Lock(t.Context(), l); err != nil {
				t.Fatal(err)
			}
			key := "{" + prefix + "}:" + l.Primary + "_FAILOVER"
			var once sync.Once
			s.Before(func(args []string) {
				if args[0] == "MULTI" {
					once.Do(func() { _, _ = s.real.Do("SET", key, "another:1", "EX", "60") })
				}
			})
			l.Instead = "me:1"
			if err := reg.Unlock(t.Context(), l); err != nil {
				t.Errorf("Unlock: %v", err)
			}
			if got, err := s.real.Do("GET", key); got != c.want || err != nil {
				t.Errorf("the lock is %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// What is shown of a lease that is refused stood so at one moment: never the session of
// before with its end of after.
func TestPlainRefusalIsOneMoment(t *testing.T) {
	s, prefix := startSable(t), prefixOf(t)
	st, other := s.open(t, prefix), s.open(t, prefix)
	a, b, c := plainSession(t, st, "a", time.Minute), plainSession(t, st, "b", time.Minute), plainSession(t, st, "c", time.Minute)
	if _, err := plainClaim(t.Context(), st, roleR, a.ID); err != nil {
		t.Fatal(err)
	}
	seen, err := st.Get(t.Context(), roleR)
	if err != nil {
		t.Fatal(err)
	}
	// While c looks, b takes the lease from a.
	var begun atomic.Bool
	rowOfA := "{" + prefix + "}:session:" + a.ID
	s.Before(func(args []string) {
		if args[0] == "GET" && args[1] == rowOfA && begun.CompareAndSwap(false, true) {
			if _, err := other.Acquire(t.Context(), lease.Expectation{Lease: roleR, Session: b.ID, Seen: seen.Seen(), Waited: true}); err != nil {
				t.Errorf("Acquire by b: %v", err)
			}
		}
	})
	got, err := st.Acquire(t.Context(), lease.Expectation{Lease: roleR, Session: c.ID})
	if !errors.Is(err, lease.ErrHeld) || got.Session != b.ID || got.Ended {
		t.Errorf("Acquire by c: %+v, %v; want ErrHeld and b", got, err)
	}
}

func TestPlainTLS(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{TLS: true})
	st, err := redis.Open(t.Context(), redis.Config{URL: server.URL() + "&scripts=off"})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	plainSession(t, st, "a", time.Minute)
}

func TestPlainReplicaIsReadOnly(t *testing.T) {
	s := startSable(t)
	s.open(t, "understudy")
	replica := realserver.Redis(t, realserver.RedisOptions{ReplicaOf: s.real})
	var st store.Store
	realserver.Eventually(t, time.Minute, "the replica has the schema", func() (err error) {
		if st, err = redis.Open(t.Context(), redis.Config{URL: replica.URL() + "?scripts=off"}); err == nil {
			t.Cleanup(func() { _ = st.Close() })
		}
		return err
	})
	_, err := st.StartSession(t.Context(), newSession("a", time.Minute))
	if !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "read-only replica") {
		t.Errorf("StartSession on a replica: %v, want ErrUnavailable and what to do", err)
	}
	info, err := st.Inspect(t.Context())
	if err != nil || !strings.Contains(strings.Join(info.Warnings, "\n"), "is a replica") {
		t.Errorf("Inspect of a replica: %+v, %v", info, err)
	}
}

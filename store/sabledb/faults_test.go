package sabledb_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/history"
	stand "github.com/understudy-ha/understudy/internal/testkit/sabledb"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/wire"
	"github.com/understudy-ha/understudy/store/sabledb"
)

var roleR = lease.ID{Space: "role", Key: "r"}

func startSession(t *testing.T, s *sabledb.Store, timeout time.Duration) lease.Session {
	t.Helper()
	n := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("x", ""), Timing: lease.Timing{Interval: time.Second, Timeout: timeout}}
	if _, err := s.StartSession(context.Background(), n); err != nil {
		t.Fatal(err)
	}
	return n
}

func claim(ctx context.Context, s *sabledb.Store, session string) (lease.Lease, error) {
	l, err := s.Get(ctx, roleR)
	if err != nil {
		return l, err
	}
	return s.Acquire(ctx, lease.Expectation{Lease: roleR, Session: session, Seen: l.Seen()})
}

// standIn skips a test that needs the stand-in's hooks.
func standIn(t *testing.T) server {
	t.Helper()
	if stand.Real() != "" {
		t.Skip("it needs the stand-in")
	}
	return startServer(t)
}

// Two clients that meet between looking and taking: one of them wins, by LOCK alone.
func TestTakersMeet(t *testing.T) {
	for name, c := range map[string]struct {
		broken bool
		want   int
	}{"as it is": {false, 1}, "a server without LOCK": {true, 2}} {
		t.Run(name, func(t *testing.T) {
			s := standIn(t)
			var claims []func() error
			for range 2 {
				st := s.open(t)
				me := startSession(t, st, time.Minute)
				claims = append(claims, func() error {
					_, err := st.Acquire(t.Context(), lease.Expectation{Lease: roleR, Session: me.ID})
					return err
				})
			}
			if c.broken {
				s.IgnoreLocks()
			}
			// Neither continues before both have looked, or one cannot.
			both, arrived := make(chan struct{}), make(chan struct{}, 2)
			go func() {
				defer close(both)
				<-arrived
				select {
				case <-arrived:
				case <-time.After(200 * time.Millisecond):
				}
			}()
			s.Before(func(args []string) {
				if args[0] == "MULTI" {
					select {
					case arrived <- struct{}{}:
					default:
					}
					<-both
				}
			})
			var wg sync.WaitGroup
			var mu sync.Mutex
			won := 0
			for _, claim := range claims {
				wg.Go(func() {
					err := claim()
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						won++
					} else if !errors.Is(err, lease.ErrHeld) {
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

// What was sent and not answered may have been done, and what was not sent was not.
func TestUnknownOutcome(t *testing.T) {
	for _, c := range []struct {
		at   string
		want error
	}{{"PING", lease.ErrUnavailable}, {"LOCK", lease.ErrUnavailable}, {"EXEC", lease.ErrUnknown}} {
		t.Run(c.at, func(t *testing.T) {
			s := standIn(t)
			st := s.open(t)
			me := startSession(t, st, time.Minute)
			ctx, cancel := context.WithCancel(t.Context())
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
			// A caller that gave up is no reason to suspect the server.
			if _, err := st.Acquire(t.Context(), lease.Expectation{Lease: roleR, Session: me.ID, Seen: lease.Lease{}.Seen()}); err != nil && !errors.Is(err, lease.ErrHeld) {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// A server that may have lost something gives nothing away for one T: one that was killed, and one to which a connection broke.
func TestServerMayHaveForgotten(t *testing.T) {
	for name, harm := range map[string]func(s server) error{
		"restarted":         func(s server) error { s.Kill(); return s.Run() },
		"connection broken": func(s server) error { s.Cut(); return nil },
		"another one at its address, while connections to the former stay": func(s server) error {
			s.InfoText("role:primary\nnode_id:beef\n")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			if stand.Real() != "" && name != "restarted" {
				t.Skip("it needs the stand-in")
			}
			s := startServer(t)
			st := s.open(t)
			old := startSession(t, st, time.Minute)
			s.Flush()
			before, err := claim(t.Context(), st, old.ID)
			if err != nil {
				t.Fatal(err)
			}
			if err := harm(s); err != nil {
				t.Fatal(err)
			}
			heir := startSession(t, st, time.Minute)
			_ = st.EndSession(t.Context(), old.ID, "gone")
			givesNothingAway(t, st, heir.ID)
			s.step(t, 63*time.Second)
			late := startSession(t, st, time.Minute)
			l, err := claim(t.Context(), st, late.ID)
			if err != nil || l.Term <= before.Term {
				t.Errorf("Acquire after T: term %d, was %d, %v", l.Term, before.Term, err)
			}
		})
	}
}

// A client that hangs within a call holds the lock: the others fail in time and say why, and continue when it ends.
func TestHungHolder(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	st := s.open(t)
	c := wire.New(s.Addr, wire.Config{Timeout: time.Minute})
	replies, err := c.Do(t.Context(), []string{"LOCK", "{" + s.prefix + "}:lock", "1000"})
	if err != nil || replies[0].Err() != nil {
		t.Fatal(replies, err)
	}
	if _, err := st.Get(t.Context(), roleR); !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "holds the store's lock") {
		t.Errorf("Get: %v, want ErrUnavailable and why", err)
	}
	_ = c.Close()
	if _, err := st.Get(t.Context(), roleR); err != nil {
		t.Errorf("after it has ended: %v", err)
	}
}

// A call that waits for a command ends when the server dies.
func TestNextOfADeadServer(t *testing.T) {
	t.Parallel()
	s := standIn(t)
	c := s.open(t).Commands()
	begun := make(chan struct{})
	var once sync.Once
	s.Before(func(args []string) {
		if args[0] == "BRPOP" {
			once.Do(func() { close(begun) })
		}
	})
	failed := make(chan error, 1)
	go func() {
		_, err := c.Next(t.Context(), strings.Repeat("ab", 20), shard.MaxWait)
		failed <- err
	}()
	<-begun
	s.Kill()
	if err := <-failed; !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("Next: %v, want ErrUnavailable", err)
	}
}

// The history is cut to its length, and its numbers continue.
func TestHistoryIsCut(t *testing.T) {
	s := startServer(t)
	st, err := sabledb.Open(t.Context(), sabledb.Config{URL: s.url(), KeepEvents: 20})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for i := range 60 {
		if err := st.Append(t.Context(), history.Event{Part: "p", Subject: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := st.Read(t.Context(), history.Query{})
	if err != nil || len(all) < 20 || len(all) > 38 || all[len(all)-1].Subject != "59" {
		t.Fatalf("%d events, %v", len(all), err)
	}
	for i := range all[1:] {
		if all[i+1].ID != all[i].ID+1 {
			t.Errorf("event %d follows %d", all[i+1].ID, all[i].ID)
		}
	}
}

func TestUnsafeTimings(t *testing.T) {
	st := startServer(t).open(t)
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

func TestURLs(t *testing.T) {
	for _, url := range []string{
		"sabledb://u:p@h", "sabledb://h/1", "sabledb://", "sabledb://h?prefix=a%20b", "sabledb://h?scripts=off", "sabledb://h?cacert=/nowhere", "redis://h", "sabledb://h#x", "sabledb://h:p:1",
	} {
		if _, err := sabledb.Open(t.Context(), sabledb.Config{URL: url}); !errors.Is(err, lease.ErrInvalid) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("Open(%q): %v, want ErrInvalid", url, err)
		}
	}
}

// Something that is not such a server, or talks without end, is an error and no more.
func TestNoServer(t *testing.T) {
	for name, c := range map[string]struct{ answer, says string }{
		"http": {"HTTP/1.1 400 Bad Request\r\n\r\n", ""}, "huge text": {"$999999999999\r\n", ""}, "huge list": {"*999999999\r\n", ""},
		"endless line": {"+" + strings.Repeat("x", 1<<20), ""}, "nothing": {"", ""}, "too little": {"+OK\r\n", "not a SableDB"},
		"a Redis": {"$21\r\nredis_version:7.2.4\r\n\r\n", "use redis://"},
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
					_, _ = conn.Write([]byte(c.answer))
					_ = conn.Close()
				}
			}()
			_, err = sabledb.Open(t.Context(), sabledb.Config{URL: "sabledb://" + ln.Addr().String()})
			if !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Open: %v, want ErrUnavailable and %q", err, c.says)
			}
		})
	}
}

func TestInspect(t *testing.T) {
	s := startServer(t)
	st := s.open(t)
	info, err := st.Inspect(t.Context())
	if err != nil || info.Kind != "sabledb" || !strings.HasPrefix(info.Server, "SableDB, node ") || info.Notifies || len(info.Warnings) != 2 || info.Schema != info.Wanted || info.Location != s.url() {
		t.Errorf("Inspect = %+v, %v", info, err)
	}
	other := server{s.Node, "none"}
	quiet, err := sabledb.Open(t.Context(), sabledb.Config{URL: other.url(), NoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	if info, err = quiet.Inspect(t.Context()); err != nil || info.Schema != 0 {
		t.Errorf("Inspect of an empty store = %+v, %v", info, err)
	}
}

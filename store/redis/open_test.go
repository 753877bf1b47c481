package redis_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/redis"
)

func TestOpenTwelveAtOnce(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), ample)
	defer cancel()
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			s, err := redis.Open(ctx, redis.Config{URL: server.URL()})
			if err != nil {
				t.Errorf("Open: %v", err)
				return
			}
			defer s.Close()
			if from, to, err := s.Migrate(ctx); from != 1 || to != 1 || err != nil {
				t.Errorf("Migrate = %d, %d, %v; want 1, 1", from, to, err)
			}
		})
	}
	wg.Wait()
}

func TestSchema(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	quiet, err := redis.Open(t.Context(), redis.Config{URL: server.URL(), NoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	if info, err := quiet.Inspect(t.Context()); err != nil || info.Schema != 0 {
		t.Errorf("Inspect of an empty database = %+v, %v; want schema 0", info, err)
	}
	if from, to, err := quiet.Migrate(t.Context()); from != 0 || to != 1 || err != nil {
		t.Errorf("Migrate = %d, %d, %v; want 0, 1", from, to, err)
	}
	if _, err := server.Do("SET", "{understudy}:schema", "7"); err != nil {
		t.Fatal(err)
	}
	_, err = redis.Open(t.Context(), redis.Config{URL: server.URL()})
	if !errors.Is(err, store.ErrSchema) || !strings.Contains(err.Error(), "version 7") {
		t.Errorf("Open of a newer schema: %v, want ErrSchema", err)
	}
	if _, err := quiet.StartSession(t.Context(), newSession("a", time.Second)); !errors.Is(err, store.ErrSchema) {
		t.Errorf("StartSession in a newer schema: %v, want ErrSchema", err)
	}
	if info, err := quiet.Inspect(t.Context()); err != nil || info.Schema != 7 || info.Wanted != 1 {
		t.Errorf("Inspect of a newer schema = %+v, %v", info, err)
	}
}

func newSession(name string, timeout time.Duration) lease.Session {
	return lease.Session{
		ID: lease.NewID(), Instance: lease.NewInstance(name, "127.0.0.1:1"),
		Timing: lease.Timing{Interval: timeout / 5, Timeout: timeout},
	}
}

func TestURLs(t *testing.T) {
	for _, url := range []string{
		"http://h", "redis:x", "redis://h:0", "redis://h:port/0", "redis://a,b", "redis://h/x", "redis://h?cacert=x",
		"redis://h?nope=1", "redis+sentinel://h", "rediss://h?cacert=/does/not/exist", "redis://u:s%e@h", "redis://h?prefix=a{b}",
	} {
		if _, err := redis.Open(t.Context(), redis.Config{URL: url}); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("Open(%q): %v, want ErrInvalid", url, err)
		}
	}
	_, err := redis.Open(t.Context(), redis.Config{URL: "redis://user:hunter2/x@h:6379/0"})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error shows the password, or there is none: %v", err)
	}
}

func TestTLSAndPassword(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{TLS: true, Password: "hunter2"})
	s := open(t, server.URL()+"&prefix=x", "")
	if _, err := s.StartSession(t.Context(), newSession("a", time.Minute)); err != nil {
		t.Errorf("StartSession over TLS: %v", err)
	}
	info, err := s.Inspect(t.Context())
	if err != nil || strings.Contains(info.Location, "hunter2") || info.Location != "rediss://"+server.Addr+"/0?prefix=x" {
		t.Errorf("Inspect = %+v, %v", info, err)
	}
	for name, url := range map[string]string{
		"an unknown certificate": "rediss://:hunter2@" + server.Addr,
		"a wrong password":       strings.Replace(server.URL(), "hunter2", "hunter3", 1),
		"no password":            strings.Replace(server.URL(), ":hunter2@", "", 1),
		"no TLS":                 "redis://:hunter2@" + server.Addr,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := redis.Open(ctx, redis.Config{URL: url})
		cancel()
		if !errors.Is(err, lease.ErrUnavailable) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("Open with %s: %v, want ErrUnavailable and no password", name, err)
		}
	}
}

func TestInspectWarns(t *testing.T) {
	master := realserver.Redis(t, realserver.RedisOptions{Args: []string{"--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"}})
	replica := realserver.Redis(t, realserver.RedisOptions{ReplicaOf: master})
	safe := realserver.Redis(t, realserver.RedisOptions{AppendOnly: true})
	s := openFresh(t, master.URL(), "")
	realserver.Eventually(t, ample, "warnings", func() error {
		info, err := s.Inspect(t.Context())
		if err != nil {
			return err
		}
		all := strings.Join(info.Warnings, "\n")
		for _, want := range []string{"appendonly is off", "allkeys-lru", "asynchronous", "as long as the partition lasts; set min-replicas-to-write 1"} {
			if !strings.Contains(all, want) {
				return errors.New("no warning about " + want + " in " + all)
			}
		}
		return nil
	})
	if info, err := openFresh(t, safe.URL(), "").Inspect(t.Context()); err != nil || len(info.Warnings) != 0 {
		t.Errorf("Inspect of a safe server = %+v, %v; want no warnings", info, err)
	}
	r, err := redis.Open(t.Context(), redis.Config{URL: replica.URL(), NoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.StartSession(t.Context(), newSession("a", time.Minute)); !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "read-only replica") {
		t.Errorf("StartSession on a replica: %v, want ErrUnavailable and what to do", err)
	}
}

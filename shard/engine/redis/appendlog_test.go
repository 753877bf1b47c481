package redis_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/redis"
)

// The log only grows, whatever happens to the server's process.
func TestAppendLog(t *testing.T) {
	s := realserver.Redis(t, realserver.RedisOptions{AppendOnly: true})
	e := enginesOf(t, redis.Config{})
	n := at(t, e, s.Addr)
	read := func() shard.AppendLog {
		t.Helper()
		l, err := e.(shard.LogReader).ReadLog(probe(t, n).LogPath)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	last := read()
	grew := func(what string) {
		t.Helper()
		if l := read(); !last.Lacks(l) {
			t.Errorf("%s: %+v after %+v", what, l, last)
		} else {
			last = l
		}
	}
	do(t, s, "SET", "a", "1")
	grew("a write")
	do(t, s, "BGREWRITEAOF")
	until(t, n, "the log is rewritten", func(st shard.State) bool {
		l, err := e.(shard.LogReader).ReadLog(st.LogPath)
		return err == nil && l.File > last.File
	})
	grew("a rewrite")
	do(t, s, "SET", "a", "2")
	grew("a write after it")
	s.Kill()
	s.Start(t)
	if l := read(); l != last {
		t.Errorf("after a restart: %+v, not %+v", l, last)
	}
	do(t, s, "SET", "a", "3")
	grew("a write after a restart")
	do(t, s, "CONFIG", "SET", "appendonly", "no")
	if st := probe(t, n); st.LogPath != "" {
		t.Errorf("a server without a log tells of %s", st.LogPath)
	}
}

func TestReadLog(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "log.2.incr.aof"), []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	reader := enginesOf(t, redis.Config{}).(shard.LogReader)
	for text, want := range map[string]shard.AppendLog{
		"file log.1.base.rdb seq 1 type b\nfile log.1.incr.aof seq 1 type h\nfile log.2.incr.aof seq 2 type i\n": {File: 2, Size: 5},
		"file log.2.incr.aof seq 2 type i\nfile log.1.incr.aof seq 1 type i\n":                                   {File: 2, Size: 5},
		"file log.1.base.rdb seq 1 type b\n":                                                                     {},
		"file log.3.incr.aof seq 3 type i\n":                                                                     {}, // not there
		"file ../log.2.incr.aof seq 2 type i\n":                                                                  {},
		"file log.2.incr.aof seq x type i\nnothing\n":                                                            {},
		"": {},
	} {
		manifest := filepath.Join(dir, "log.manifest")
		if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := reader.ReadLog(manifest)
		if got != want || (err == nil) != (want != shard.AppendLog{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

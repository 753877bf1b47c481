package redis

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/wire"
)

const (
	idA = "8c3b6f2a1d4e5f60718293a4b5c6d7e8f9012345"
	idB = "1f0e2d3c4b5a69788796a5b4c3d2e1f001234567"
	run = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
)

// The texts are written by hand, from the documentation of Redis 6.2 and of Valkey.
func TestParseState(t *testing.T) {
	for name, want := range map[string]shard.State{
		"redis62_primary": {
			Role: shard.Primary, Txn: 5044, Synced: true, Keys: 12, Run: run, PID: 4711, Version: "Redis 6.2.14",
			Lineage: shard.Lineage{ID: idA}, Before: shard.Lineage{ID: idB, End: 420},
			Followers: []shard.Follower{
				{Address: "10.0.0.2:6379", Txn: 5044, Online: true},
				{Address: "[2001:db8::3]:6380", Txn: 0, Lag: 3 * time.Second},
			},
		},
		"redis62_detached": {
			Role: shard.Replica, Txn: 1400, Synced: true, Run: run, PID: 4711, Version: "Redis 6.2.14",
			Lineage: shard.Lineage{ID: idA}, Link: &shard.Upstream{Input: -1},
		},
		"valkey8_primary": {
			Role: shard.Primary, Txn: 98, Synced: true, Keys: 3, Run: run, PID: 77, Version: "Valkey 8.1.1",
			Lineage:   shard.Lineage{ID: idA},
			Followers: []shard.Follower{{Address: "10.0.0.2:6379", Txn: 98, Online: true, Lag: time.Second}},
		},
		"valkey8_copying": {
			Role: shard.Replica, Txn: 0, Loading: true, Run: run, PID: 77, Version: "Valkey 8.1.1", Lineage: shard.Lineage{ID: idB},
			Link: &shard.Upstream{Address: "db1.example:6379", Syncing: true, Input: -1},
		},
		"modern_replica": {
			Role: shard.Replica, Txn: 98, Synced: true, Run: run, PID: 77, Version: "Valkey 9.0.0", Lineage: shard.Lineage{ID: idA},
			Link: &shard.Upstream{Address: "10.0.0.1:6379", Up: true, Input: 2 * time.Second},
		},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseState(string(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

func TestParseStateRefuses(t *testing.T) {
	good := "run_id:" + run + "\nmaster_replid:" + idA + "\nrole:master\nmaster_repl_offset:5\n"
	if _, err := parseState(good); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"nothing":      "",
		"no role":      "run_id:" + run + "\nmaster_replid:" + idA + "\n",
		"other role":   good + "role:sentinel\n",
		"bad offset":   good + "master_repl_offset:x\n",
		"bad follower": good + "slave0:ip=1.2.3.4,port=1,state=online,offset=,lag=0\n",
		"bad keys":     good + "db0:keys=x,expires=0\n",
		"huge number":  good + "process_id:99999999999999999999999\n",
	} {
		if _, err := parseState(text); !errors.Is(err, errInfo) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := parseState(good + "redis_mode:cluster\n"); !errors.Is(err, shard.ErrUnsupported) {
		t.Errorf("cluster mode: %v", err)
	}
}

func TestParseFence(t *testing.T) {
	for _, c := range []struct {
		replicas, lag string
		want          shard.Fence
		needs         int
	}{
		{"0", "10", shard.Open, 0}, {"1", "0", shard.Open, 0}, {"1", "1", shard.Armed, 1}, {"3", "1", shard.Armed, 3}, {"3", "10", shard.Open, 3},
		{closedWith, "1", shard.Closed, 0}, {closedWith, "0", shard.Open, 0},
	} {
		items := []wire.Reply{{Text: "min-replicas-to-write"}, {Text: c.replicas}, {Text: "min-replicas-max-lag"}, {Text: c.lag}}
		if got, needs, err := parseFence(items); err != nil || got != c.want || needs != c.needs {
			t.Errorf("%s, %s: %s with %d, %v", c.replicas, c.lag, got, needs, err)
		}
	}
	if _, _, err := parseFence(nil); !errors.Is(err, shard.ErrUnsupported) {
		t.Errorf("no answer: %v", err)
	}
}

func FuzzParseState(f *testing.F) {
	f.Add("run_id:x\nmaster_replid:y\nrole:slave\nslave0:ip=::1,port=1,offset=1,lag=-1\ndb0:keys=1\nmaster_last_io_seconds_ago:9223372036854775807\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseState(text)
		if err == nil && (s.Role == shard.Replica) != (s.Link != nil) {
			t.Errorf("%+v", s)
		}
	})
}

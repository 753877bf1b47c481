package redis_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

const (
	nodeA = "00000000000000000000000000000000000000aa"
	nodeB = "00000000000000000000000000000000000000bb"
)

func nodeRecord(id, address string) shard.Record {
	return shard.Record{
		Shard: "s", ID: id, Address: address, Role: shard.Replica, Txn: 7, PrimaryID: nodeA, Condition: shard.Up, Fence: shard.Closed,
		Instance: "i-" + id[38:], Interval: time.Second, Timeout: time.Hour, Engine: "redis",
	}
}

func fenceOf(node, id string) shard.Command {
	return shard.Command{ID: id, Shard: "s", Node: node, Epoch: 2, Order: shard.OrderFence, Within: time.Minute, By: "i"}
}

// dump returns all keys of a store with what they hold, but for numbers of the clock.
func dump(t *testing.T, server *realserver.RedisServer, root string) map[string]string {
	t.Helper()
	text, err := server.Do("EVAL", `local out = {}
		for _, key in ipairs(redis.call('KEYS', '*')) do if string.sub(key, 1, #ARGV[1]) == ARGV[1] then
			local kind, v = redis.call('TYPE', key).ok
			if kind == 'hash' then
				local h = redis.call('HGETALL', key)
				v = {}
				for i = 1, #h, 2 do v[#v + 1] = h[i] .. '=' .. h[i + 1] end
				table.sort(v)
			elseif kind == 'set' then v = redis.call('SMEMBERS', key) table.sort(v)
			elseif kind == 'zset' then v = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
			elseif kind == 'list' then v = redis.call('LRANGE', key, 0, -1)
			elseif kind == 'string' then v = {redis.call('GET', key), redis.call('TTL', key) > 20 and 'expires' or ''} else v = {} end
			out[#out + 1] = string.sub(key, #ARGV[1] + 1) .. ' ' .. kind .. ' ' .. table.concat(v, ' ')
		end end
		return table.concat(out, '\n')`, "0", root)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		key, value, _ := strings.Cut(line, " ")
		all[key] = value
	}
	return all
}

// TestShardKeys: the layout is the one that is written down, byte for byte.
func TestShardKeys(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	s := open(t, server.URL(), "")
	r := s.Registry()
	before := dump(t, server, s.Root())
	row := shard.Row{Name: "s", Epoch: 1, Primary: nodeA, PrimaryEpoch: 1, Members: []shard.Member{{ID: nodeB, Address: "h:2"}, {ID: nodeA, Address: "h:1"}}}
	for _, n := range []shard.Record{nodeRecord(nodeA, "h:1"), nodeRecord(nodeB, "h:2")} {
		if _, err := r.Report(t.Context(), n, false); err != nil {
			t.Fatal(err)
		}
	}
	rev, err := r.UpdateRow(t.Context(), shard.RowUpdate{Row: row, Commands: []shard.Command{fenceOf(nodeB, "1"), fenceOf(nodeB, "2")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Lock(t.Context(), shard.Lock{Shard: "s", Primary: nodeA, Value: "value"}); err != nil {
		t.Fatal(err)
	}
	v, err := r.ReadView(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	record := func(n shard.Record) string {
		stored, _ := v.Node(n.ID)
		return `hash detail={"armed":false,"condition":"up","engine":"redis","epoch":0,"fence":"closed","interval_ns":1000000000,"keys":0,` +
			`"lineage":{"id":""},"priority":0,"synced":false} instance=` + n.Instance + ` last_txn_id=7 last_updated=` + fmt.Sprint(stored.Updated) +
			` node_address=` + n.Address + ` node_id=` + n.ID + ` primary_node_id=` + nodeA + ` role=replica shard_name=s timeout_ns=3600000000000`
	}
	command := func(id string) string {
		return `{"expires_us":?,"id":"` + id + `","shard":"s","node":"` + nodeB + `","epoch":2,"order":"fence","within_ns":60000000000,"by":"i"}`
	}
	want := map[string]string{
		nodeA:               record(nodeRecord(nodeA, "h:1")),
		nodeB:               record(nodeRecord(nodeB, "h:2")),
		nodeA + "_replicas": "set " + nodeB,
		nodeA + "_FAILOVER": "string value expires",
		nodeB + "_queue":    "list " + command("2") + " " + command("1"),
		"shard:s": fmt.Sprintf(`hash doc={"name":"s","rev":0,"epoch":1,"primary":"%[1]s","primary_epoch":1,"members":[{"id":"%[2]s","address":"h:2",`+
			`"since":"0001-01-01T00:00:00Z"},{"id":"%[1]s","address":"h:1","since":"0001-01-01T00:00:00Z"}]} primary=%[1]s rev=%[3]d`, nodeA, nodeB, rev),
		"shards":           "zset s 0",
		"shard-nodes:s":    "set " + nodeA + " " + nodeB,
		"node-address:h:1": "set " + nodeA,
		"node-address:h:2": "set " + nodeB,
	}
	maps.Copy(want, before)
	got := dump(t, server, s.Root())
	for key, value := range got {
		for {
			head, tail, found := strings.Cut(value, `"expires_us":1`)
			if !found {
				break
			}
			value = head + `"expires_us":?` + strings.TrimLeft(tail, "0123456789")
		}
		got[key] = value
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}

	row.Rev, row.Primary, row.Members = rev, nodeB, row.Members[:1]
	if _, err := r.UpdateRow(t.Context(), shard.RowUpdate{Row: row, Drop: []string{nodeA}}); err != nil {
		t.Fatal(err)
	}
	got = dump(t, server, s.Root())
	for key := range got {
		if strings.HasPrefix(key, nodeA) && key != nodeA+"_FAILOVER" || key == "node-address:h:1" {
			t.Errorf("after the drop %s is left: %s", key, got[key])
		}
	}
	if got["shard-nodes:s"] != "set "+nodeB {
		t.Errorf("nodes after the drop: %s", got["shard-nodes:s"])
	}
}

// TestShardForeignEntries: what someone else put into a queue is no command and stops none.
func TestShardForeignEntries(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	s := open(t, server.URL(), "")
	for _, entry := range []string{"REPLICAOF NO ONE", "{", "[]", "null", `{"id":5}`, `{"expires_us":"x"}`, "\x00\xff"} {
		if _, err := server.Do("LPUSH", s.Root()+nodeA+"_queue", entry); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Commands().Send(t.Context(), fenceOf(nodeA, "c")); err != nil {
		t.Fatal(err)
	}
	got, err := s.Commands().Next(t.Context(), nodeA, 0)
	if err != nil || got.ID != "c" {
		t.Errorf("Next = %+v, %v", got, err)
	}
}

// TestShardExpired: a command that expired is dropped unread, by the server's clock alone, also
// by one who waits.
func TestShardExpired(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	s := open(t, server.URL(), "")
	old := fenceOf(nodeA, "old")
	old.Within = time.Second
	if err := s.Commands().Send(t.Context(), old, fenceOf(nodeA, "new")); err != nil {
		t.Fatal(err)
	}
	s.SetSkew(func() time.Duration { return 2 * time.Second })
	got, err := s.Commands().Next(t.Context(), nodeA, time.Second)
	if err != nil || got.ID != "new" {
		t.Errorf("Next = %+v, %v", got, err)
	}
	if got, err := s.Commands().Next(t.Context(), nodeA, 10*time.Millisecond); !errors.Is(err, shard.ErrNoCommand) {
		t.Errorf("Next of an empty queue = %+v, %v", got, err)
	}
}

// TestShardDeadServer: waiting for a command at a server that hangs ends two seconds after
// its time; at one that was restarted it continues.
func TestShardDeadServer(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{AppendOnly: true})
	s := open(t, server.URL(), "")
	rev, err := s.Registry().UpdateRow(t.Context(), shard.RowUpdate{Row: shard.Row{Name: "s", Epoch: 1}, Commands: []shard.Command{fenceOf(nodeA, "a")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commands().Next(t.Context(), nodeB, 0); !errors.Is(err, shard.ErrNoCommand) {
		t.Fatal(err)
	}
	server.Pause()
	began := time.Now()
	_, err = s.Commands().Next(t.Context(), nodeB, 200*time.Millisecond)
	if took := time.Since(began); !errors.Is(err, lease.ErrUnknown) || took < 2*time.Second || took > ample {
		t.Errorf("at a server that hangs: %v after %v, want ErrUnknown after 2.2s", err, took)
	}
	server.Resume()

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	waited := make(chan error, 1)
	go func() {
		for {
			if _, err := s.Commands().Next(ctx, nodeB, time.Second); err == nil || ctx.Err() != nil {
				waited <- err
				return
			}
			<-time.After(20 * time.Millisecond)
		}
	}()
	server.Kill()
	if _, err := s.Registry().ReadView(t.Context(), "s"); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("Look at a dead server: %v", err)
	}
	server.Start(t)
	realserver.Eventually(t, time.Minute, "the row is as it was", func() error {
		v, err := s.Registry().ReadView(t.Context(), "s")
		if err == nil && v.Row.Rev != rev {
			err = fmt.Errorf("revision %d, want %d", v.Row.Rev, rev)
		}
		return err
	})
	if got, err := s.Commands().Next(ctx, nodeA, time.Second); err != nil || got.ID != "a" {
		t.Errorf("the command that waited: %+v, %v", got, err)
	}
	if err := s.Commands().Send(ctx, fenceOf(nodeB, "b")); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Errorf("who waited all the time: %v", err)
	}
}

// TestShardLoss: a server that lost its newest writes gives none of their revisions again, so
// that nobody decides on what he read in the time that never was.
func TestShardLoss(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{})
	s := open(t, server.URL(), "")
	row := shard.Row{Name: "s", Epoch: 1}
	decide := func(row shard.Row) shard.Row {
		t.Helper()
		var err error
		if row.Rev, err = s.Registry().UpdateRow(t.Context(), shard.RowUpdate{Row: row}); err != nil {
			t.Fatal(err)
		}
		return row
	}
	row = decide(row)
	kept, err := server.Do("HGET", s.Root()+"shard:s", "rev")
	if err != nil {
		t.Fatal(err)
	}
	lost := decide(row)
	if _, err := server.Do("HSET", s.Root()+"shard:s", "rev", kept); err != nil {
		t.Fatal(err)
	}
	again := decide(row)
	if again.Rev <= lost.Rev {
		t.Errorf("revision %d after %d was lost", again.Rev, lost.Rev)
	}
	if _, err := s.Registry().UpdateRow(t.Context(), shard.RowUpdate{Row: lost}); !errors.Is(err, shard.ErrChanged) {
		t.Errorf("deciding on what was lost: %v", err)
	}
	if _, err := server.Do("FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	if anew := decide(shard.Row{Name: "s", Epoch: 1}); anew.Rev <= again.Rev {
		t.Errorf("revision %d after everything up to %d was lost", anew.Rev, again.Rev)
	}
}

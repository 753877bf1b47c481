package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
)

// TestShardPlans: nothing that is done about one shard looks at all, also when its plan was made
// while there was nothing; and a heartbeat touches no index.
func TestShardPlans(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	s := open(t, url)
	r, q := s.Registry(), s.Commands()
	everything := func(of int) {
		t.Helper()
		n := benchRecord(of, 0)
		for range 2 {
			if _, err := r.Report(t.Context(), n, true); err != nil {
				t.Fatal(err)
			}
		}
		c := shard.Command{ID: "c", Shard: n.Shard, Node: n.ID, Epoch: 1, Order: shard.OrderFence, Within: time.Minute}
		if _, err := r.UpdateRow(t.Context(), shard.RowUpdate{Row: shard.View{Now: time.Now()}.BootstrapRow(n, "s"), Commands: []shard.Command{c},
			Drop: []string{benchRecord(of, 1).ID}, Event: &history.Event{Part: shard.Space, Subject: n.Shard}}); err != nil {
			t.Fatal(err)
		}
		l := shard.Lock{Shard: n.Shard, Primary: n.ID, Value: "v"}
		for what, err := range map[string]error{
			"Send": q.Send(t.Context(), c), "Lock": r.Lock(t.Context(), l), "Unlock": r.Unlock(t.Context(), shard.Lock{Shard: l.Shard, Primary: l.Primary, Instead: "v"}),
		} {
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if _, err := r.ReadView(t.Context(), n.Shard); err != nil {
			t.Fatal(err)
		}
		if _, err := r.List(t.Context(), n.Shard, 3); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Next(t.Context(), n.ID, 0); err != nil {
			t.Fatal(err)
		}
	}
	for of := range 20 { // plans of functions are kept after some calls
		everything(of)
	}
	exec(t, url, `INSERT INTO understudy.shard_row SELECT 'more-' || i, 1, '', '{}' FROM generate_series(1, 5000) i;
		INSERT INTO understudy.shard_node SELECT lpad(i::text, 40, 'e'), 'more-' || i, 'host:' || i, '', 1000, now(), '', false, '{}' FROM generate_series(1, 5000) i`)
	scans := func() (seq, hot, updates int64) {
		t.Helper()
		// What a backend has done is counted when it ends, at the latest.
		conn := connect(t, url)
		err := conn.QueryRow(t.Context(), `SELECT sum(seq_scan) FILTER (WHERE relname LIKE 'shard%')
			- (SELECT count(*) FROM pg_indexes WHERE tablename LIKE 'shard%'), -- making one is a scan
			sum(n_tup_hot_upd) FILTER (WHERE relname = 'shard_node'),
			sum(n_tup_upd) FILTER (WHERE relname = 'shard_node') FROM pg_stat_user_tables`).Scan(&seq, &hot, &updates)
		if err != nil {
			t.Fatal(err)
		}
		return seq, hot, updates
	}
	for of := 20; of < 40; of++ {
		everything(of)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	realserver.Eventually(t, time.Minute, "the updates are counted", func() error {
		if _, _, updates := scans(); updates < 40 {
			return fmt.Errorf("%d updates", updates)
		}
		return nil
	})
	if seq, hot, updates := scans(); seq > 0 || hot < updates {
		t.Errorf("%d sequential scans; %d of %d updates without an index", seq, hot, updates)
	}
}

// TestShardOneListener: all who wait in a process share one connection, which ends after them.
func TestShardOneListener(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	s := open(t, url)
	got := make(chan error, 10)
	for n := range 10 {
		go func() { got <- await(t.Context(), s.Commands(), benchRecord(n, 0).ID) }()
	}
	conn := connect(t, url)
	realserver.Eventually(t, time.Minute, "one connection listens", func() error {
		var n int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'").Scan(&n)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d listen", n)
		}
		return err
	})
	for n := range 10 {
		r := benchRecord(n, 0)
		if err := s.Commands().Send(t.Context(), shard.Command{ID: "c", Shard: r.Shard, Node: r.ID, Within: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}

// await takes a command, however often it has to ask.
func await(ctx context.Context, q shard.Commands, node string) error {
	for {
		if _, err := q.Next(ctx, node, shard.MaxWait); err == nil || ctx.Err() != nil {
			return err
		}
		<-time.After(20 * time.Millisecond)
	}
}

// TestShardServerRestart: what was decided and sent outlives a crash of the server, and
// whoever waits continues after it.
func TestShardServerRestart(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	s := open(t, server.NewDatabase(t))
	r, n := s.Registry(), benchRecord(1, 0)
	if _, err := r.Report(t.Context(), n, false); err != nil {
		t.Fatal(err)
	}
	rev, err := r.UpdateRow(t.Context(), shard.RowUpdate{Row: shard.View{Now: time.Now()}.BootstrapRow(n, "s"),
		Commands: []shard.Command{{ID: "a", Shard: n.Shard, Node: n.ID, Within: time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	other := make(chan error, 1)
	go func() { other <- await(ctx, s.Commands(), benchRecord(2, 0).ID) }()
	server.Kill()
	if _, err := r.Report(t.Context(), n, false); err == nil {
		t.Error("a server that is dead accepted a report")
	}
	server.Start(t)
	realserver.Eventually(t, time.Minute, "the shard is as it was", func() error {
		v, err := r.ReadView(t.Context(), n.Shard)
		if err == nil && (v.Row.Rev != rev || len(v.Nodes) != 1) {
			err = fmt.Errorf("revision %d with %d nodes", v.Row.Rev, len(v.Nodes))
		}
		return err
	})
	if err := await(ctx, s.Commands(), n.ID); err != nil {
		t.Errorf("the command that waited: %v", err)
	}
	if err := s.Commands().Send(ctx, shard.Command{ID: "b", Shard: n.Shard, Node: benchRecord(2, 0).ID, Within: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := <-other; err != nil {
		t.Errorf("who waited all the time: %v", err)
	}
}

// TestShardBackup: a database that was put back to what it was gives no revision again, so
// that nobody decides on what he read in the time that never was.
func TestShardBackup(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	s := open(t, url)
	r, row := s.Registry(), shard.View{Now: time.Now()}.BootstrapRow(benchRecord(1, 0), "s")
	decide := func(row shard.Row) int64 {
		t.Helper()
		rev, err := r.UpdateRow(t.Context(), shard.RowUpdate{Row: row})
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	row.Rev = decide(row)
	exec(t, url, "CREATE TABLE backup AS TABLE understudy.shard_row")
	lost := row
	lost.Rev = decide(row)
	exec(t, url, "DELETE FROM understudy.shard_row; INSERT INTO understudy.shard_row TABLE backup")
	again := row
	if again.Rev = decide(row); again.Rev <= lost.Rev {
		t.Errorf("revision %d after %d was lost", again.Rev, lost.Rev)
	}
	if _, err := r.UpdateRow(t.Context(), shard.RowUpdate{Row: lost}); !errors.Is(err, shard.ErrChanged) {
		t.Errorf("deciding on what was lost: %v", err)
	}
}

// TestShardLightReports: a crash of the server may take back reports that only say "still so",
// for which nobody waits; never what one of them newly said, nor one that was told.
func TestShardLightReports(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{Settings: map[string]string{
		// Nobody else writes, or notes every 15 s what is under way, between a report and the look.
		"wal_writer_delay": "10s", "autovacuum": "off", "wal_level": "minimal", "max_wal_senders": "0",
	}})
	url := server.NewDatabase(t)
	r, n := open(t, url).Registry(), benchRecord(1, 0)
	report := func(tell bool) {
		t.Helper()
		n.Txn++
		if _, err := r.Report(t.Context(), n, tell); err != nil {
			t.Fatal(err)
		}
	}
	// late reports whether the server answered before it wrote. What else it does writes now and then.
	late := func(tell bool, change func()) bool {
		t.Helper()
		conn := connect(t, url)
		defer conn.Close(t.Context())
		for range 20 {
			change()
			report(tell)
			var late bool
			// Where a page ends with what was written, its successor's header, of up to 40 bytes, is between the two.
			if err := conn.QueryRow(t.Context(), "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn()) > 40").Scan(&late); err != nil {
				t.Fatal(err)
			}
			if late {
				return true
			}
		}
		return false
	}
	if late(false, func() { n.Armed = !n.Armed }) {
		t.Error("who says something new was answered before it was written")
	}
	if late(true, func() {}) {
		t.Error("who told was answered before it was written")
	}
	if !late(false, func() { n.Keys++ }) {
		t.Error("each report waits for the disk, though it says nothing new")
	}
	n.Fence = shard.Open
	report(false)
	n.Fence = shard.Closed
	report(false)
	kept := n.Txn
	report(false)
	server.Kill()
	server.Start(t)
	realserver.Eventually(t, time.Minute, "the record is there", func() error {
		v, err := r.ReadView(t.Context(), n.Shard)
		if err == nil && (len(v.Nodes) != 1 || v.Nodes[0].Fence != shard.Closed || v.Nodes[0].Txn < kept) {
			err = fmt.Errorf("%+v", v.Nodes)
		}
		return err
	})
}

// TestShardHolderOfOddName: what parts the columns of a view may be in a name.
func TestShardHolderOfOddName(t *testing.T) {
	s := open(t, realserver.Postgres(t, realserver.PostgresOptions{}).NewDatabase(t))
	n := benchRecord(1, 0)
	want := take(t, s, lease.ID{Space: shard.Space, Key: n.Shard}, start(t, s, "a\x1fb\"\\\n", time.Hour), false)
	v, err := s.Registry().Report(t.Context(), n, false)
	if err != nil {
		t.Fatal(err)
	}
	if got := v.Lease; got.Holder != want.Holder || got.Session != want.Session || got.Term != want.Term {
		t.Errorf("the view shows %+v, want %+v", got, want)
	}
}

// TestShardWatchIgnoresChecks: what happens to a check wakes nobody who watches a shard.
func TestShardWatchIgnoresChecks(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	s := open(t, server.NewDatabase(t))
	woken := make(chan string, 100)
	go func() { _ = s.Registry().Watch(t.Context(), "s", func(name string) { woken <- name }) }()
	<-woken // it is ready
	if _, err := s.Monitor().Configure(t.Context(), monitor.Configuration{Checks: []monitor.Check{{Name: "e", Interval: time.Minute}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Monitor().ApplyAction(t.Context(), monitor.Action{Type: monitor.ActionPause, Check: "e"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Registry().UpdateRow(t.Context(), shard.RowUpdate{Row: shard.Row{Name: "s"}}); err != nil {
		t.Fatal(err)
	}
	if name := <-woken; name != "s" {
		t.Errorf("woken with %q before its shard changed", name)
	}
}

// benchRecord is what an agent reports of a node that does well.
func benchRecord(of, n int) shard.Record {
	id := func(n int) string { return fmt.Sprintf("%040x", of*100+n+1) }
	r := shard.Record{
		Shard: fmt.Sprintf("shard-%04d", of), ID: id(n), Address: fmt.Sprintf("10.%d.%d.%d:6379", n, of/250, of%250), Role: shard.Replica,
		Condition: shard.Up, Lineage: shard.Lineage{ID: id(50)}, Fence: shard.Closed, Priority: 100, PrimaryID: id(0), Synced: true,
		Instance: id(70 + n), Agent: "10.0.0.1:7100", Interval: time.Second, Timeout: time.Hour, Run: id(60), Engine: "redis", Version: "7.0.15", Keys: 1000,
		Opinion: &shard.Opinion{Of: id(0), Reachability: shard.Reachable, Age: time.Millisecond},
	}
	if n == 0 {
		r.Role, r.PrimaryID, r.Opinion, r.Fence, r.Armed = shard.Primary, "", nil, shard.Armed, true
		for f := range 2 {
			r.Followers = append(r.Followers, shard.Follower{Address: fmt.Sprintf("10.%d.0.1:6379", f), Txn: 1 << 40, Online: true, Lag: time.Second})
		}
	} else {
		r.Link = &shard.Upstream{Address: "10.0.0.1:6379", Up: true, Input: time.Millisecond}
	}
	return r
}

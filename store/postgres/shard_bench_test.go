package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/shard"
)

// BenchmarkShardReport is the heartbeat of a thousand shards of three nodes, as their agents
// send it every second, beside the renewal of a session. An operation of it is 500 of each.
func BenchmarkShardReport(b *testing.B) {
	server := realserver.Postgres(b, realserver.PostgresOptions{Fsync: true, Settings: big})
	url := server.NewDatabase(b)
	s := open(b, url)
	r := s.Registry()
	const shards, nodes = 1000, 3
	report := func(i int) {
		n := benchRecord(i/nodes, i%nodes)
		n.Txn = int64(i)
		if _, err := r.Report(b.Context(), n, false); err != nil {
			b.Fatal(err)
		}
	}
	for i := range shards * nodes {
		if i%nodes == 0 {
			row := shard.View{Now: time.Now()}.BootstrapRow(benchRecord(i/nodes, 0), "secret")
			if _, err := r.UpdateRow(b.Context(), shard.RowUpdate{Row: row}); err != nil {
				b.Fatal(err)
			}
		}
		report(i)
	}
	exec(b, url, "VACUUM ANALYZE")
	exec(b, url, "CHECKPOINT")
	session := start(b, s, "a", time.Hour)
	// In turn, so that whatever else the machine does hits both alike.
	const batch = 500
	var reports, renewals []float64
	measure := func(do func(int)) float64 {
		busy := cpu(b, url)
		for i := range batch {
			do(i)
		}
		return float64((cpu(b, url) - busy).Nanoseconds()) / 1000 / batch
	}
	for b.Loop() {
		reports = append(reports, measure(func(i int) { report((len(reports)*batch + i) % (shards * nodes)) }))
		renewals = append(renewals, measure(func(int) {
			if _, err := s.RenewSession(b.Context(), session.ID); err != nil {
				b.Fatal(err)
			}
		}))
	}
	for name, took := range map[string][]float64{"report": reports, "renewal": renewals} {
		slices.Sort(took)
		b.ReportMetric(took[len(took)/2], "server-µs/"+name)
		b.ReportMetric(took[0], "least-server-µs/"+name)
	}
	var hot, all int64
	if err := connect(b, url).QueryRow(b.Context(), "SELECT n_tup_hot_upd, n_tup_upd FROM pg_stat_user_tables WHERE relname = 'shard_node'").Scan(&hot, &all); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(hot)/float64(max(all, 1)), "hot/update")
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

package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store/memory"
)

// long is as long as a name may look.
const long = "nightly-reconciliation-of-accounts-with-a-name-that-is-too-long-for-every-column"

// stage is a server with something of every part, that can be stopped and started again.
type stage struct {
	t     *testing.T
	token string // that it asks for; "" for none
	demo  http.Handler
	store *memory.Store
	table monitor.Store
	peer  *peer
	addr  string
	stop  func()
}

func newStage(t *testing.T) *stage {
	t.Helper()
	st := memory.New(nil)
	s := &stage{
		t: t, store: st, table: st.Monitor(),
		peer: &peer{removed: make(chan string, 10)}, addr: realserver.FreeAddress(t),
	}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

// start serves the store, at its address.
func (s *stage) start() {
	s.t.Helper()
	server, err := api.New(api.Config{Store: s.store, Token: s.token, Shards: directory{s.store.Registry()}, Cache: s.peer, Version: "v1", Demo: s.demo, Listen: s.addr})
	if err != nil {
		s.t.Fatal(err)
	}
	l, err := net.Listen("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	srv := api.NewHTTPServer(server.Handler(), nil)
	ran, served := make(chan struct{}), make(chan struct{})
	go func() { defer close(ran); _ = server.Run(ctx) }()
	go func() { defer close(served); _ = srv.Serve(l) }()
	s.stop = func() {
		_ = srv.Close()
		cancel()
		<-served
		<-ran
		s.stop = func() {}
	}
}

func (s *stage) url(hash string) string { return "http://" + s.addr + "/" + hash }

// do asks the server.
func (s *stage) do(method, path, body string, into any) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url(strings.TrimPrefix(path, "/")), bytes.NewBufferString(body))
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if answer.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, answer.StatusCode, text)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			s.t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
}

// session is one that outlives the test.
func (s *stage) session(name string) string {
	s.t.Helper()
	id := lease.NewID()
	n := lease.Session{ID: id, Instance: lease.NewInstance(name, "10.0.0.1:80"), Timing: lease.Timing{Interval: time.Minute, Timeout: time.Hour}}
	if _, err := s.store.StartSession(s.t.Context(), n); err != nil {
		s.t.Fatal(err)
	}
	return id
}

func (s *stage) hold(id lease.ID, session string) {
	s.t.Helper()
	if _, err := s.store.Acquire(s.t.Context(), lease.Expectation{Lease: id, Session: session}); err != nil {
		s.t.Fatal(err)
	}
}

// fill puts something of everything there: what is well, and what is not.
func (s *stage) fill() {
	s.t.Helper()
	web := s.session("web-1")
	s.hold(lease.ID{Space: elect.Space, Key: long}, web)
	s.hold(lease.ID{Space: elect.Space, Key: "reports"}, web)
	held, err := s.store.Get(s.t.Context(), lease.ID{Space: elect.Space, Key: "reports"})
	if err != nil {
		s.t.Fatal(err)
	}
	s.do("DELETE", "/v1/leases/role/reports", fmt.Sprintf(`{"session":%q,"term":%d}`, web, held.Term), nil)
	s.campaign("anna", "ben")

	s.shard("orders", 0, true)
	s.shard("payments", 10, false)

	s.do("POST", "/v1/queues", `{"queue":"orders"}`, nil)
	for _, key := range []string{"account-7", "account-8", "account-9", long} {
		for n := range 3 {
			s.do("POST", fmt.Sprintf("/v1/queues/orders/messages?key=%s&id=%s-%d", key, key, n), "paid: 10", nil)
		}
	}
	for key, state := range map[string]dispatch.State{"account-7": dispatch.Unknown, "account-8": dispatch.Failed, long: dispatch.Failed} {
		s.block(key, state)
	}

	s.jobs()
	s.expect("web", "web-1", "web-2", "db-1", long)
	s.down("web", "web-2", long)
}

// campaign lets instances compete for the role billing until the test ends.
func (s *stage) campaign(names ...string) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var ends []chan struct{}
	goes := func(f func()) {
		end := make(chan struct{})
		ends = append(ends, end)
		go func() { defer close(end); f() }()
	}
	for _, name := range names {
		k, err := lease.NewKeeper(lease.KeeperConfig{
			Store: s.store, Roster: s.store, Instance: lease.NewInstance(name, "10.0.0.2:80"),
			Timing: lease.Timing{Interval: time.Second, Timeout: 5 * time.Minute}, // nobody lapses
		})
		if err != nil {
			s.t.Fatal(err)
		}
		goes(func() { _ = k.Run(ctx) })
		goes(func() {
			_ = elect.Run(ctx, elect.Config{Keeper: k, Role: "billing"}, func(ctx context.Context, _ elect.Term) error {
				<-ctx.Done()
				return nil
			})
		})
	}
	s.t.Cleanup(func() {
		cancel()
		for _, end := range ends {
			<-end
		}
	})
}

func nodeID(n int) string { return fmt.Sprintf("%040x", 0xabcdef00+n) }

// shard makes one of three nodes, whose primary is well or is not.
func (s *stage) shard(name string, base int, well bool) {
	s.t.Helper()
	row := shard.Row{Name: name, Epoch: 7, Primary: nodeID(base + 1), PrimaryEpoch: 7, Secret: "agents-only", Lineages: []shard.Lineage{{ID: "l"}}}
	for n := 1; n <= 3; n++ {
		r := shard.Record{
			Shard: name, ID: nodeID(base + n), Address: fmt.Sprintf("10.0.0.%d:6379", base+n), Role: shard.Replica, Txn: 90, PrimaryID: nodeID(base + 1),
			Condition: shard.Up, Lineage: shard.Lineage{ID: "l"}, Link: &shard.Upstream{Up: well}, Synced: true, Fence: shard.Closed, Priority: 100,
			Instance: fmt.Sprint("i", base+n), Interval: time.Minute, Timeout: time.Hour, Engine: "redis",
		}
		if n == 1 {
			r.Role, r.Txn, r.PrimaryID, r.Link, r.Fence, r.Armed = shard.Primary, 100, "", nil, shard.Armed, true
			if !well {
				r.Condition = shard.Down
			}
		}
		if _, err := s.store.Registry().Report(s.t.Context(), r, true); err != nil {
			s.t.Fatal(err)
		}
		row.Members = append(row.Members, shard.Member{ID: r.ID, Address: r.Address})
	}
	if _, err := s.store.Registry().UpdateRow(s.t.Context(), shard.RowUpdate{Row: row}); err != nil {
		s.t.Fatal(err)
	}
	if well {
		s.hold(shard.LeaseID(name), s.session("host-"+name))
	}
}

// jobs are one that has run each hour for two days and failed once, one that nobody runs any more, and one with a long name.
func (s *stage) jobs() {
	s.t.Helper()
	jobs, ctx := s.store.Jobs(), s.t.Context()
	now := time.Now().Add(-48 * time.Hour)
	do := func(name string, d job.Decision) job.Job {
		s.t.Helper()
		j, err := jobs.Change(ctx, name, func(j job.Job, _ time.Time) (job.Change, error) { return d(j, now) })
		if err != nil {
			s.t.Fatal(err)
		}
		return j
	}
	for name, when := range map[string]string{"backup": "TZ=Asia/Tokyo 30 * * * *", "reports": "every 1h", long: "@yearly"} {
		do(name, job.Define(name, job.Definition{Schedule: when}))
	}
	then := now
	now = time.Now()
	do("reports", job.ClaimAlarm(new(job.Alarm))) // as an instance does that sends alarms
	now = then
	for term := int64(1); ; term++ {
		j, _, err := jobs.Get(ctx, "backup")
		if err != nil {
			s.t.Fatal(err)
		}
		if j.Next.After(time.Now()) {
			return
		}
		now = j.Next.Add(20 * time.Millisecond)
		run, _ := do("backup", job.Claim(job.Holder{Term: term, Instance: lease.NewInstance("web-1", "")})).Running()
		now = now.Add(7 * time.Minute)
		result := job.Result{State: job.Succeeded}
		if term == 45 {
			result = job.Result{State: job.Failed, ExitCode: 3, Why: "exit code 3"}
		}
		if err := jobs.PutOutput(ctx, job.RunKey{Job: "backup", Scheduled: run.Scheduled}, term, job.Output{Total: 13, Tail: []byte("disk is full\n")}); err != nil {
			s.t.Fatal(err)
		}
		do("backup", job.Finish(run.Scheduled, term, result))
	}
}

// block leaves the head of a key waiting for a person.
func (s *stage) block(key string, state dispatch.State) {
	s.t.Helper()
	ctx, space, session := s.t.Context(), dispatch.Space("orders"), s.session("worker")
	claims, err := s.store.Claims().ClaimKeys(ctx, claim.ClaimRequest{Space: space, Session: session, Limit: claim.MaxKeys, Fresh: claim.MaxKeys})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, c := range claims {
		if c.Key != key {
			continue
		}
		result, err := s.store.Queue().Exchange(ctx, dispatch.Exchange{Queue: "orders", Session: session, Begin: []claim.Claim{c}, Window: time.Minute})
		if err != nil || len(result.Begun) != 1 {
			s.t.Fatalf("%+v, %v", result, err)
		}
		a := result.Begun[0]
		_, err = s.store.Queue().Exchange(ctx, dispatch.Exchange{Queue: "orders", Session: session, Results: []dispatch.Result{{
			State: state, After: dispatch.Block, Code: 422, Detail: "no such account", Key: key, Term: a.Term, Seq: a.Seq, Attempt: a.Attempt,
		}}})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if err := s.store.Claims().Release(ctx, space, session, claims); err != nil {
		s.t.Fatal(err)
	}
}

// expect configures an event, and lets sources of it beat.
func (s *stage) expect(event string, sources ...string) {
	s.t.Helper()
	e := monitor.Check{Name: event, Interval: time.Hour, Missed: 3}
	if _, err := s.table.Configure(s.t.Context(), monitor.Configuration{Checks: []monitor.Check{e}, Origin: "test"}); err != nil {
		s.t.Fatal(err)
	}
	for _, source := range sources {
		s.beat(event, source, monitor.SignalSuccess)
	}
}

func (s *stage) beat(event, source string, signal monitor.Signal) {
	s.t.Helper()
	found, err := s.table.ResolveSources(s.t.Context(), []monitor.SourceRef{{Check: event, Source: source}})
	if err != nil || found[0].ID == 0 {
		s.t.Fatalf("%s of %s: %+v, %v", source, event, found, err)
	}
	_, err = s.table.RecordHeartbeats(s.t.Context(), monitor.HeartbeatBatch{
		Probes: []monitor.Probe{{Path: "test", TrustFor: time.Minute, MaxGap: time.Hour}},
		Beats:  []monitor.HeartbeatUpdate{{Source: found[0].ID, Signal: signal, Count: 1}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// down leaves sources with a standing alarm.
func (s *stage) down(event string, sources ...string) {
	s.t.Helper()
	for _, source := range sources {
		s.beat(event, source, monitor.SignalFail)
	}
	ctx := s.t.Context()
	settings, err := s.table.Settings(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	var all []int
	for i := range monitor.Partitions {
		all = append(all, i)
	}
	look, err := s.table.DueSources(ctx, all, monitor.MaxSources)
	if err != nil {
		s.t.Fatal(err)
	}
	var changes []monitor.SourceChange
	for n, c := range look.Candidates {
		v := settings.Checks[0].Evaluate(c.Facts)
		change := monitor.SourceChange{
			ID: c.ID, Rev: c.Rev, BeatRev: c.BeatRev, CheckRev: c.CheckRev, Transition: v.Transition, Due: v.Due, WellSince: v.WellSince, ExpectedFrom: look.Now,
			Alarm: c.Alarm, Reason: v.Reason, At: look.Wall,
		}
		if v.Transition == monitor.Onset {
			change.Alarm = fmt.Sprintf("alarm-%03d", n)
		}
		changes = append(changes, change)
	}
	if _, err := s.table.ApplyChanges(ctx, changes); err != nil {
		s.t.Fatal(err)
	}
}

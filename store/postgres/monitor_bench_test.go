package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/postgres"
)

// fleet is a database with sources of one event that beat every minute.
func fleet(t testing.TB, server *realserver.PostgresServer, sources int) (url string, s *postgres.Store, ids []int64) {
	t.Helper()
	url = server.NewDatabase(t)
	s = open(t, url)
	m := s.Monitor()
	if _, err := m.Configure(t.Context(), monitor.Configuration{Checks: []monitor.Check{{Name: "e", Interval: time.Minute}}}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for n := 0; n < sources; n += monitor.MaxSources {
		refs := make([]monitor.SourceRef, min(monitor.MaxSources, sources-n))
		for i := range refs {
			refs[i] = monitor.SourceRef{Check: "e", Source: fmt.Sprintf("source-%07d", n+i)}
		}
		got, err := m.ResolveSources(t.Context(), refs)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range got {
			ids = append(ids, r.ID)
		}
	}
	t.Logf("learned %d sources in %v", sources, time.Since(began).Round(time.Millisecond))
	return url, s, ids
}

// BenchmarkBeats is the rate at which beats are stored, one flush after another, of
// sources that come in any order, so that each beats as often.
func BenchmarkBeats(b *testing.B) {
	server := realserver.Postgres(b, realserver.PostgresOptions{Fsync: true, Settings: big})
	const sources, rounds = 100_000, 5
	for _, flush := range []int{500, 5000} {
		b.Run(fmt.Sprintf("flush=%d", flush), func(b *testing.B) {
			url, s, ids := fleet(b, server, sources)
			m := s.Monitor()
			for some := range slices.Chunk(ids, flush) { // the first of each costs more
				storeBeats(b, m, some)
			}
			exec(b, url, "CHECKPOINT")
			for b.Loop() {
				began, busy := time.Now(), cpu(b, url)
				for range rounds {
					rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
					for some := range slices.Chunk(ids, flush) {
						storeBeats(b, m, some)
					}
				}
				const beats = sources * rounds
				b.ReportMetric(beats/time.Since(began).Seconds(), "beats/s")
				b.ReportMetric(float64((cpu(b, url)-busy).Nanoseconds())/1000/beats, "server-µs/beat")
			}
		})
	}
}

// storeBeats has these sources beat.
func storeBeats(t testing.TB, m monitor.HeartbeatStore, ids []int64) {
	t.Helper()
	if err := beating(amply(t), m, ids); err != nil {
		t.Fatalf("Store: %v", err)
	}
}

func beating(ctx context.Context, m monitor.HeartbeatStore, ids []int64) error {
	beats := make([]monitor.HeartbeatUpdate, len(ids))
	for i, id := range slices.Sorted(slices.Values(ids)) {
		beats[i] = monitor.HeartbeatUpdate{Source: id, Count: 1}
	}
	d := monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "http", TrustFor: time.Second, MaxGap: 2 * time.Second}}, Beats: beats}
	out, err := m.RecordHeartbeats(ctx, d)
	if err == nil && len(out.Unknown) > 0 {
		err = fmt.Errorf("unknown: %v", out.Unknown)
	}
	return err
}

// BenchmarkOnsets is how long it takes to raise a thousand alarms for two sinks, ten times in a row.
func BenchmarkOnsets(b *testing.B) {
	server := realserver.Postgres(b, realserver.PostgresOptions{Fsync: true, Settings: big})
	url, s, ids := fleet(b, server, 10_000)
	m := s.Monitor()
	me := start(b, s, "a", time.Hour)
	if err := m.RegisterMember(b.Context(), monitor.Member{Session: me.ID, Instance: me.Instance, Sinks: []string{"one", "two"}}); err != nil {
		b.Fatal(err)
	}
	storeBeats(b, m, ids)
	for b.Loop() {
		exec(b, url, "UPDATE understudy.monitor_due SET due = 0")
		began, busy := time.Now(), cpu(b, url)
		for range len(ids) / monitor.MaxSources {
			look, err := m.DueSources(b.Context(), everywhere, monitor.MaxSources)
			if err != nil || len(look.Candidates) != monitor.MaxSources {
				b.Fatalf("Due: %d, %v", len(look.Candidates), err)
			}
			turn := monitor.Onset
			if look.Candidates[0].Alarm != "" {
				turn = monitor.Abated
			}
			changes := make([]monitor.SourceChange, len(look.Candidates))
			for i, c := range look.Candidates {
				changes[i] = change(c, turn, never)
				if turn == monitor.Abated {
					changes[i].Alarm = c.Alarm
				}
				message := monitor.AlarmMessage{Status: turn, RequestID: changes[i].Alarm, Event: "e", Source: c.Source}
				changes[i].Notifications = message.Notifications([]string{"one", "two"})
			}
			if made, err := m.ApplyChanges(b.Context(), changes); err != nil || slices.Contains(made, false) {
				b.Fatalf("Apply: %v", err)
			}
		}
		b.ReportMetric(time.Since(began).Seconds(), "s/10000-onsets")
		b.ReportMetric((cpu(b, url) - busy).Seconds(), "server-s/10000-onsets")
	}
}

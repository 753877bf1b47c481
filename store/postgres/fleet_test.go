package postgres_test

import (
	"context"
	"fmt"
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

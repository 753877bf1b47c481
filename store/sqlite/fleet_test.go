package sqlite_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// fleet is a table with an event and learned sources, each of which has beaten.
type fleet struct {
	testing.TB
	monitor.Store
	store *sqlite.Store
	ids   []int64
}

const ticker = "tick"

func newFleetAt(t testing.TB, cfg sqlite.Config, sources int) *fleet {
	t.Helper()
	s := open(t, cfg)
	f := &fleet{TB: t, Store: s.Monitor(), store: s}
	_, err := f.Configure(t.Context(), monitor.Configuration{Checks: []monitor.Check{{Name: ticker, Interval: time.Minute}}})
	if err != nil {
		t.Fatal(err)
	}
	me := session(t, s, "me", lease.Timing{Interval: time.Minute, Timeout: time.Hour})
	if err := f.RegisterMember(t.Context(), monitor.Member{Session: me.ID, Sinks: []string{"log"}}); err != nil {
		t.Fatal(err)
	}
	for first := 0; first < sources; first += monitor.MaxSources {
		var refs []monitor.SourceRef
		for i := first; i < min(sources, first+monitor.MaxSources); i++ {
			refs = append(refs, monitor.SourceRef{Check: ticker, Source: fmt.Sprintf("source-%07d", i)})
		}
		found, err := f.ResolveSources(t.Context(), refs)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range found {
			f.ids = append(f.ids, r.ID)
		}
	}
	for ids := range slices.Chunk(f.ids, monitor.MaxBeats) {
		f.beat(ids, 0)
	}
	return f
}

// beat stores one beat of each source.
func (f *fleet) beat(ids []int64, seq int64) {
	f.Helper()
	d := monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "http", TrustFor: time.Second, MaxGap: time.Second}}}
	sent := time.Now()
	for _, id := range ids {
		d.Beats = append(d.Beats, monitor.HeartbeatUpdate{Source: id, Sent: sent, Seq: seq, Count: 1})
	}
	got, err := f.RecordHeartbeats(f.Context(), d)
	if err != nil || len(got.Unknown) > 0 {
		f.Fatalf("Store = %+v, %v", got, err)
	}
}

// changes are those that raise an alarm of each candidate, or only move them.
func (f *fleet) changes(l monitor.Scan, turn monitor.Transition) (out []monitor.SourceChange) {
	for _, c := range l.Candidates {
		ch := monitor.SourceChange{ID: c.ID, Rev: c.Rev, BeatRev: c.BeatRev, CheckRev: c.CheckRev, Transition: turn, Due: l.Now.Add(time.Hour), At: l.Wall}
		if turn == monitor.Onset {
			ch.Alarm, ch.Reason = lease.NewID(), monitor.Silent
			m := monitor.AlarmMessage{Status: turn, RequestID: ch.Alarm, Event: ticker, Source: c.Source}
			ch.Notifications = m.Notifications([]string{"log"})
		}
		out = append(out, ch)
	}
	return out
}

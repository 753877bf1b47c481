package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/postgres"
)

// everywhere are all partitions.
var everywhere = func() (all []int) {
	for p := range monitor.Partitions {
		all = append(all, p)
	}
	return all
}()

const never = monitor.Never

var (
	storeSQL = postgres.InSQL(`SELECT cardinality(unknown) FROM {{rules}}.monitor_record_heartbeats(0, '{p}', '{1000000}', '{3600000000}', '{f}',
		ARRAY[$1::bigint], '{1}', '{0}', '{0}', '{1}', ARRAY[$2::int], '{0}', '{f}', '{0}', 10000)`)
	onsetSQL = postgres.InSQL(`SELECT cardinality(made) FROM {{rules}}.monitor_apply_changes(0, ARRAY[$1::bigint], ARRAY[$2::bigint], ARRAY[$3::bigint], ARRAY[$4::bigint],
		'{ONSET}', '{9223372036854775807}', '{0}', '{0}', '{first}', '{silent}', '{0}', ARRAY[''], '{}', '{}', '{}', '{}', '{}', 10000)`)
)

func TestMonitorInterleavings(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	interleave(t, func(t *testing.T) string {
		url := server.NewDatabase(t)
		open(t, url)
		return url
	}, []interleaving{
		{"a beat under way undoes a judgement", beatUnderWay, "monitor_apply_transitions", "FOR NO KEY UPDATE OF b, s", ""},
		{"a beat behind an onset makes its source due", beatBehindOnset, "monitor_apply_transitions", "SET watched = x.transition = 'ONSET' OR", "SET watched ="},
		{"what a failure made due is not moved away", failureUnderWay, "monitor_move_due", "FOR NO KEY UPDATE SKIP LOCKED) l)", ") l)"},
		{"flushes do not wait for each other's proofs", proofUnderWay, "monitor_record_heartbeats", "FOR NO KEY UPDATE SKIP LOCKED", "FOR NO KEY UPDATE"},
		{"D11 sources get numbers without a gap", numbered, "monitor_resolve_sources", "WHERE x.id = v.id AND NOT x.removed FOR NO KEY UPDATE", "WHERE x.id = v.id"},
		{"D22 a configuration under way holds up nobody", configurationUnderWay, "monitor_configure_statement", "PERFORM", "PERFORM FROM understudy.monitor_event FOR SHARE; PERFORM"},
	})
}

// watched is a new event with sources that have beaten once and are due, as candidates.
func watched(t *testing.T, m monitor.Store, names ...string) (out []monitor.Candidate) {
	t.Helper()
	event := fmt.Sprintf("e%d", time.Now().UnixNano())
	c := monitor.Configuration{Checks: []monitor.Check{{Name: event, Interval: time.Hour}}, Keep: true}
	if _, err := m.Configure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	refs := make([]monitor.SourceRef, len(names))
	for i, name := range names {
		refs[i] = monitor.SourceRef{Check: event, Source: name}
	}
	found, err := m.ResolveSources(t.Context(), refs)
	if err != nil {
		t.Fatal(err)
	}
	for _, signal := range []monitor.Signal{monitor.SignalFail, monitor.SignalSuccess} {
		for i := range found {
			d := monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "p", TrustFor: time.Second, MaxGap: time.Hour}}}
			d.Beats = []monitor.HeartbeatUpdate{{Source: found[i].ID, Signal: signal, Count: 1}}
			if _, err := m.RecordHeartbeats(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
	}
	look, err := m.DueSources(t.Context(), everywhere, monitor.MaxSources)
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		n := slices.IndexFunc(look.Candidates, func(c monitor.Candidate) bool { return c.ID == found[i].ID })
		if n < 0 {
			t.Fatalf("%s is not due", names[i])
		}
		out = append(out, look.Candidates[n])
	}
	return out
}

func change(c monitor.Candidate, turn monitor.Transition, due monitor.StoreTime) monitor.SourceChange {
	out := monitor.SourceChange{ID: c.ID, Rev: c.Rev, BeatRev: c.BeatRev, CheckRev: c.CheckRev, Transition: turn, Due: due}
	if turn == monitor.Onset {
		out.Alarm, out.Reason, out.At = fmt.Sprintf("alarm-%d-%d", c.ID, time.Now().UnixNano()), monitor.Silent, time.Now()
	}
	return out
}

// storing runs a beat in a transaction that is left open.
func storing(t *testing.T, url string, id int64, signal monitor.Signal) pgx.Tx {
	t.Helper()
	tx := begin(t, connect(t, url))
	var unknown int
	if err := tx.QueryRow(t.Context(), storeSQL, id, int(signal)).Scan(&unknown); err != nil || unknown != 0 {
		t.Fatalf("storing: %d unknown, %v", unknown, err)
	}
	return tx
}

// applied makes one change while tx is open, which it has to wait for.
func applied(t *testing.T, url string, m monitor.Store, tx pgx.Tx, c monitor.SourceChange) (made bool, err error) {
	t.Helper()
	done := later(func() error {
		out, err := m.ApplyChanges(t.Context(), []monitor.SourceChange{c})
		made = err == nil && out[0]
		return err
	})
	waiting(t, url, 1)
	commit(t, tx)
	return made, <-done
}

func isDue(t *testing.T, m monitor.Store, id int64) bool {
	t.Helper()
	look, err := m.DueSources(t.Context(), everywhere, monitor.MaxSources)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(look.Candidates, func(c monitor.Candidate) bool { return c.ID == id })
}

func beatUnderWay(t *testing.T, url string) error {
	m := open(t, url).Monitor()
	c := watched(t, m, "a")[0]
	made, err := applied(t, url, m, storing(t, url, c.ID, monitor.SignalSuccess), change(c, monitor.Onset, never))
	if err != nil || made {
		return fmt.Errorf("an alarm of a source whose beat was under way: made %v, %v", made, err)
	}
	return nil
}

func beatBehindOnset(t *testing.T, url string) error {
	m := open(t, url).Monitor()
	c := watched(t, m, "a")[0]
	exec(t, url, "DELETE FROM understudy.monitor_alarm")
	tx := begin(t, connect(t, url))
	var made int
	if err := tx.QueryRow(t.Context(), onsetSQL, c.ID, c.Rev, c.BeatRev, c.CheckRev).Scan(&made); err != nil || made != 1 {
		t.Fatalf("an alarm: %d made, %v", made, err)
	}
	stored := later(func() error { storeBeats(t, m, []int64{c.ID}); return nil })
	waiting(t, url, 1)
	commit(t, tx)
	if <-stored; !isDue(t, m, c.ID) {
		return errors.New("nobody looks at a source that beat while its alarm was being raised")
	}
	return nil
}

func failureUnderWay(t *testing.T, url string) error {
	m := open(t, url).Monitor()
	c := watched(t, m, "a")[0]
	// It either leaves the source alone at once, or waits.
	tx := storing(t, url, c.ID, monitor.SignalFail)
	made := false
	moved := later(func() error {
		out, err := m.ApplyChanges(t.Context(), []monitor.SourceChange{change(c, monitor.NoTransition, never)})
		made = err == nil && out[0]
		return err
	})
	over, err := overOrWaits(t, url, moved)
	commit(t, tx)
	if !over {
		err = <-moved
	}
	if err != nil || made || !isDue(t, m, c.ID) {
		return fmt.Errorf("a look was put off though the source had failed: made %v, %v", made, err)
	}
	return nil
}

func proofUnderWay(t *testing.T, url string) error {
	m := open(t, url).Monitor()
	c := watched(t, m, "a", "b")
	tx := storing(t, url, c[0].ID, monitor.SignalSuccess)
	defer commit(t, tx)
	return waitsForNobody(t, url, func(ctx context.Context) error {
		d := monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "p", TrustFor: time.Second, MaxGap: time.Hour}}, Beats: []monitor.HeartbeatUpdate{{Source: c[1].ID, Count: 1}}}
		_, err := m.RecordHeartbeats(ctx, d)
		return err
	})
}

func configurationUnderWay(t *testing.T, url string) error {
	m := open(t, url).Monitor()
	c := watched(t, m, "a", "b", "c")
	tx := begin(t, connect(t, url))
	defer commit(t, tx)
	if _, err := tx.Exec(t.Context(), "SELECT FROM understudy.monitor_setting FOR UPDATE; "); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "UPDATE understudy.monitor_event SET rev = rev + 1"); err != nil {
		t.Fatal(err)
	}
	return waitsForNobody(t, url, func(ctx context.Context) error {
		d := monitor.HeartbeatBatch{Probes: []monitor.Probe{{Path: "p", TrustFor: time.Second, MaxGap: time.Hour}}, Beats: []monitor.HeartbeatUpdate{{Source: c[0].ID, Count: 1}}}
		if _, err := m.RecordHeartbeats(ctx, d); err != nil {
			return err
		}
		if _, err := m.DueSources(ctx, everywhere, 10); err != nil {
			return err
		}
		made, err := m.ApplyChanges(ctx, []monitor.SourceChange{change(c[1], monitor.Onset, never), change(c[2], monitor.NoTransition, never)})
		if err == nil && (!made[0] || !made[1]) {
			err = fmt.Errorf("changes beside a configuration: %v", made)
		}
		return err
	})
}

// numbered has several instances learn sources at once: one for certain while another has not
// committed what it learned, and then many the same ones.
func numbered(t *testing.T, url string) error {
	const learners, names = 6, 40
	first := open(t, url).Monitor()
	event := fmt.Sprintf("n%d", time.Now().UnixNano())
	if _, err := first.Configure(t.Context(), monitor.Configuration{Checks: []monitor.Check{{Name: event, Interval: time.Hour}}, Keep: true}); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, connect(t, url))
	know := postgres.InSQL("SELECT count(*) FROM {{rules}}.monitor_resolve_sources(0, ARRAY[$1], ARRAY['under way'], NULL, 100, 10000)")
	if _, err := tx.Exec(t.Context(), know, event); err != nil {
		t.Fatal(err)
	}
	beside := later(func() error {
		_, err := first.ResolveSources(t.Context(), []monitor.SourceRef{{Check: event, Source: "beside"}})
		return err
	})
	waiting(t, url, 1)
	commit(t, tx)
	if err := <-beside; err != nil {
		return err
	}
	tables := make([]*postgres.Store, learners)
	for i := range tables {
		tables[i] = open(t, url)
	}
	ctx := amply(t)
	var all sync.WaitGroup
	errs := make([]error, learners)
	for i, s := range tables {
		all.Go(func() {
			for n := range names {
				refs := []monitor.SourceRef{{Check: event, Source: fmt.Sprintf("s%d", (n+i)%names)}, {Check: event, Source: fmt.Sprintf("s%d", n)}}
				if _, err := s.Monitor().ResolveSources(ctx, refs); err != nil {
					errs[i] = err
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var got string
	err := connect(t, url).QueryRow(t.Context(), `SELECT format('%s sources, %s counted, 1 to %s', count(*), (SELECT source_name_count FROM understudy.vnf_table_1 WHERE event_name = $1),
		max(source_name_key)) FROM understudy.vnf_table_2 WHERE event_name = $1`, event).Scan(&got)
	if want := fmt.Sprintf("%d sources, %[1]d counted, 1 to %[1]d", names+2); err == nil && got != want {
		err = fmt.Errorf("learned %s; want %s", got, want)
	}
	return err
}

// TestBeatsInAnyOrder: instances that store beats of the same sources, while others turn
// these, never end in a deadlock that a caller sees.
func TestBeatsInAnyOrder(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url, s, ids := fleet(t, server, 500)
	var all sync.WaitGroup
	for range 3 {
		m := open(t, url).Monitor()
		all.Go(func() {
			for n := range 10 {
				some := slices.Clone(ids)
				if n%2 == 0 {
					slices.Reverse(some)
				}
				storeBeats(t, m, some)
			}
		})
	}
	for range 2 {
		all.Go(func() {
			for range 10 {
				exec(t, url, "UPDATE understudy.monitor_due SET due = 0 WHERE id % 3 = 0")
				look, err := s.Monitor().DueSources(t.Context(), everywhere, monitor.MaxSources)
				if err != nil {
					t.Error(err)
					return
				}
				var changes []monitor.SourceChange
				for _, c := range look.Candidates {
					turn := monitor.Onset
					if c.Alarm != "" {
						turn = monitor.Abated
					}
					changes = append(changes, change(c, turn, never))
				}
				slices.Reverse(changes)
				if _, err := s.Monitor().ApplyChanges(t.Context(), changes); err != nil && !strings.Contains(err.Error(), "duplicate") {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

package api

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/shard"
)

type seriesAnswer struct {
	EveryMS int64 `json:"every_ms"`
	Series  []apitype.Series
}

func (g *rig) series(query string) (out seriesAnswer) {
	g.t.Helper()
	a := g.do("GET", "/v1/series"+query, "")
	a.want(200, "")
	a.into(&out)
	return out
}

func known(points []*float64) (out string) {
	for _, p := range points {
		if p == nil {
			out += "- "
		} else {
			out += fmt.Sprint(*p, " ")
		}
	}
	return strings.TrimSpace(out)
}

func TestSeries(t *testing.T) {
	g := newRig(t)
	s := g.s.poller.series
	now := time.Now()
	if !s.startSlotIfDue(now) || s.startSlotIfDue(now.Add(seriesEvery/2)) {
		t.Error("a slot begins when it should not, or does not when it should")
	}
	s.record("depth", "messages", 2, false)
	s.record("depth", "messages", 3, false)
	s.record("lag", "transactions", 7, true)
	s.record("lag", "transactions", 4, true)
	if !s.startSlotIfDue(now.Add(3 * seriesEvery)) {
		t.Error("three slots later none has begun")
	}
	s.record("depth", "messages", 1.23456, false)

	if got := g.series(""); got.EveryMS != 10_000 || len(got.Series) != 2 || got.Series[0].Name != "depth" || got.Series[0].Points != nil {
		t.Errorf("the names: %+v", got)
	}
	got := g.series("?name=depth&name=lag&name=nothing")
	if len(got.Series) != 2 || known(got.Series[0].Points) != "5 - - 1.235" || known(got.Series[1].Points) != "7 - - -" || got.Series[1].Unit != "transactions" {
		t.Errorf("the points: %s and %s", known(got.Series[0].Points), known(got.Series[1].Points))
	}
	g.do("GET", "/v1/series?"+strings.Repeat("name=x&", maxAsked+1), "").want(400, "invalid")

	// An hour later nothing of it is left, however long nobody looked.
	s.startSlotIfDue(now.Add((seriesPoints + 2) * seriesEvery))
	s.record("depth", "messages", 9, false)
	if got := g.series("?name=depth"); len(got.Series[0].Points) != seriesPoints || strings.Count(known(got.Series[0].Points), "-") != seriesPoints-2 {
		t.Errorf("an hour later: %s", known(got.Series[0].Points))
	}
	s.startSlotIfDue(now.Add(20 * time.Hour))
	if got := g.series("?name=depth"); strings.Trim(known(got.Series[0].Points), "- ") != "" {
		t.Errorf("a day later: %s", known(got.Series[0].Points))
	}
}

func TestSeriesAreBounded(t *testing.T) {
	s := newSeries()
	now := time.Now()
	s.startSlotIfDue(now)
	for n := range maxSeries + 10 {
		s.record(fmt.Sprint("depth/", n), "messages", 1, false)
	}
	if len(s.lines) != maxSeries || s.lines["depth/205"] != nil {
		t.Errorf("%d series", len(s.lines))
	}
	s.startSlotIfDue(now.Add((seriesPoints + 1) * seriesEvery))
	if s.record("depth/205", "messages", 1, false); len(s.lines) != maxSeries || s.lines["depth/205"] == nil {
		t.Error("none has made room that nobody has heard of for an hour")
	}
}

// TestSlowReaderOfSeries: a caller that does not read the answer does not hold up the writing of points.
func TestSlowReaderOfSeries(t *testing.T) {
	s := newSeries()
	s.startSlotIfDue(time.Now())
	writes, goes := make(chan struct{}), make(chan struct{})
	defer close(goes)
	w := &stuckWriter{ResponseRecorder: httptest.NewRecorder(), writes: sync.OnceFunc(func() { close(writes) }), goes: goes}
	go func() { _ = s.get(w, httptest.NewRequest("GET", "/v1/series", nil)) }()
	<-writes
	if !s.mu.TryLock() {
		t.Error("it holds the lock")
	}
}

// stuckWriter does not return from Write before goes is closed.
type stuckWriter struct {
	*httptest.ResponseRecorder
	writes func()
	goes   chan struct{}
}

func (w *stuckWriter) Write(b []byte) (int, error) {
	w.writes()
	<-w.goes
	return len(b), nil
}

func TestTakeoversAreSeries(t *testing.T) {
	s := newSeries()
	s.startSlotIfDue(time.Now())
	event := func(part, from, to, reason string, term int64, took time.Duration) history.Event {
		return history.Event{Part: part, Subject: "x", From: from, To: to, Reason: reason, Term: term, Duration: took}
	}
	s.recordTakeovers([]history.Event{
		event("role", "a", "b", history.Lapsed, 3, 40*time.Millisecond),
		event("role", "", "b", history.Successor, 4, 30*time.Millisecond),
		event("role", "", "a", history.Vacant, 7, 0),               // for the first time
		event("role", "", "a", history.Vacant, 9, 24*time.Hour),    // nobody was there to take over
		event("role", "a", "a", "asked to resign", 9, time.Second), // nothing changed hands
		event("role", "a", "", "released", 9, time.Second),         // it was let go
		event("shard", "a", "b", "vacant", 9, time.Second),         // a shard's are those of its plans
		event("monitor/sources", "", "b", history.Vacant, 9, time.Second),
	})
	ended := func(epoch int64, kind shard.Kind, failed string) shard.View {
		return shard.View{Row: shard.Row{Name: "x", Last: &shard.Plan{Epoch: epoch, Kind: kind, From: "a", To: "b", Failed: failed, Took: time.Hour + time.Duration(epoch)*time.Second,
			Steps: []shard.Step{{Phase: shard.Detaching, Took: time.Duration(epoch) * time.Second}, {Phase: shard.Following, Took: time.Hour}}}}}
	}
	for _, v := range []shard.View{
		ended(9, shard.Failover, ""), // before the shard was seen
		ended(5, shard.Failover, ""), ended(5, shard.Failover, ""), ended(7, shard.Failover, "nobody can be promoted"), ended(8, shard.Repair, ""),
	} {
		s.recordPlans([]shard.View{v})
	}
	for name, want := range map[string]string{"takeover": "5000", "takeover/role/x": "40", "takeover/shard/x": "5000"} {
		if l := s.lines[name]; l == nil || known(s.points(l)) != want {
			t.Errorf("%s is %+v, want %s", name, l, want)
		}
	}
	if len(s.lines) != 3 {
		t.Errorf("%d series", len(s.lines))
	}
}

func TestSampleOfQueues(t *testing.T) {
	g := newQueueRig(t)
	g.do("POST", "/v1/queues", `{"queue":"parcels"}`).want(201, "")
	g.add("a", "a0", "x")
	g.add("b", "b0", "x")
	g.s.queues.invalidate()
	b := g.s.poller
	b.series.startSlotIfDue(time.Now())
	b.series.sample(t.Context(), b)
	got := g.series("?name=depth&name=depth/orders&name=depth/parcels")
	if len(got.Series) != 3 || known(got.Series[0].Points) != "2" || known(got.Series[1].Points) != "2" || known(got.Series[2].Points) != "0" {
		t.Errorf("%+v", got)
	}
}

func TestSampleOfShards(t *testing.T) {
	g := newShardRig(t)
	b := g.s.poller
	b.series.startSlotIfDue(time.Now())
	b.series.sample(t.Context(), b)
	if got := g.series("?name=lag/orders"); len(got.Series) != 1 || known(got.Series[0].Points) != "10" {
		t.Errorf("%+v", got)
	}
	b.poll(t.Context())
	g.decide(func(r *shard.Row) {
		r.Last = &shard.Plan{Epoch: 8, Kind: shard.Failover, From: nodeID(1), To: nodeID(2), Took: 2 * time.Second, Steps: []shard.Step{{Phase: shard.Promoting, Took: 2 * time.Second}}}
	})
	b.poll(t.Context())
	if got := g.series("?name=takeover/shard/orders"); len(got.Series) != 1 || known(got.Series[0].Points) != "2000" {
		t.Errorf("after a failover: %+v", got)
	}
}

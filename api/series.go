package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

const (
	// seriesEvery is the time that one point stands for, and seriesPoints how many are kept: an hour.
	seriesEvery  = 10 * time.Second
	seriesPoints = 360
	maxSeries    = 200
	// maxAsked is how many one request may ask for.
	maxAsked = 20
	// longestTakeover is the longest time without a holder that counts as a takeover: after more, it was out of use.
	longestTakeover = 10 * time.Minute
)

// ring is one series: a ring of points.
type ring struct {
	unit   string
	points [seriesPoints]float32 // NaN where nothing is known
	last   int64                 // the slot of its latest point
}

// series keeps what the page draws, in memory: it is empty when the process starts.
type series struct {
	mu    sync.Mutex
	began time.Time
	slot  int64 // the latest; points of it may still be written
	lines map[string]*ring

	// Of the poller alone:

	accepted int64 // beats, when they were last counted; negative before
	counted  time.Time
	plans    map[string]int64 // by shard: the epoch of its latest plan that has ended, when last read
}

func newSeries() *series { return &series{lines: map[string]*ring{}, accepted: -1} }

// startSlotIfDue reports whether a new slot has started, and starts it.
func (s *series) startSlotIfDue(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began.IsZero() {
		s.began = now
		return true
	}
	slot := int64(now.Sub(s.began) / seriesEvery)
	if slot <= s.slot {
		return false
	}
	for at := max(s.slot+1, slot-seriesPoints+1); at <= slot; at++ {
		for _, l := range s.lines {
			l.points[at%seriesPoints] = float32(math.NaN())
		}
	}
	s.slot = slot
	return true
}

// record writes the point of the present slot: the sum, or the greatest, of what is put there.
func (s *series) record(name, unit string, v float64, greatest bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[name]
	if l == nil {
		if !s.makeRoom() {
			return
		}
		l = &ring{unit: unit}
		for i := range l.points {
			l.points[i] = float32(math.NaN())
		}
		s.lines[name] = l
	}
	at := &l.points[s.slot%seriesPoints]
	switch old := float64(*at); {
	case math.IsNaN(old):
		*at = float32(v)
	case greatest:
		*at = float32(max(old, v))
	default:
		*at = float32(old + v)
	}
	l.last = s.slot
}

// makeRoom makes place for one more, if need be where nothing came for an hour.
func (s *series) makeRoom() bool {
	if len(s.lines) < maxSeries {
		return true
	}
	for name, l := range s.lines {
		if s.slot-l.last >= seriesPoints {
			delete(s.lines, name)
			return true
		}
	}
	return false
}

// recordTakeovers records the takeovers of roles.
func (s *series) recordTakeovers(events []history.Event) {
	for _, e := range events {
		first := e.Reason == history.Vacant && e.Duration == 0
		if e.Part == elect.Space && e.To != "" && e.From != e.To && !first && e.Duration <= longestTakeover {
			s.recordTakeover(e.Part, e.Subject, e.Duration)
		}
	}
}

// recordPlans records the takeovers of shards: the plans that have ended since the last call with another primary. What had
// ended before a shard was first seen is not of now.
func (s *series) recordPlans(shards []shard.View) {
	seen := make(map[string]int64, len(shards))
	for _, v := range shards {
		last := v.Row.Last
		if last == nil {
			last = &shard.Plan{}
		}
		seen[v.Row.Name] = last.Epoch
		moved := (last.Kind == shard.Failover || last.Kind == shard.Switchover) && last.Failed == "" && last.To != "" && last.From != last.To
		without := last.UntilPrimary()
		if before, known := s.plans[v.Row.Name]; known && last.Epoch != before && moved && without <= longestTakeover {
			s.recordTakeover(shard.Space, v.Row.Name, without)
		}
	}
	s.plans = seen
}

func (s *series) recordTakeover(part, subject string, without time.Duration) {
	ms := float64(without.Microseconds()) / 1000
	s.record("takeover", "ms", ms, true)
	s.record("takeover/"+part+"/"+subject, "ms", ms, true)
}

// sample takes a point of everything that has a level.
func (s *series) sample(ctx context.Context, b *poller) {
	if b.s.queues.admin != nil {
		seen, err := b.s.queues.latest(ctx, queueFresh)
		for _, one := range seen.views {
			if err == nil {
				s.record("depth", "messages", float64(one.Depth), false)
				s.record("depth/"+one.Queue, "messages", float64(one.Depth), false)
			}
		}
	}
	if v := b.s.shards.state(); v != nil && v.Error == "" {
		for _, one := range v.List {
			for _, n := range one.Nodes {
				if n.InStep && !n.Primary && n.AgentLives {
					s.record("lag", "transactions", float64(n.Lag), true)
					s.record("lag/"+one.Name, "transactions", float64(n.Lag), true)
				}
			}
		}
	}
	if own := b.s.monitor.ownView(); own != nil {
		now := time.Now()
		if s.accepted >= 0 && own.Accepted >= s.accepted && now.After(s.counted) {
			s.record("beats", "beats/s", float64(own.Accepted-s.accepted)/now.Sub(s.counted).Seconds(), true)
		}
		s.accepted, s.counted = own.Accepted, now
	}
}

// get lists the series by name or, asked with names, shows them with their points.
func (s *series) get(w http.ResponseWriter, r *http.Request) error {
	names := r.URL.Query()["name"]
	if len(names) > maxAsked {
		return fmt.Errorf("%w: ask for %d names at most, not for %d", lease.ErrInvalid, maxAsked, len(names))
	}
	return writeJSON(w, http.StatusOK, apitype.SeriesList{EveryMS: seriesEvery.Milliseconds(), Series: s.list(names)})
}

// list returns the series with their points; without names, all without their points.
func (s *series) list(names []string) []apitype.Series {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []apitype.Series{}
	for name, l := range s.lines {
		switch {
		case len(names) == 0:
			out = append(out, apitype.Series{Name: name, Unit: l.unit})
		case slices.Contains(names, name):
			out = append(out, apitype.Series{Name: name, Unit: l.unit, Points: s.points(l)})
		}
	}
	slices.SortFunc(out, func(a, b apitype.Series) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (s *series) points(l *ring) []*float64 {
	out := make([]*float64, 0, seriesPoints)
	for at := max(0, s.slot-seriesPoints+1); at <= s.slot; at++ {
		var p *float64
		if v := float64(l.points[at%seriesPoints]); !math.IsNaN(v) {
			p = new(math.Round(v*1000) / 1000)
		}
		out = append(out, p)
	}
	return out
}

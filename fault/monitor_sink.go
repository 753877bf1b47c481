//go:build linux

package fault

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// Mood is how an [AlarmSink] treats who tells it.
type Mood int

// Moods.
const (
	Kind   Mood = iota
	Fickle      // errors, slowness, and connections cut before and after it took what came
	Away        // connections are cut
	Stuck       // nothing is answered
)

// AlarmSink is told of alarms, in the test's own process. It recognises what it has.
type AlarmSink struct {
	URL string

	mu     sync.Mutex
	random *rand.Rand
	mood   Mood
	told   []Told
	times  map[string]int
	stands map[string]bool // sources whose alarm stands, by what came first
	turned chan struct{}   // closed when the mood changes
}

// NewAlarmSink starts a sink that ends with the test.
func NewAlarmSink(tb testing.TB, seed uint64) *AlarmSink {
	tb.Helper()
	s := &AlarmSink{random: rand.New(rand.NewPCG(seed, 11)), times: map[string]int{}, stands: map[string]bool{}, turned: make(chan struct{})}
	over, end := context.WithCancel(context.Background())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(over, w, r) }))
	tb.Cleanup(func() { end(); server.Close() })
	s.URL = server.URL
	return s
}

// Feel sets the mood.
func (s *AlarmSink) Feel(m Mood) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mood = m
	close(s.turned)
	s.turned = make(chan struct{})
}

func (s *AlarmSink) serve(over context.Context, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // its sender is gone
	}
	s.mu.Lock()
	mood, turned, dice, wait := s.mood, s.turned, s.random.IntN(10), time.Duration(s.random.Int64N(int64(300*time.Millisecond)))
	s.mu.Unlock()
	switch {
	case mood == Away:
		panic(http.ErrAbortHandler)
	case mood == Stuck:
		select {
		case <-over.Done():
		case <-r.Context().Done():
		case <-turned:
		}
		panic(http.ErrAbortHandler)
	case mood == Fickle && dice < 2:
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return
	case mood == Fickle && dice < 3:
		panic(http.ErrAbortHandler)
	case mood == Fickle && dice < 5:
		select {
		case <-over.Done():
		case <-time.After(wait):
		}
	}
	t := Told{ID: r.Header.Get("Idempotency-Key"), At: time.Now()}
	if err := json.Unmarshal(body, &t.AlarmMessage); err != nil || t.ID == "" {
		http.Error(w, "this is no alarm", http.StatusBadRequest)
		return
	}
	s.take(t)
	if mood == Fickle && dice == 5 {
		panic(http.ErrAbortHandler) // taken, and nothing is said of it
	}
}

func (s *AlarmSink) take(t Told) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times[t.ID]++; s.times[t.ID] == 1 {
		s.stands[t.Source] = t.Status == monitor.Onset
	}
	s.told = append(s.told, t)
}

// Told is all that it took.
func (s *AlarmSink) Told() []Told {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.told)
}

// Messages is how many different ones it took.
func (s *AlarmSink) Messages() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.times)
}

// Of is what it was told of a source, each message once.
func (s *AlarmSink) Of(source string) (own []Told) {
	seen := map[string]bool{}
	for _, t := range s.Told() {
		if t.Source == source && !seen[t.ID] {
			own = append(own, t)
		}
		seen[t.ID] = true
	}
	return own
}

// Stands reports whether the last that it was told of a source is an ONSET.
func (s *AlarmSink) Stands(source string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stands[source]
}

package api

import (
	"encoding/json"
	"strconv"
	"sync"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/history"
)

const (
	maxStreams = 100 // each holds a connection and a goroutine
	// pageStreams of them are kept for pages, whose streams have the state.
	pageStreams = 10
	// maxRecent is how many events are kept for all readers together, for those that are behind and those that
	// reconnect. Up to twice as many are in memory.
	maxRecent = 2000
)

// streamEvent is one server-sent event, encoded once for all readers.
type streamEvent struct {
	event *history.Event // nil for the state
	frame []byte
}

// stream keeps the latest events and wakes its readers. It never waits for a reader: one that is so far behind that its next
// event is no longer kept is dropped, reconnects with Last-Event-ID, and reads the gap from the store.
type stream struct {
	mu      sync.Mutex
	readers map[*reader]struct{}
	recent  []streamEvent // in the order in which they came
	dropped int64         // how many came before them
	state   streamEvent   // the latest; older ones are worthless
	states  int64         // how many there were
	newest  int64         // the highest id of an event; negative: the store has not been read yet
}

// reader is one open request. Its stream's mutex guards the fields that change.
type reader struct {
	part, subject string // what it wants of the history; "" is everything
	state         bool   // … and the state, too

	wake   chan struct{} // there is an event for it, or it was dropped
	next   int64         // position of the first event that it has not had
	states int64         // the last state that it has had
	newest int64         // the stream's when it was opened
}

func newStream() *stream { return &stream{readers: map[*reader]struct{}{}, newest: -1} }

func newReader(part, subject string, state bool) *reader {
	return &reader{part: part, subject: subject, state: state, wake: make(chan struct{}, 1)}
}

// subscribe adds a reader that continues after the event with the id after, or with the next one if after is negative.
// known is false if that event is no longer kept: then the events since are in the store alone.
func (s *stream) subscribe(r *reader, after int64) (known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers[r] = struct{}{}
	r.wakeUp()
	r.next, r.newest = s.dropped+int64(len(s.recent)), s.newest
	for i, m := range s.recent {
		if m.event.ID == after {
			r.next = s.dropped + int64(i) + 1
			return true
		}
	}
	return after < 0
}

func (s *stream) unsubscribe(r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.readers, r)
}

// pending returns the events that the reader has not had yet; false if it was dropped.
func (s *stream) pending(r *reader) (out []streamEvent, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.readers[r]; !ok {
		return nil, false
	}
	for _, m := range s.recent[r.next-s.dropped:] {
		if r.wants(*m.event) {
			out = append(out, m)
		}
	}
	r.next = s.dropped + int64(len(s.recent))
	if r.state && r.states < s.states {
		r.states = s.states
		out = append(out, s.state)
	}
	return out, true
}

// hasStateReaders reports whether a reader wants the state.
func (s *stream) hasStateReaders() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.readers {
		if r.state {
			return true
		}
	}
	return false
}

func (s *stream) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.readers)
}

// startAfter tells which event was the newest before the first that is published.
func (s *stream) startAfter(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = max(s.newest, id)
}

// publish adds an event for all readers.
func (s *stream) publish(m streamEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.event == nil {
		s.state = m
		s.states++
	} else {
		s.recent = append(s.recent, m)
		s.newest = max(s.newest, m.event.ID)
		if len(s.recent) >= 2*maxRecent { // drop half at once, so that the copy is rare
			s.recent = append([]streamEvent(nil), s.recent[maxRecent:]...)
			s.dropped += maxRecent
		}
	}
	for r := range s.readers {
		// Its next event is gone: a gap in the middle of a stream would look like history without it.
		if r.next < s.dropped {
			delete(s.readers, r)
		}
		r.wakeUp()
	}
}

func (r *reader) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reader) wants(e history.Event) bool {
	return (r.part == "" || r.part == e.Part) && (r.subject == "" || r.subject == e.Subject)
}

// newHistoryEvent and newStateEvent encode a value for the stream.
func newHistoryEvent(e history.Event) (streamEvent, error) {
	frame, err := namedFrame("history", viewEvent(e))
	return streamEvent{event: &e, frame: append([]byte("id: "+strconv.FormatInt(e.ID, 10)+"\n"), frame...)}, err
}

func newStateEvent(s apitype.State) (streamEvent, error) {
	frame, err := namedFrame("state", s)
	return streamEvent{frame: frame}, err
}

// namedFrame puts a value into the form of the stream. JSON has no line breaks, so that no value can end its field early.
func namedFrame(name string, v any) ([]byte, error) {
	data, err := json.Marshal(v)
	return []byte("event: " + name + "\ndata: " + string(data) + "\n\n"), err
}

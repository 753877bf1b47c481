package api

import (
	"encoding/json"
	"strconv"
	"sync"

	"github.com/understudy-ha/understudy/history"
)

const (
	maxStreams = 100
	// maxRecent is how many events are kept for all readers together: those that
	// are behind, and those that come back.
	maxRecent = 2000
)

// message is one server-sent event, made once for all readers.
type message struct {
	event *history.Event // nil for the state
	frame []byte
}

// stream keeps the latest of what the board sees, and wakes its readers. It
// never waits for one: a reader that is so far behind that what it needs is no
// longer kept is left out.
type stream struct {
	mu      sync.Mutex
	readers map[*reader]struct{}
	recent  []message // in the order in which they came
	dropped int64     // how many came before them
	state   message   // the latest, of which no other is of interest
	states  int64     // how many there were
}

// reader is one open request. The mutex of its stream guards what changes.
type reader struct {
	part, subject string // what it wants of the history; "" is everything
	state         bool   // … and the state, too

	wake   chan struct{} // something is there for it, or it was left out
	next   int64         // the first event that it has not had, counted from the first of all
	states int64         // the last state that it has had
}

func newStream() *stream { return &stream{readers: map[*reader]struct{}{}} }

func newReader(part, subject string, state bool) *reader {
	return &reader{part: part, subject: subject, state: state, wake: make(chan struct{}, 1)}
}

// join adds a reader that has seen the event with the id after and goes on from
// there, or from now on if that is negative. known is false if that event is no
// longer kept: then what came after it, up to now, is in the store alone.
func (s *stream) join(r *reader, after int64) (known bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.readers) >= maxStreams {
		return false, errBusy
	}
	s.readers[r] = struct{}{}
	r.nudge()
	r.next = s.dropped + int64(len(s.recent))
	for i, m := range s.recent {
		if m.event.ID == after {
			r.next = s.dropped + int64(i) + 1
			return true, nil
		}
	}
	return after < 0, nil
}

func (s *stream) leave(r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.readers, r)
}

// take returns what is there for the reader; false if it was left out.
func (s *stream) take(r *reader) (out []message, ok bool) {
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

// viewers tells whether anybody wants the state.
func (s *stream) viewers() bool {
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

// pass takes in a message for whoever wants it.
func (s *stream) pass(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.event == nil {
		s.state = m
		s.states++
	} else {
		s.recent = append(s.recent, m)
		if len(s.recent) >= 2*maxRecent { // by halves, so that it is rare
			s.recent = append([]message(nil), s.recent[maxRecent:]...)
			s.dropped += maxRecent
		}
	}
	for r := range s.readers {
		if r.next < s.dropped {
			delete(s.readers, r)
		}
		r.nudge()
	}
}

func (r *reader) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reader) wants(e history.Event) bool {
	return (r.part == "" || r.part == e.Part) && (r.subject == "" || r.subject == e.Subject)
}

// eventMessage and stateMessage put a value into the form of the stream. JSON has
// no line breaks, so that nothing in it can end its field.
func eventMessage(e history.Event) (message, error) {
	data, err := json.Marshal(e)
	frame := "id: " + strconv.FormatInt(e.ID, 10) + "\nevent: history\ndata: " + string(data) + "\n\n"
	return message{event: &e, frame: []byte(frame)}, err
}

func stateMessage(v any) (message, error) {
	data, err := json.Marshal(v)
	return message{frame: []byte("event: state\ndata: " + string(data) + "\n\n")}, err
}

package demo

import (
	"slices"
	"sync"
	"time"
)

// What the page shows is bounded: so far back, and so many of each.
const (
	recordFor = 2 * time.Minute
	mostMarks = 100
	// joined is the longest pause between two looks at somebody at work that counts as one stretch of it: each key of
	// the queue is delivered every keyCount*pace.
	joined = 1200 * time.Millisecond
)

// record is what has happened, for the page: who was seen at work, what was done to whom, and what came of it.
type record struct {
	mu       sync.Mutex
	parts    map[string][]*lane
	marks    []mark
	outcomes []result
	ids      int64
}

// lane is one who can be at work for a part.
type lane struct {
	Name  string `json:"name"`
	Spans []span `json:"spans"` // oldest first

	seen bool // by looking again and again
}

// span is a stretch of work, in milliseconds since 1970. Open: it goes on.
type span struct {
	From int64 `json:"from_ms"`
	To   int64 `json:"to_ms"`
	Open bool  `json:"open,omitempty"`
}

// mark is something that was done to a process, or asked of it.
type mark struct {
	ID   int64  `json:"id"`
	At   int64  `json:"at_ms"`
	Part string `json:"part,omitempty"` // "" is each part that the process works for
	Lane string `json:"lane"`
	Kind string `json:"kind"`
}

// The kinds of marks.
const (
	ended  = "ended"  // killed, mostly
	back   = "back"   // runs again
	frozen = "frozen" // by SIGSTOP
	asked  = "asked"  // to give up what it holds
)

// result is an outcome as the page shows it.
type result struct {
	ID       int64  `json:"id"`
	At       int64  `json:"at_ms"`
	Part     string `json:"part"`
	Text     string `json:"text"`
	Took     int64  `json:"took_ms,omitempty"`
	Promised int64  `json:"promised_ms,omitempty"`
	Kept     bool   `json:"kept"`
}

func newRecord() *record { return &record{parts: map[string][]*lane{}} }

// addLanes says who can be at work for a part, in the order of the page.
func (r *record) addLanes(part string, names ...string) {
	for _, name := range names {
		r.parts[part] = append(r.parts[part], &lane{Name: name, Spans: []span{}})
	}
}

// lane of a part; nil if nobody of that name works for it.
func (r *record) lane(part, name string) *lane {
	for _, l := range r.parts[part] {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// saw notes that somebody was seen at work now.
func (r *record) saw(part, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, now := r.lane(part, name), time.Now().UnixMilli()
	if l == nil {
		return
	}
	if n := len(l.Spans); n > 0 && now-l.Spans[n-1].To <= joined.Milliseconds() && !r.endedSince(name, l.Spans[n-1].To) {
		l.Spans[n-1].To = now
		return
	}
	l.seen = true
	l.add(span{From: now, To: now})
}

// endedSince reports whether a process ended or froze since a time: work after it is another stretch.
func (r *record) endedSince(name string, at int64) bool {
	return slices.ContainsFunc(r.marks, func(m mark) bool { return (m.Kind == ended || m.Kind == frozen) && m.Lane == name && m.At >= at })
}

// start begins a stretch of work that goes on until [record.stop].
func (r *record) start(part, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l, now := r.lane(part, name), time.Now().UnixMilli(); l != nil {
		l.add(span{From: now, To: now, Open: true})
	}
}

// stop ends the earliest stretch that goes on.
func (r *record) stop(part, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lane(part, name)
	if l == nil {
		return
	}
	if i := slices.IndexFunc(l.Spans, func(s span) bool { return s.Open }); i >= 0 {
		l.Spans[i].To, l.Spans[i].Open = time.Now().UnixMilli(), false
	}
}

func (l *lane) add(s span) {
	old := s.From - recordFor.Milliseconds()
	l.Spans = append(slices.DeleteFunc(l.Spans, func(s span) bool { return !s.Open && s.To < old }), s)
}

// mark notes what was done to a process, or asked of it for a part.
func (r *record) mark(kind, part, name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids++
	r.marks = append(r.marks[max(0, len(r.marks)-mostMarks+1):], mark{ID: r.ids, At: time.Now().UnixMilli(), Part: part, Lane: name, Kind: kind})
}

// outcome notes what came of it.
func (r *record) outcome(o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids++
	r.outcomes = append(r.outcomes[max(0, len(r.outcomes)-mostMarks+1):], result{
		ID: r.ids, At: time.Now().UnixMilli(), Part: o.part, Text: withCounts(o.what, o.counted), Took: o.took.Milliseconds(), Promised: o.worst.Milliseconds(), Kept: o.kept(),
	})
}

// read copies what is known of a part: stretches in which somebody was seen lately go on. A machine that is busy, where
// nobody is looked at for a moment, shows no end of work that there was not.
func (r *record) read(part string) (lanes []lane, marks []mark, outcomes []result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now().UnixMilli()
	lanes, marks, outcomes = []lane{}, []mark{}, []result{}
	for _, l := range r.parts[part] {
		out := lane{Name: l.Name, Spans: slices.Clone(l.Spans)}
		if n := len(out.Spans); l.seen && n > 0 && now-out.Spans[n-1].To <= joined.Milliseconds() && !r.endedSince(l.Name, out.Spans[n-1].From) {
			out.Spans[n-1].Open = true
		}
		lanes = append(lanes, out)
	}
	for _, m := range r.marks {
		if (m.Part == part || m.Part == "") && r.lane(part, m.Lane) != nil {
			marks = append(marks, m)
		}
	}
	for _, o := range r.outcomes {
		if o.Part == part {
			outcomes = append(outcomes, o)
		}
	}
	return lanes, marks, outcomes
}

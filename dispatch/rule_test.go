package dispatch

import (
	"strings"
	"testing"
	"time"
)

// TestReasonIsTheCause: what operators are shown of an unknown outcome is what went wrong, with its code, whatever the
// status queries after it brought.
func TestReasonIsTheCause(t *testing.T) {
	once := Semantics{HasStatus: true, Forgets: true, StatusLimit: 1}
	again := once
	again.Resend = true
	last := Semantics{HasStatus: true, StatusLimit: 1} // where it would be sent again otherwise
	for name, c := range map[string]struct {
		semantics Semantics
		cause     string
		query     Answer
		code      int
		detail    string
	}{
		"there is no place to ask":        {once, "HTTP 500: no room", Answer{Outcome: NotFound}, 500, "HTTP 500: no room"},
		"it is not known there":           {once, "HTTP 500: no room", Answer{Outcome: NotFound, Code: 404, Detail: "HTTP 404: what?"}, 500, "HTTP 500: no room; its status: HTTP 404: what?"},
		"the place cannot be asked":       {again, "HTTP 500: no room", Answer{Outcome: Uncertain, Detail: "no answer: timeout"}, 500, "HTTP 500: no room; its status: no answer: timeout"},
		"asked for the second time":       {again, "HTTP 500: no room; its status: HTTP 404: what?", Answer{Outcome: Busy, Code: 429, Detail: "HTTP 429"}, 500, "HTTP 500: no room; its status: HTTP 429"},
		"the instance died":               {once, "", Answer{Outcome: NotFound, Code: 404, Detail: "HTTP 404: what?"}, 404, "HTTP 404: what?"},
		"the target has it":               {once, "HTTP 500: no room", Answer{Outcome: Done, Code: 200}, 200, ""},
		"nothing is known at all":         {once, "", Answer{Outcome: NotFound}, 0, "it is not known whether the target has it"},
		"a cause as long as can be":       {once, strings.Repeat("x", MaxDetail), Answer{Outcome: NotFound, Detail: "no"}, 500, strings.Repeat("x", MaxDetail)},
		"given up as it is not there":     {last, "no answer: timeout", Answer{Outcome: NotFound, Detail: "HTTP 404"}, 0, "no answer: timeout; its status: HTTP 404"},
		"given up after an instance died": {last, "", Answer{Outcome: NotFound}, 0, "the target does not know it"},
		"the time-out of an attempt":      {once, "no answer: context deadline exceeded", Answer{Outcome: NotFound}, 0, "no answer: context deadline exceeded"},
	} {
		a := Assignment{Work: Resolve, Attempt: 1, Detail: c.cause}
		if c.code == 500 {
			a.Code = 500
		}
		got := Rule{Semantics: c.semantics, Retry: RetryPolicy{}.WithDefaults()}.Classify(a, c.query, 0)
		if got.Code != c.code || got.Detail != c.detail {
			t.Errorf("%s: code %d, detail %q", name, got.Code, got.Detail)
		}
	}
	// One that was refused without a word is not there.
	once.HasStatus, once.Forgets = false, false
	got := Rule{Semantics: once, Retry: RetryPolicy{Attempts: 1}.WithDefaults()}.Classify(Assignment{Work: Send, Attempt: 1}, Answer{Outcome: Busy}, 0)
	if got.State != Failed || got.Detail != "" {
		t.Errorf("refused: %+v", got)
	}
}

// A target that answers a submission as only a status query is answered has said nothing of it: attempts are counted, and
// the pauses grow.
func TestNotFoundIsNoAnswerToASubmission(t *testing.T) {
	for _, s := range []Semantics{{}, {Resend: true}, {HasStatus: true, StatusLimit: 1}, {HasStatus: true, StatusLimit: 1, Forgets: true}} {
		r := Rule{Semantics: s, Retry: RetryPolicy{}.WithDefaults()}
		for _, attempt := range []int{1, 7, 500} {
			a := Assignment{Work: Send, Attempt: attempt}
			want := r.Classify(a, Answer{Outcome: Uncertain, Detail: "what?"}, 0.5)
			if got := r.Classify(a, Answer{Outcome: NotFound, Detail: "what?"}, 0.5); got != want {
				t.Errorf("%+v, attempt %d: %+v, want %+v", s, attempt, got, want)
			}
		}
	}
}

// TestUnsentKeepsTheCause: what was not sent again, and not asked about, is unknown for the reason that it was before. Operators
// who read that it was not sent would send it once more.
func TestUnsentKeepsTheCause(t *testing.T) {
	for _, c := range []struct {
		a    Assignment
		want Result
	}{
		{Assignment{Work: Send, Attempt: 3}, Result{State: Delayed, Attempt: 2, Detail: "stopped"}},
		{Assignment{Work: Resolve, Attempt: 3, Code: 504, Detail: "HTTP 504"}, Result{State: Unknown, Attempt: 3, Code: 504, Detail: "HTTP 504"}},
		{Assignment{Work: Resolve, Attempt: 3}, Result{State: Unknown, Attempt: 3}}, // an instance died: the next one says so
	} {
		m := newScripted(t, "-- | status=1").m
		s := &slot{ref: ref{"k", 7}, assignment: c.a}
		m.addSlot(s)
		m.recordUnsent(s, "stopped")
		c.want.Key, c.want.Term, c.want.After = "k", 7, RetryLater
		if got := m.results[0].result; got != c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
}

func TestBeforeSend(t *testing.T) {
	poll, forgets, blind := Semantics{HasStatus: true}, Semantics{HasStatus: true, Forgets: true}, Semantics{Resend: true}
	resolve, retried := Assignment{Work: Resolve, Attempt: 1}, Assignment{Work: Send, Attempt: 1, Retried: true}
	last, old := Assignment{Work: Resolve, Attempt: 9}, Assignment{Work: Resolve, Attempt: 1, Age: time.Hour}
	for _, c := range []struct {
		name    string
		s       Semantics
		a       Assignment
		status  Outcome
		asks    bool
		send    bool
		instead Outcome
		doubt   bool
	}{
		{"a new message", poll, Assignment{Work: Send}, "", false, true, "", false},
		{"unknown, and the target has it", poll, resolve, Done, true, false, Done, false},
		{"unknown, and no answer", poll, resolve, "", true, false, "", false},
		{"unknown, and not there", poll, resolve, NotFound, true, true, "", false},
		{"unknown, and not there any more, perhaps", forgets, resolve, NotFound, true, false, NotFound, false},
		{"unknown, and nobody can be asked", blind, resolve, "", false, true, "", true},
		{"unknown, and neither", Semantics{}, resolve, "", false, false, Uncertain, false},
		{"the last, and the target has it", poll, last, Done, true, false, Done, false},
		{"the last, and not there", poll, last, NotFound, true, false, NotFound, false},
		{"too old, and not there", poll, old, NotFound, true, false, NotFound, false},
		{"the last, and nobody can be asked", blind, last, "", false, false, Uncertain, false},
		{"retried, and done already", poll, retried, Done, true, false, Done, false},
		{"retried, and no answer", poll, retried, Uncertain, true, false, Busy, false},
		{"retried, and not there", poll, retried, NotFound, true, true, "", false},
		{"retried, where nobody can be asked", blind, retried, "", false, true, "", false},
	} {
		r := Rule{Semantics: c.s, Retry: RetryPolicy{Attempts: 9, MaxAge: time.Hour}}
		a, instead, send := r.beforeSend(c.a, Answer{Outcome: c.status})
		attempt := c.a.Attempt
		if c.a.Work == Resolve && c.send {
			attempt++
		}
		if r.queriesFirst(c.a) != c.asks || send != c.send || instead.Outcome != c.instead || a.Doubtful != c.doubt || a.Attempt != attempt || send && a.Work != Send {
			t.Errorf("%s: asks %t, send %t, %+v instead, %+v", c.name, r.queriesFirst(c.a), send, instead, a)
		}
	}
}

// TestReleasedIsCountedOnce: a key that is in a step when it is to be released counts when it is, not at each join until then.
func TestReleasedIsCountedOnce(t *testing.T) {
	s := newScripted(t, "-- | concurrency=2")
	for _, line := range []string{
		"session s1", "joined members=1", "claimed a:1 b:2", "exchanged a:send b:send",
		"at 1s", "joined members=2 mine=2 held=2 least=0", "claimed", "at 2s", "joined members=2 mine=2 held=2 least=0", "claimed",
		"answer a committed", "exchanged a:ready", "released",
	} {
		s.input(strings.Fields(line))
		s.effects()
	}
	if n := s.m.snapshot().Released; n != 1 {
		t.Errorf("%d keys were released, not 1", n)
	}
}

// TestTooOldIsAskedFirst: age ends the questions, too, and not before there was one.
func TestTooOldIsAskedFirst(t *testing.T) {
	r := Rule{Semantics: Semantics{HasStatus: true, Resend: true}, OnFailure: OnFailureSkip, Retry: RetryPolicy{MaxAge: time.Hour}.WithDefaults()}
	for work, want := range map[Work]State{Send: Unknown, Resolve: Failed} {
		got := r.Classify(Assignment{Work: work, Attempt: 1, Age: 2 * time.Hour, Detail: "timeout"}, Answer{Outcome: Uncertain, Detail: "timeout"}, 0)
		if got.State != want || (got.After == RetryLater) != (want == Unknown) {
			t.Errorf("%s: %+v", work, got)
		}
	}
}

// TestStoppingDoesNotSpin: nothing is polled any more, so that a status query which hangs leaves nothing to wake up for.
func TestStoppingDoesNotSpin(t *testing.T) {
	s := newScripted(t, "-- | status=1")
	for _, line := range []string{"session s1", "joined members=1", "claimed a:1", "exchanged a:poll", "at 1s", "stop", "at 9s"} {
		s.input(strings.Fields(line))
		s.effects()
	}
	if at := s.m.nextWake(s.now); at <= s.now {
		t.Errorf("it wakes at %v, at %v", at, s.now)
	}
}

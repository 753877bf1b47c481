package dispatch

import (
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// reporter logs what goes wrong while a queue is delivered: a line when it starts, one a minute with counts while it
// lasts, and one when it has ended. The runner's goroutine calls it.
type reporter struct {
	now         time.Duration
	submissions outage
	queries     outage
	store       outage
	blocked     outage // of keys; it ends where the store is asked which are (see watchBlocked)
	deadLetters tally
}

// reportEvery is how often something is logged that continues.
const reportEvery = time.Minute

func newReporter(log *slog.Logger, target string) *reporter {
	warn := func(message string, more ...any) tally {
		return tally{log: func(attrs ...any) { log.Warn(message, append(attrs, more...)...) }}
	}
	info := func(message string, more ...any) func(...any) {
		return func(attrs ...any) { log.Info(message, append(attrs, more...)...) }
	}
	return &reporter{
		submissions: outage{failed: warn("target failing; sending again", "target", target), recovered: info("target takes messages again", "target", target)},
		queries:     outage{failed: warn("status queries failing; asking again", "target", target), recovered: info("target answers status queries again", "target", target)},
		store:       outage{failed: warn("request to the store failed; trying again"), recovered: info(lease.StoreAnswers)},
		blocked:     outage{failed: warn("keys blocked; see understudy queue keys --blocked"), recovered: info("no key is blocked any more")},
		deadLetters: warn("messages dead-lettered; see understudy queue list"),
	}
}

// tick logs what is due.
func (r *reporter) tick(now time.Duration) {
	r.now = now
	for _, t := range []*tally{&r.submissions.failed, &r.queries.failed, &r.store.failed, &r.blocked.failed, &r.deadLetters} {
		t.report(now)
	}
}

// answered notes the answer to a submission, or to the status query that came instead of it.
func (r *reporter) answered(a Assignment, answer Answer) {
	switch answer.Outcome {
	case NotFound:
	case Busy, Misconfigured, Uncertain:
		r.submissions.fail(r.now, append([]any{"key", a.Key, "id", a.ID}, why(answer.Code, answer.Detail)...)...)
	default:
		r.submissions.succeed(r.now)
	}
}

// polled notes the answers to a status query.
func (r *reporter) polled(answers []Answer) {
	for _, answer := range answers {
		if answer.Outcome != Uncertain {
			r.queries.succeed(r.now)
			return
		}
	}
	r.queries.fail(r.now, append([]any{"messages", len(answers)}, why(answers[0].Code, answers[0].Detail)...)...)
}

// recorded notes a result that blocks its key, or dead-letters its message.
func (r *reporter) recorded(id string, result Result) {
	facts := append([]any{"key", result.Key, "id", id, "state", result.State}, why(result.Code, result.Detail)...)
	switch {
	case result.After == Block, result.After == Stuck:
		r.blocked.fail(r.now, facts...)
	case result.State == Invalid, result.State == Failed:
		r.deadLetters.add(r.now, facts...)
	}
}

// why names the cause of a failure. It has no code when there was no answer.
func why(code int, detail string) []any {
	if code == 0 {
		return []any{"detail", detail}
	}
	return []any{"code", code, "detail", detail}
}

// tally logs the first of its kind at once, and those after it once a minute: what happens now and then must not fill
// the log.
type tally struct {
	log   func(attrs ...any)
	n     int // since the last line
	lines int
	at    time.Duration // of the last one
	last  []any
}

func (t *tally) add(now time.Duration, facts ...any) {
	t.n++
	t.last = facts
	t.report(now)
}

func (t *tally) report(now time.Duration) {
	if t.n == 0 || t.lines > 0 && now < t.at+reportEvery {
		return
	}
	t.log(append([]any{"count", t.n}, t.last...)...)
	t.lines, t.at, t.n = t.lines+1, now, 0
}

// outage is something that may fail for a while.
type outage struct {
	failed    tally
	recovered func(attrs ...any)
	down      bool
	since     time.Duration
	failures  int // since then
	ended     int // lines whose end was logged
}

func (o *outage) fail(now time.Duration, facts ...any) {
	if !o.down {
		o.down, o.since, o.failures = true, now, 0
	}
	o.failures++
	o.failed.add(now, facts...)
}

// succeed ends an outage. One that no line was about ends in silence: its failures are counted by the next line.
func (o *outage) succeed(now time.Duration) {
	if o.down && o.failed.lines > o.ended {
		o.ended, o.failed.n = o.failed.lines, 0 // the line below counts what no line has counted
		o.recovered("failures", o.failures, "after", (now - o.since).Round(time.Millisecond))
	}
	o.down = false
}

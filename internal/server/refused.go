package server

import (
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

// refusals says in the log that a target refused batches for good, which would
// otherwise only be seen by who lists them: once a minute. A dispatcher calls it from one goroutine.
type refusals struct {
	log   *slog.Logger
	queue string
	said  time.Time
	n     int // since then
}

// refusedEvery is how often it is said.
const refusedEvery = time.Minute

func (r *refusals) logRefusal(c dispatch.Result) {
	if c.State != dispatch.Invalid && c.State != dispatch.Failed {
		return
	}
	r.n++
	if now := time.Now(); now.Sub(r.said) >= refusedEvery {
		r.log.Warn("a batch was not taken, and is over or blocks its key; see understudy queue list", "queue", r.queue, "key", c.Key,
			"state", c.State, "code", c.Code, "detail", c.Detail, "of_late", r.n)
		r.said, r.n = now, 0
	}
}

package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// recordTimeout bounds the writing of an act to the history: its caller waits for it, and the cache needs no store otherwise.
const recordTimeout = 2 * time.Second

// acts records in the history what operators change and no store records by itself.
type acts struct {
	history history.Log // nil: a cache without a store has none
	log     *slog.Logger
}

// outcomeUnknown follows an act that may have been carried out.
const outcomeUnknown = "requested (outcome unknown)"

// recordUnknown adds an act that failed if it may have been carried out all the same: a caller who hangs up at the right
// moment must not hide it.
func (a acts) recordUnknown(r *http.Request, err error, part, subject, act, by string) {
	if errors.Is(err, lease.ErrUnknown) {
		a.record(r, part, subject, act+" "+outcomeUnknown, by)
	}
}

// record adds an act that has been carried out, with the caller; by is what that says about itself, if anything. One that
// cannot be written is in the log: an error would tell the caller that nothing was done.
func (a acts) record(r *http.Request, part, subject, did, by string) {
	if a.history == nil {
		return
	}
	who, err := requesterOf(r, by)
	if err == nil {
		// The caller may have gone, or its time be up; what it did is recorded all the same.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), recordTimeout)
		defer cancel()
		err = a.history.Append(ctx, history.Event{Part: part, Subject: subject, Reason: lease.TruncateReason(did + " by " + who)})
	}
	if err != nil {
		// The error as a text: package outagelog would count the line as one more failure of the store, and drop the act.
		a.log.Warn("an act could not be recorded in the history", "part", part, "subject", subject, "act", did, "by", who, "err", err.Error())
	}
}

package api

import (
	"fmt"
	"net/http"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

// acts records in the history what operators change and no store records by itself.
type acts struct{ log history.Log } // nil log: a cache without a store has no history

// record adds an act that has been carried out, with the caller; by is what that says about itself, if anything.
func (a acts) record(r *http.Request, part, subject, did, by string) error {
	if a.log == nil {
		return nil
	}
	who, err := requesterOf(r, by)
	if err == nil {
		err = a.log.Append(r.Context(), history.Event{Part: part, Subject: subject, Reason: lease.TruncateReason(did + " by " + who)})
	}
	if err != nil {
		return fmt.Errorf("%s, but it could not be recorded in the history: %w", did, err)
	}
	return nil
}

package front

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/sawtooth"
)

// word is a batch's status, from which each dialect makes its own.
type word string

const (
	committed word = "COMMITTED"
	invalid   word = "INVALID"
	valid     word = "VALID"
	pending   word = "PENDING"
	unknown   word = "UNKNOWN"
)

type status struct {
	id      string
	word    word
	reasons []sawtooth.Reason
	record  dispatch.Record
}

// reasonsMost bounds for how many invalid batches of one request the payload is
// read, to name the transaction that was invalid.
const reasonsMost = 100

// firstPause is the pause before a waiting request reads the statuses again; it doubles
// each time.
const firstPause = 20 * time.Millisecond

func (f *front) statuses(w http.ResponseWriter, r *http.Request) error {
	ids, err := readIDs(w, r)
	if err != nil {
		return err
	}
	if f.Dialect != Sawtooth { // which answers as often as it is asked
		seen := make(map[string]bool, len(ids))
		ids = slices.DeleteFunc(ids, func(id string) bool {
			again := seen[id]
			seen[id] = true
			return again
		})
	}
	key, err := f.key(r)
	if err != nil {
		return err
	}
	if f.Dialect != GridSplinter {
		key = "" // the id alone names a batch
	}
	wait, err := f.dialect.wait(r.URL.Query())
	if err != nil {
		return err
	}
	found, err := f.await(r.Context(), ids, key, wait)
	if err != nil {
		return err
	}
	if err := f.explain(r.Context(), found); err != nil {
		return err
	}
	f.dialect.statuses(w, r, found)
	return nil
}

// readIDs returns the ids that a request names.
func readIDs(w http.ResponseWriter, r *http.Request) ([]string, error) {
	var ids []string
	if r.Method == http.MethodPost {
		if r.Header.Get("Content-Type") != "application/json" {
			return nil, faultf(faultIDType, "a list of ids has the Content-Type application/json, without parameters")
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, idsLimit))
		if err != nil && tooMuch(err) {
			return nil, err
		}
		var named []*string
		if err != nil || json.Unmarshal(body, &named) != nil || len(named) == 0 || slices.Contains(named, nil) {
			return nil, faultf(faultIDBody, "the body is not a JSON array of one or more ids")
		}
		for _, id := range named {
			ids = append(ids, *id)
		}
	} else {
		query := r.URL.Query()
		if !query.Has("id") {
			return nil, faultf(faultNoID, "the query id is missing: one or more ids, separated by commas")
		}
		ids = strings.Split(query.Get("id"), ",")
	}
	for _, id := range ids {
		if !sawtooth.ValidID(id) {
			return nil, faultf(faultID, "an id has 128 lower-case hexadecimal digits; this one has not: %.140q", id)
		}
	}
	return ids, nil
}

// await reads statuses until all batches are decided, the time has passed, or too many
// requests wait already.
func (f *front) await(ctx context.Context, ids []string, key string, wait time.Duration) ([]status, error) {
	found, err := f.readStatuses(ctx, ids, key)
	if err != nil || wait <= 0 || f.allDecided(found) {
		return found, err
	}
	select {
	case f.waiting <- struct{}{}:
		defer func() { <-f.waiting }()
	default:
		return found, nil
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for pause := firstPause; ; pause = min(2*pause, f.PollInterval) {
		next := time.NewTimer(min(pause, f.PollInterval))
		select {
		case <-next.C:
		case <-deadline.C:
			next.Stop()
			return f.readStatuses(ctx, ids, key)
		case <-ctx.Done():
			next.Stop()
			return nil, ctx.Err()
		}
		if found, err = f.readStatuses(ctx, ids, key); err != nil || f.allDecided(found) {
			return found, err
		}
	}
}

func (f *front) allDecided(found []status) bool {
	return !slices.ContainsFunc(found, func(s status) bool { return f.dialect.isUndecided(s.word) })
}

// readStatuses returns the statuses of batches, in the order of their ids.
func (f *front) readStatuses(ctx context.Context, ids []string, key string) ([]status, error) {
	records, err := f.records(ctx, ids)
	if err != nil {
		return nil, err
	}
	out := make([]status, len(ids))
	for i, id := range ids {
		out[i] = status{id: id, word: unknown}
		if r, ok := records[id]; ok && (key == "" || key == r.Key) {
			out[i].word, out[i].record = statusOf(r), r
		}
	}
	return out, nil
}

func statusOf(r dispatch.Record) word {
	switch r.State {
	case dispatch.Committed:
		return committed
	case dispatch.Invalid:
		return invalid
	case dispatch.Cancelled:
		if !r.Begun.IsZero() { // it was stuck: the ledger has it, and may commit it still
			return unknown
		}
		return invalid
	case dispatch.Valid:
		return valid
	case dispatch.Failed:
		if !r.Blocks {
			return unknown
		}
	}
	return pending
}

// explain adds to invalid batches which of their transactions was at fault.
func (f *front) explain(ctx context.Context, found []status) error {
	left := reasonsMost
	for i, s := range found {
		if s.word != invalid {
			continue
		}
		why := s.record.Detail
		if s.record.State == dispatch.Cancelled {
			why = "it was cancelled before it was sent"
		}
		found[i].reasons = []sawtooth.Reason{{Message: why}}
		if left--; left < 0 {
			continue
		}
		txns, err := f.transactions(ctx, s.id)
		if err != nil {
			return err
		}
		if reasons := sawtooth.ReasonsOf(why, txns); len(reasons) > 0 {
			found[i].reasons = reasons
		}
	}
	return nil
}

// transactions are the ids of a batch's transactions.
func (f *front) transactions(ctx context.Context, id string) ([]string, error) {
	call, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	r, err := f.Admin.Message(call, f.Queue, id)
	if errors.Is(err, dispatch.ErrNoMessage) {
		return nil, nil // it was pruned a moment ago
	}
	if err != nil {
		return nil, err
	}
	var ids []string
	list, err := sawtooth.ParseList(r.Payload)
	if err != nil || len(list) != 1 {
		return nil, nil // it came another way into this queue
	}
	err = list[0].Transactions(func(t sawtooth.Transaction) error {
		ids = append(ids, t.ID)
		return nil
	})
	if err != nil {
		return nil, nil
	}
	return ids, nil
}

package front

import (
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/sawtooth"
)

// addMany is how many batches are stored at once.
const addMany = 500

const listType = "application/octet-stream"

func (f *front) submit(w http.ResponseWriter, r *http.Request) error {
	if err := f.dialect.listType(r.Header.Get("Content-Type")); err != nil {
		return err
	}
	key, err := f.key(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
	if err != nil {
		return readFault(err)
	}
	list, err := parse(body)
	if err != nil {
		return err
	}
	ids := idsOf(list)
	if err := f.store(r.Context(), key, list); err != nil {
		return err
	}
	f.dialect.submitted(w, r, ids)
	return nil
}

// readFault: a body that did not arrive is its sender's affair.
func readFault(err error) error {
	if tooMuch(err) {
		return err
	}
	return faultf(faultProtobuf, "the body broke off")
}

// tooMuch reports whether a body was refused for what it takes.
func tooMuch(err error) bool {
	known := faultOf(err).kind
	return known == faultLarge || known == faultBusy
}

// parse returns the batches of a list, all of them acceptable.
func parse(body []byte) ([]sawtooth.Batch, error) {
	list, err := sawtooth.ParseList(body)
	if err != nil {
		return nil, faultf(faultProtobuf, "%v", err)
	}
	if len(list) == 0 {
		return nil, faultf(faultEmpty, "there is no batch in it")
	}
	for _, b := range list {
		if err := b.Verify(); err != nil {
			return nil, faultf(faultRefused, "%v", err)
		}
	}
	return list, nil
}

func idsOf(list []sawtooth.Batch) []string {
	ids := make([]string, len(list))
	for i, b := range list {
		ids[i] = b.ID
	}
	return ids
}

// store puts the batches into the queue, those that are not there.
func (f *front) store(ctx context.Context, key string, list []sawtooth.Batch) error {
	seen := make(map[string]bool, len(list))
	list = slices.DeleteFunc(list, func(b sawtooth.Batch) bool {
		twice := seen[b.ID]
		seen[b.ID] = true
		return twice
	})
	// First: a list that is refused for one batch must leave none in the queue. One batch alone is not stored if it is known.
	if len(list) > 1 {
		if err := f.sameKey(ctx, key, idsOf(list)); err != nil {
			return err
		}
	}
	var known []string
	stored := false
	for part := range slices.Chunk(list, addMany) {
		messages := make([]dispatch.Message, len(part))
		for i, b := range part {
			messages[i] = dispatch.Message{Queue: f.Queue, Key: key, ID: b.ID, ContentType: listType, Payload: b.List()}
		}
		added, err := f.add(ctx, messages)
		if err != nil {
			return partly(stored, err)
		}
		stored = stored || slices.Contains(added, true)
		for i, b := range part {
			if !added[i] {
				known = append(known, b.ID)
			}
		}
	}
	// Again: another client may have submitted one for another service meanwhile.
	return partly(stored, f.sameKey(ctx, key, known))
}

// partly is the error of a list of which something was stored, perhaps all.
func partly(stored bool, err error) error {
	if !stored || err == nil || faultOf(err).kind != faultStore {
		return err
	}
	return faultf(faultUnknown, "the store cannot be reached any more; your batches were stored, or some of them, and repeating the request is safe")
}

func (f *front) add(ctx context.Context, messages []dispatch.Message) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	return f.Admin.Add(ctx, messages)
}

// sameKey refuses batches that the queue has under another key: there they go to
// another service, and nobody would deliver them to this one.
func (f *front) sameKey(ctx context.Context, key string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	records, err := f.records(ctx, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if r, ok := records[id]; ok && r.Key != key {
			return faultf(faultRefused, "batch %.16s… was submitted before, for %s", id, r.Key)
		}
	}
	return nil
}

// records looks batches up by their ids, in parts.
func (f *front) records(ctx context.Context, ids []string) (map[string]dispatch.Record, error) {
	out := make(map[string]dispatch.Record, len(ids))
	for part := range slices.Chunk(ids, dispatch.MaxPage) {
		call, cancel := context.WithTimeout(ctx, f.Timeout)
		found, err := f.Admin.Messages(call, dispatch.MessageQuery{Queue: f.Queue, IDs: part})
		cancel()
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			out[r.ID] = r
		}
	}
	return out, nil
}

package front_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
)

// fakeAdmin keeps one queue in memory, as far as a front uses it.
type fakeAdmin struct {
	dispatch.Admin // what is not here is not used

	mu      sync.Mutex
	order   []string
	records map[string]dispatch.Record
	fail    error
	looks   int
}

func newAdmin() *fakeAdmin { return &fakeAdmin{records: map[string]dispatch.Record{}} }

func (d *fakeAdmin) Add(_ context.Context, batches []dispatch.Message) ([]bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return nil, d.fail
	}
	seen := map[string]bool{}
	for _, b := range batches {
		if seen[b.ID] {
			return nil, fmt.Errorf("%.16s… is given twice in one call", b.ID)
		}
		seen[b.ID] = true
	}
	added := make([]bool, len(batches))
	for i, b := range batches {
		if err := b.Validate(); err != nil {
			return nil, err
		}
		if _, ok := d.records[b.ID]; ok {
			continue
		}
		b.Payload = bytes.Clone(b.Payload)
		d.records[b.ID] = dispatch.Record{Message: b, Size: len(b.Payload), State: dispatch.Queued}
		d.order = append(d.order, b.ID)
		added[i] = true
	}
	return added, nil
}

func (d *fakeAdmin) Messages(_ context.Context, q dispatch.MessageQuery) ([]dispatch.Record, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.looks++
	if d.fail != nil {
		return nil, d.fail
	}
	if len(q.IDs) > dispatch.MaxPage || len(q.IDs) == 0 {
		return nil, fmt.Errorf("%d ids", len(q.IDs))
	}
	var out []dispatch.Record
	for i := len(q.IDs) - 1; i >= 0; i-- { // the order is free
		if r, ok := d.records[q.IDs[i]]; ok && r.Queue == q.Queue {
			r.Payload = nil
			out = append(out, r)
		}
	}
	return out, nil
}

func (d *fakeAdmin) Message(_ context.Context, queue, id string) (dispatch.Record, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.records[id]
	if !ok || r.Queue != queue {
		return dispatch.Record{}, dispatch.ErrNoMessage
	}
	return r, nil
}

func (d *fakeAdmin) set(id string, s dispatch.State, detail string, blocks bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.records[id]
	r.State, r.Detail, r.Blocks = s, detail, blocks
	d.records[id] = r
}

// begin notes that a batch was sent.
func (d *fakeAdmin) begin(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.records[id]
	r.Begun = time.Now()
	d.records[id] = r
}

func (d *fakeAdmin) failWith(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

// stored are the ids in the queue, in their order.
func (d *fakeAdmin) stored() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.order...)
}

func (d *fakeAdmin) get(t *testing.T, id string) dispatch.Record {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.records[id]
	if !ok {
		t.Fatalf("%.16s… is not stored", id)
	}
	return r
}

package cache

import "slices"

// fairQueue lines up calls that wait for a place so that clients get places in turn: a client with a thousand cold keys
// delays another client's single key by one call, not by a thousand.
type fairQueue struct {
	order []any           // the clients that have calls here; the first has the next turn
	calls map[any][]*call // by client, in order of arrival
}

func newFairQueue() fairQueue { return fairQueue{calls: map[any][]*call{}} }

func (t *fairQueue) add(c *call) {
	if len(t.calls[c.client]) == 0 {
		t.order = append(t.order, c.client)
	}
	t.calls[c.client] = append(t.calls[c.client], c)
}

// next takes out the next call that may start, or returns nil.
func (t *fairQueue) next(mayStart func(*call) bool) *call {
	for range len(t.order) {
		client := t.order[0]
		t.order = t.order[1:]
		c := t.take(client, mayStart)
		if len(t.calls[client]) > 0 {
			t.order = append(t.order, client)
		} else {
			delete(t.calls, client)
		}
		if c != nil {
			return c
		}
	}
	return nil
}

// take takes out a client's first call that may start.
func (t *fairQueue) take(client any, mayStart func(*call) bool) *call {
	i := slices.IndexFunc(t.calls[client], mayStart)
	if i < 0 {
		return nil
	}
	c := t.calls[client][i]
	t.calls[client] = slices.Delete(t.calls[client], i, i+1)
	return c
}

// remove takes out a call that waits no longer.
func (t *fairQueue) remove(c *call) {
	waiting := t.calls[c.client]
	i := slices.Index(waiting, c)
	switch {
	case i < 0:
	case len(waiting) > 1:
		t.calls[c.client] = slices.Delete(waiting, i, i+1)
	default:
		delete(t.calls, c.client)
		t.order = slices.DeleteFunc(t.order, func(client any) bool { return client == c.client })
	}
}

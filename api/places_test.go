package api

import (
	"errors"
	"net/http"
	"testing"
)

// fill takes all places, as many callers on this host; leave gives one back.
func fill(t *testing.T, p *places) (leave func()) {
	t.Helper()
	r := request(t.Context(), "GET", "/", "")
	r.RemoteAddr = "127.0.0.1:1"
	for range p.total {
		var err error
		if leave, err = p.take(r, 0); err != nil {
			t.Fatal(err)
		}
	}
	return leave
}

// TestPlaces: one caller cannot take all places, a caller on this host can, and some are kept.
func TestPlaces(t *testing.T) {
	from := func(addr string) *http.Request {
		r := request(t.Context(), "GET", "/v1/events", "")
		r.RemoteAddr = addr
		return r
	}
	p := newPlaces(8, Limits{})
	var leave []func()
	take := func(addr string, keep int) error {
		l, err := p.take(from(addr), keep)
		if err == nil {
			leave = append(leave, l)
		}
		return err
	}
	for i := range 3 {
		if err := take("10.0.0.1:1000", 0); (err != nil) != (i == 2) || err != nil && !errors.Is(err, errBusy) {
			t.Errorf("place %d of a caller: %v", i, err)
		}
	}
	for i := range 5 {
		if err := take("127.0.0.1:1000", 1); err != nil {
			t.Errorf("place %d on this host: %v", i, err)
		}
	}
	if err := take("127.0.0.1:1000", 1); !errors.Is(err, errBusy) {
		t.Errorf("the place that is kept: %v", err)
	}
	if err := take("10.0.0.2:1000", 0); err != nil {
		t.Errorf("the page: %v", err)
	}
	if err := take("10.0.0.3:1000", 0); !errors.Is(err, errBusy) || p.len() != 8 {
		t.Errorf("%d are taken of 8, and one more: %v", p.len(), err)
	}
	for _, l := range leave {
		l()
	}
	if p.len() != 0 || len(p.by) != 0 {
		t.Errorf("%d are taken, by %d", p.len(), len(p.by))
	}
	p = newPlaces(8, Limits{Loopback: true})
	_ = take("127.0.0.1:1", 0)
	_ = take("127.0.0.1:1", 0)
	if err := take("127.0.0.1:1", 0); !errors.Is(err, errBusy) {
		t.Errorf("behind a proxy on this host: %v", err)
	}
}

package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/monitor"
)

// TestOldNames: what programs of the version before ask for, and what they are answered.
func TestOldNames(t *testing.T) {
	q := newQueueRig(t)
	for _, c := range []struct{ method, path, body, want string }{
		{"POST", "/v1/queues/orders/batches", `{"batches":[{"key":"a","id":"1","payload_json":{"check":"x"}},{"key":"a","id":"2"}]}`, `{"batches":[{"added":true,"id":"1"},{"added":true,"id":"2"}]}`},
		{"GET", "/v1/queues/orders/batches/1/payload", "", `{"check":"x"}`},
		{"GET", "/v1/queues/orders/batches?limit=1", "", `"next":{"after_key":"a","after_seq":1}`},
		{"GET", "/v1/queues/orders/batches?limit=1&after_key=a&after_seq=1", "", `"id":"2"`},
		{"POST", "/v1/queues/orders/batches/2/cancel", `{}`, `{"action":"cancel","id":"2","queue":"orders"}`},
	} {
		a := q.do(c.method, c.path, c.body)
		if a.want(madeOr200(c.method, c.want), ""); !strings.Contains(a.Body, c.want) {
			t.Errorf("%s %s: %s", c.method, c.path, a.Body)
		}
	}
	for _, of := range []string{"", "/payload"} {
		q.do("GET", "/v1/queues/orders/batches/9"+of, "").want(404, "no_batch")
		q.do("GET", "/v1/queues/orders/messages/9"+of, "").want(404, "no_message")
	}
	q.do("POST", "/v1/queues/orders/batches/9/skip", "{}").want(404, "no_batch")

	m := newMonitorRig(t, every("web"))
	for _, c := range []struct{ method, path, body, want string }{
		{"PUT", "/v1/event-names/db", `{"event":"db","interval_ms":5000}`, `{"added":["db"]`},
		{"GET", "/v1/event-names", "", `{"event_names":[{`},
		{"GET", "/v1/event-names/db", "", `"event":"db"`},
		{"POST", "/v1/event-names/db/pause", `{"note":"x"}`, `{"done":"pause"}`},
		{"POST", "/v1/sources", `{"sources":[{"event":"web","source":"s1","labels":{"event":"kept"}}]}`, `{"declared":1,"new":1}`},
		{"GET", "/v1/sources?event=web", "", `"labels":{"event":"kept"}`},
		{"PUT", "/v1/monitor/configuration", `{"event_names":[{"event":"web","interval_ms":1000}],"declared":[{"event":"web","source":"s2"}]}`, `"removed":["db"]`},
		{"GET", "/v1/monitor/letters", "", `"letters":[]`},
	} {
		a := m.do(c.method, c.path, c.body)
		if a.want(madeOr200(c.method, c.want), ""); !strings.Contains(a.Body, c.want) {
			t.Errorf("%s %s: %s", c.method, c.path, a.Body)
		}
	}
	m.beat("web", "s1", monitor.SignalFail)
	m.do("GET", "/v1/alarms?event=web", "").want(200, "")
}

// madeOr200 is 201 where a POST has made something.
func madeOr200(method, want string) int {
	if method == http.MethodPost && (strings.Contains(want, `"added":true`) || strings.Contains(want, `"new":1`)) {
		return http.StatusCreated
	}
	return http.StatusOK
}

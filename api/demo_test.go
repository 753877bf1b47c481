package api

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/understudy-ha/understudy/lease"
)

// What kills processes is there only when it is asked for, only on this host, and for no page of another site.
func TestDemoRoutes(t *testing.T) {
	g := newRig(t)
	g.do("GET", "/v1/demo", "").want(404, "no_route")
	g.do("POST", "/v1/demo/kill", "").want(404, "no_route")

	var acts []string
	demo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		acts = append(acts, r.Method+" "+r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	})
	for _, listen := range []string{"", "0.0.0.0:7600", "192.0.2.7:7600"} {
		if _, err := New(Config{Store: g.store, Demo: demo, Token: "correct-horse-battery", Listen: listen}); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("a demonstration on %q: %v", listen, err)
		}
	}
	s := start(t, Config{Store: g.store, Demo: demo, Listen: "127.0.0.1:7600"})
	post := func(header, value string) answer {
		r := request(t.Context(), "POST", "/v1/demo/kill", "")
		r.Header.Set(header, value)
		return send(t, s, r)
	}
	post("Sec-Fetch-Site", "cross-site").want(403, "cross_origin")
	post("Sec-Fetch-Site", "same-site").want(403, "cross_origin")
	post("Origin", "https://elsewhere.example").want(403, "cross_origin")
	post("X-Forwarded-For", "192.0.2.1").want(403, "token_needed")
	elsewhere := request(t.Context(), "POST", "/v1/demo/kill", "")
	elsewhere.Host = "elsewhere.example"
	send(t, s, elsewhere).want(421, "wrong_host")
	if len(acts) > 0 {
		t.Errorf("it did %q", acts)
	}
	send(t, s, request(t.Context(), "GET", "/v1/demo", ""))
	post("Sec-Fetch-Site", "same-origin")
	if want := []string{"GET /v1/demo", "POST /v1/demo/kill"}; !slices.Equal(acts, want) {
		t.Errorf("it did %q, want %q", acts, want)
	}
	for _, c := range []struct {
		of   *Server
		want bool
	}{{s, true}, {g.s, false}} {
		state := c.of.poller.state(t.Context(), nil)
		if got := slices.Contains(state.Parts, "demo"); got != c.want {
			t.Errorf("parts %v: a demonstration %v, want %v", state.Parts, got, c.want)
		}
	}
}

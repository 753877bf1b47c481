package api

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/api/apitype"
)

func from(addr string) *http.Request { return &http.Request{RemoteAddr: addr} }

// TestBuckets steps the clock of a limiter.
func TestBuckets(t *testing.T) {
	now := time.Unix(1000, 0)
	l := newLimiter(Limits{Read: Rate{PerSecond: 2, Burst: 3}, Act: Rate{PerSecond: 1, Burst: 1}})
	l.now = func() time.Time { return now }
	try := func(addr string, who caller, scope access.Scope, want ...bool) {
		t.Helper()
		for i, may := range want {
			if err := l.allow(from(addr), who, scope); (err == nil) != may {
				t.Errorf("%s %s, request %d: %v, want it taken: %t", addr, scope, i+1, err, may)
			}
		}
	}
	const one = "203.0.113.1:1"
	ops, probe := caller{token: access.Token{ID: "ops"}}, caller{token: access.Token{ID: "probe"}}
	try(one, caller{}, access.Read, true, true, true, false, false)
	try("203.0.113.1:2", caller{}, access.Read, false)                   // another port of the same
	try("[::ffff:203.0.113.1]:2", caller{}, access.Read, false)          // the same, written otherwise
	try("203.0.113.2:1", caller{}, access.Read, true, true, true, false) // another address
	try(one, caller{}, access.Act, true, false)                          // another scope
	try(one, ops, access.Read, true, true, true, false)                  // a token has its own …
	try("203.0.113.9:1", ops, access.Read, false)                        // … wherever it is used
	try(one, probe, access.Read, true)
	try("[2001:db8::1]:1", caller{}, access.Act, true)
	try("[2001:db8::2]:1", caller{}, access.Act, false) // whoever has one address of a /64 has all
	try("[2001:db8:0:1::2]:1", caller{}, access.Act, true)
	for range 1000 {
		try(one, caller{}, access.Ingest, true)
		try("127.0.0.1:1", caller{}, access.Read, true)
		try("[::1]:1", ops, access.Act, true)
	}
	try("@", caller{}, access.Act, true, false) // what has no address is one caller

	now = now.Add(400 * time.Millisecond)
	err, _ := l.allow(from(one), caller{}, access.Read).(limitedError)
	if err.retry.Round(time.Millisecond) != 100*time.Millisecond {
		t.Errorf("to be tried again in %v, want 100ms", err.retry)
	}
	for _, may := range []bool{true, false} { // a proxy on this host brings everyone's guesses
		try("127.0.0.1:1", caller{}, wrongToken, may)
	}

	l.limits.Loopback = true
	try("127.0.0.1:1", caller{}, access.Act, true, false)
}

func TestLimitsAreChecked(t *testing.T) {
	for _, l := range []Limits{
		{Read: Rate{PerSecond: 1e9}}, {Act: Rate{PerSecond: 1e-9}}, {Ingest: Rate{Burst: -1}}, {Ingest: Rate{Burst: 1e9}},
	} {
		if l.Validate() == nil {
			t.Errorf("%+v was taken", l)
		}
	}
	if l := (Limits{Act: Rate{PerSecond: 3}}).withDefaults(); l.Act.Burst != 12 || l.Read != (Rate{50, 200}) || l.Ingest.PerSecond >= 0 {
		t.Errorf("completed to %+v", l)
	}
}

// TestLimited: a caller who asks too often is told when to come back, and others are not held up.
func TestLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no budget grows
		g := newTokenRig(t, Config{Token: configToken1, Limits: Limits{Read: Rate{PerSecond: 0.01, Burst: 2}, Act: Rate{PerSecond: 0.01, Burst: 2}}})
		ask := func(addr, token, method, path string) answer {
			t.Helper()
			r := request(t.Context(), method, path, "")
			r.RemoteAddr = addr
			r.Header.Set("Authorization", "Bearer "+token)
			return send(t, g.s, r)
		}
		const here, there = "203.0.113.1:1", "203.0.113.2:1"
		for range 2 {
			ask(here, configToken1, "GET", "/v1/roles").want(200, "")
		}
		a := ask(here, configToken1, "GET", "/v1/roles")
		p := a.want(429, "too_many_requests")
		if p.RetryAfterMS < 90_000 || p.RetryAfterMS > 100_000 || a.Header.Get("Retry-After") == "" {
			t.Errorf("to be tried again in %d ms (%s s)", p.RetryAfterMS, a.Header.Get("Retry-After"))
		}
		ask(there, configToken1, "GET", "/v1/roles").want(200, "")
		for _, path := range []string{"/healthz", "/", "/v1/roles/x/self"} {
			if a := ask(here, "", "GET", path); a.Status == 429 {
				t.Errorf("%s is limited", path)
			}
		}
		for range 5 { // a lease is kept alive whatever else is asked
			if a := ask(here, configToken1, "POST", "/v1/sessions/x/renew"); a.Status == 429 {
				t.Error("renewals are limited")
			}
		}
		for _, code := range []string{"unauthorized", "unauthorized", "too_many_requests"} {
			var p apitype.Problem
			ask("203.0.113.3:1", "wrong-horse-battery", "GET", "/v1/roles").into(&p)
			if p.Code != code {
				t.Errorf("a wrong token is answered %s, want %s", p.Code, code)
			}
		}
		ask("203.0.113.3:1", configToken1, "GET", "/v1/roles").want(200, "") // whoever shares the address and has a right one
		metrics := ask("127.0.0.1:1", configToken1, "GET", "/metrics").Body
		for _, line := range []string{`understudy_http_limited_total{scope="read"} 1`, `understudy_http_limited_total{scope="wrong token"} 1`, "understudy_tls_certificate_not_after_timestamp_seconds 0"} {
			if !strings.Contains(metrics, line) {
				t.Errorf("the metrics lack %s", line)
			}
		}
	})
}

// TestCacheLimited: a peer's own HTTP has the limits that a server has, and values have none.
func TestCacheLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no budget grows
		p := newStandIn()
		p.hold("k", "v", 0, time.Hour)
		c, err := NewCache(Config{Cache: p, Token: configToken1})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		g := &cacheRig{t, p, c}
		limited := func(method, path, token string) int {
			t.Helper()
			for n := range 300 {
				if a := g.do(method, path, "Authorization", "Bearer "+token); a.Status == http.StatusTooManyRequests {
					return n
				}
			}
			return -1
		}
		for _, c := range []struct {
			method, path, token string
			after               int
		}{
			{"GET", "/v1/cache/k", configToken1, -1},
			{"GET", "/v1/cache", configToken1, 200},
			{"DELETE", "/v1/cache/k", configToken1, 50},
			{"GET", "/v1/cache/k", "wrong-horse-battery", 50},
			{"GET", "/v1/cache/k", configToken1, -1}, // whoever shares the address and has a right one
		} {
			if n := limited(c.method, c.path, c.token); n != c.after {
				t.Errorf("%s %s with %s is limited after %d requests, want %d", c.method, c.path, c.token, n, c.after)
			}
		}
		r := request(t.Context(), "GET", "/metrics", "")
		r.RemoteAddr = "127.0.0.1:1"
		r.Header.Set("Authorization", "Bearer "+configToken1)
		if a := g.send(r); !strings.Contains(a.Body, `understudy_http_limited_total{scope="wrong token"} 1`) {
			t.Error("the metrics do not count who was sent away")
		}
	})
}

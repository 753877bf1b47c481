package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/memory"
)

// TestQuotas: what callers add is bounded, with a refusal that says what to do, and those that are there go on.
func TestQuotas(t *testing.T) {
	clock := newStepped()
	st := memory.New(clock.storeNow)
	s, err := New(Config{Store: st, Clock: clock, Limits: Limits{Act: Rate{PerSecond: -1}, Leases: 3}})
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{t: t, store: st, clock: clock, s: s}
	refused := func(a answer, hint string) {
		t.Helper()
		if p := a.want(403, "quota_used_up"); !strings.Contains(p.Detail, "at most") || !strings.Contains(p.Detail, hint) {
			t.Errorf("the refusal says %q", p.Detail)
		}
	}
	a, b, _ := g.session("a"), g.session("b"), g.session("c")
	refused(g.do("POST", "/v1/sessions", `{"name":"d"}`), "limits.leases")
	g.do("POST", "/v1/sessions/"+a+"/renew", "").want(200, "")

	put := func(space, key, session string) answer {
		return g.do("PUT", "/v1/leases/"+space+"/"+key, `{"session":"`+session+`"}`)
	}
	for _, key := range []string{"x1", "x2", "x3"} {
		put("role", key, a).want(200, "")
	}
	refused(put("role", "x4", a), "role forget")
	put("role", "x1", a).want(200, "")
	put("role", "x1", b).want(409, "held")
	put("lock", "x4", a).want(200, "") // another space
	if l, err := st.List(t.Context(), "role", "", 10); err != nil || len(l) != 3 {
		t.Errorf("the store has %d leases, %v", len(l), err)
	}
	// One that is there is taken over, also by a server that has never seen it.
	g.do("DELETE", "/v1/leases/role/x1", `{"session":"`+a+`","term":`+fmt.Sprint(g.term("role", "x1"))+`}`).want(204, "")
	s.takeovers = newTakeovers(st, clock, s.leaseQuota)
	put("role", "x1", b).want(200, "")
	g.do("DELETE", "/v1/leases/role/x1", `{"session":"`+b+`","term":`+fmt.Sprint(g.term("role", "x1"))+`}`).want(204, "")
	g.do("DELETE", "/v1/roles/x1", "").want(204, "")
	put("role", "x4", a).want(200, "")
	refused(put("role", "x1", a), "role forget")

	metrics := g.do("GET", "/metrics", "").Body
	for _, line := range []string{`understudy_quota_used_ratio{resource="leases"} 1`, `understudy_quota_used_ratio{resource="sessions"} 1`, `understudy_quota_used_ratio{resource="queues"} 0`} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

// term is the present term of a lease.
func (g *rig) term(space, key string) (term int64) {
	g.t.Helper()
	var l struct{ Term int64 }
	g.do("GET", "/v1/leases/"+space+"/"+key, "").into(&l)
	return l.Term
}

// TestQuotaOfSpacesAndQueues: the bounds that no setting moves.
func TestQuotaOfSpacesAndQueues(t *testing.T) {
	clock := newStepped()
	st := memory.New(clock.storeNow)
	s, err := New(Config{Store: st, Clock: clock, Limits: Limits{Act: Rate{PerSecond: -1}}})
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{t: t, store: st, clock: clock, s: s}
	session := g.session("a")
	put := func(space string) answer {
		return g.do("PUT", "/v1/leases/"+space+"/k", `{"session":"`+session+`"}`)
	}
	for i := range maxSpaces {
		put(fmt.Sprint("s", i)).want(200, "")
	}
	put("another").want(403, "quota_used_up") // though the last read has not seen those spaces
	s.leaseQuota.read.invalidate()
	put("another").want(403, "quota_used_up")
	put("s1").want(200, "")

	for i := range maxQueues {
		if err := st.QueueAdmin().CreateQueue(t.Context(), fmt.Sprint("q", i)); err != nil {
			t.Fatal(err)
		}
	}
	g.do("POST", "/v1/queues", `{"queue":"another"}`).want(403, "quota_used_up")
	g.do("POST", "/v1/queues", `{"queue":"q1"}`).want(200, "")
}

// TestQuotaOfLearnedSources: how near a check is to its bound is in the metrics.
func TestQuotaOfLearnedSources(t *testing.T) {
	st := memory.New(nil)
	s, err := New(Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	check := monitor.Check{Name: "few", Interval: 1e9, MaxLearned: 4}
	if _, err := st.Monitor().Configure(t.Context(), monitor.Configuration{Checks: []monitor.Check{check}}); err != nil {
		t.Fatal(err)
	}
	if _, err := st.Monitor().ResolveSources(t.Context(), []monitor.SourceRef{{Check: "few", Source: "a"}}); err != nil {
		t.Fatal(err)
	}
	body := send(t, s, request(t.Context(), http.MethodGet, "/metrics", "")).Body
	if want := `understudy_quota_used_ratio{resource="sources"} 0.25`; !strings.Contains(body, want) {
		t.Errorf("the metrics lack %s:\n%s", want, body)
	}
}

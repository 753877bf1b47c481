package api

import (
	"cmp"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/memory"
)

const configuredToken = "a-token-of-this-server"

// wholeServer has every route that takes a body, and no limit on how often.
func wholeServer(t *testing.T) *rig {
	t.Helper()
	clock := newStepped()
	st := memory.New(clock.storeNow)
	free := Rate{PerSecond: -1}
	s, err := New(Config{Store: st, Clock: clock, Token: configuredToken, Limits: Limits{Read: free, Act: free}})
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{t: t, store: st, clock: clock, s: s}
	if a := g.cost("POST", "/v1/queues", `{"queue":"orders"}`); a.status != 201 {
		t.Fatalf("a queue: %+v", a)
	}
	if _, err := st.Monitor().Configure(t.Context(), monitor.Configuration{Checks: []monitor.Check{every("web")}, Origin: "test"}); err != nil {
		t.Fatal(err)
	}
	return g
}

// cost is what a request got, and the memory that was allocated for it.
type cost struct {
	status int
	bytes  uint64
}

func (g *rig) cost(method, path, body string) cost {
	g.t.Helper()
	r := request(g.t.Context(), method, path, body)
	r.Header.Set("Authorization", "Bearer "+configuredToken)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a := send(g.t, g.s, r)
	runtime.ReadMemStats(&after)
	return cost{a.Status, after.TotalAlloc - before.TotalAlloc}
}

// wantCheap fails when a request took more than 8 times the memory of its body, and 2 MiB: what a thousand elements take.
func (g *rig) wantCheap(what, method, path, body string, status int) {
	g.t.Helper()
	got := g.cost(method, path, body)
	if most := uint64(8*len(body) + 2<<20); got.bytes > most || got.status != status {
		g.t.Errorf("%s: %d KiB were answered %d and took %d KiB; want %d, and %d KiB at most", what, len(body)>>10, got.status, got.bytes>>10, status, most>>10)
	}
}

// filled is a body of about n bytes: a list or an object that repeats one member.
func filled(n int, before, member, after string) string {
	return before + strings.Repeat(member+",", (n-len(before)-len(member)-len(after))/(len(member)+1)) + member + after
}

// TestNoListIsDear sends every list that a body can have to every route, as long as the route lets it be.
func TestNoListIsDear(t *testing.T) {
	g := wholeServer(t)
	keys := []string{"messages", "batches", "checks", "event_names", "declared", "sources", "scopes", "tags", "labels"}
	members := []string{"{}", `""`} // one of them is what a list is of
	if os.Getenv("UNDERSTUDY_PROVE") == "1" {
		members = append(members, "0", "[]")
	}
	for _, rt := range g.s.routes() {
		method, path, _ := strings.Cut(rt.pattern, " ")
		if method == http.MethodGet || rt.direct {
			continue
		}
		path = regexp.MustCompile(`{[^}]*}`).ReplaceAllString(path, "orders")
		for _, key := range keys {
			for _, member := range members {
				body := filled(int(cmp.Or(rt.body, maxBody)), `{"`+key+`":[`, member, "]}")
				if got := g.cost(method, path, body); got.bytes > uint64(8*len(body)+1<<20) {
					t.Errorf("%s: %d KiB of %s in %s took %d KiB", rt.pattern, len(body)>>10, member, key, got.bytes>>10)
				}
			}
		}
	}
}

// TestNestedListsAreCheap: lists in the elements of lists, and what is allowed.
func TestNestedListsAreCheap(t *testing.T) {
	g := wholeServer(t)
	const configuration, messages = "/v1/monitor/configuration", "/v1/queues/orders/messages"
	check := `{"check":"x","interval_ms":1000,`
	g.wantCheap("tags", "PUT", configuration, filled(maxConfiguration, `{"checks":[`+check+`"tags":[`, `""`, `]}]}`), 400)
	g.wantCheap("labels", "PUT", configuration, filled(maxConfiguration, `{"checks":[`+check+`"labels":{`, `"":""`, `}}]}`), 400)
	g.wantCheap("labels of a source", "POST", "/v1/sources", filled(maxConfiguration, `{"sources":[{"check":"web","source":"x","labels":{`, `"":""`, `}}]}`), 400)
	g.wantCheap("a list again and again", "POST", messages, filled(maxMessagesBody, `{`, `"messages":[{"key":"k"}]`, `}`), 400)
	g.wantCheap("one large message", "POST", messages, `{"messages":[{"key":"k","payload":"`+strings.Repeat("x", 12<<20)+`"}]}`, 201)
	g.wantCheap("one large message of JSON", "POST", messages, filled(12<<20, `{"messages":[{"key":"k","payload_json":[`, "0", `]}]}`), 201)
	g.wantCheap("headers", "POST", messages, filled(maxMessagesBody, `{"messages":[{"key":"k","headers":{`, `"":""`, `}}]}`), 400)
	g.wantCheap("a thousand messages", "POST", messages, `{"messages":[`+strings.Repeat(`{"key":"k","payload":"`+strings.Repeat("x", 12<<10)+`"},`, 999)+`{"key":"k"}]}`, 201)
}

// TestBodyMemory: all bodies together have a bound, which short ones may pass.
func TestBodyMemory(t *testing.T) {
	g := wholeServer(t)
	const path = "/v1/monitor/configuration"
	short := `{"keep":true,"checks":[{"check":"x","interval_ms":1000}]}`
	long := short + strings.Repeat(" ", 2*maxBody)
	held := &g.s.router.bodies.held
	held.Store(maxBodyMemory)
	for _, c := range []struct {
		path, body string
		want       int
	}{{path, short, 200}, {path, long, 503}, {"/v1/queues/orders/messages?key=k", long, 503}} {
		method := "PUT"
		if c.path != path {
			method = "POST"
		}
		if got := g.cost(method, c.path, c.body); got.status != c.want {
			t.Errorf("%s with %d bytes was answered %d, want %d", c.path, len(c.body), got.status, c.want)
		}
	}
	if n := held.Load(); n != maxBodyMemory {
		t.Errorf("%d bytes are held after all requests, want those of before", n-maxBodyMemory)
	}
	held.Store(0)
	if got := g.cost("PUT", path, long); got.status != 200 {
		t.Errorf("a long body was answered %d when there was room", got.status)
	}
}

package api

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/memory"
)

// TestClientCertificates: a certificate that the listener has verified gives what is configured for its name, and no more; the
// history names it. A page of another site cannot use the one of its visitor.
func TestClientCertificates(t *testing.T) {
	st := memory.New(nil)
	s, err := New(Config{Store: st, Token: configToken1, Clients: map[string]access.Scopes{
		"dashboard.example": {access.Read}, "ops": {access.Read, access.Act},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ends := time.Now().Add(time.Hour)
	shown := func(verified bool, notAfter time.Time, cn string, dns ...string) *tls.ConnectionState {
		leaf := &x509.Certificate{Subject: pkix.Name{CommonName: cn}, DNSNames: dns, NotAfter: notAfter}
		state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
		if verified {
			state.VerifiedChains = [][]*x509.Certificate{{leaf}}
		}
		return state
	}
	ask := func(by *tls.ConnectionState, method, path, body string, header ...string) answer {
		r := request(t.Context(), method, path, body)
		r.TLS = by
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return send(t, s, r)
	}
	dashboard, ops := shown(true, ends, "web-1", "dashboard.example"), shown(true, ends, "ops")
	ask(dashboard, "GET", "/v1/roles", "").want(200, "")
	ask(dashboard, "POST", "/v1/queues", `{"queue":"orders"}`).want(403, "missing_scope")
	ask(ops, "POST", "/v1/queues", `{"queue":"orders"}`).want(201, "")
	ask(ops, "POST", "/v1/tokens", `{"name":"x","scopes":["read"]}`).want(403, "config_token_needed")
	for what, by := range map[string]*tls.ConnectionState{
		"none": nil, "one that was not verified": shown(false, ends, "ops"), "one that has ended": shown(true, time.Now().Add(-time.Second), "ops"),
		"another name": shown(true, ends, "ops.example", "OPS"), "the name of a DNS name in a CN": shown(true, ends, ""),
	} {
		if a := ask(by, "GET", "/v1/roles", ""); a.Status != 401 {
			t.Errorf("%s: answered %d", what, a.Status)
		}
	}
	// What a token that is wrong gives is not more because of a certificate.
	ask(ops, "GET", "/v1/roles", "", "Authorization", "Bearer ust_0123456789_"+strings.Repeat("a", 43)).want(401, "unauthorized")
	ask(ops, "GET", "/v1/cache/key", "", "Sec-Fetch-Site", "cross-site").want(403, "cross_origin")

	events, err := st.Read(t.Context(), history.Query{Subject: "orders", Newest: true, Limit: 1})
	if err != nil || len(events) != 1 || !strings.HasPrefix(events[0].Reason, "queue created by certificate ops (") {
		t.Errorf("the history: %+v, %v", events, err)
	}
	ask(ops, "POST", "/v1/roles/billing/resign?by=a+certificate", `{"by":"certificate root"}`).want(400, "invalid")
}

// TestWeakCredentials: a certificate or token that gives less than a request needs does not take away what the request may
// without any: follow a signed link, and ping with a key of its own.
func TestWeakCredentials(t *testing.T) {
	const id = "6f9b1f6e-3c55-4f0e-9d5c-5f1f6d0d7c11"
	g := newIntakeRig(t)
	g.s.router.auth.clients = map[string]access.Scopes{"dashboard": {access.Read}, "agent": {access.Ingest}}
	certificate := func(name string) *tls.ConnectionState {
		leaf := &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
		return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
	}
	bearer := func(scope access.Scope) string {
		var made struct{ Secret string }
		g.ask("Bearer "+apiToken, "POST", "/v1/tokens", fmt.Sprintf(`{"name":%q,"scopes":[%q]}`, scope, scope)).into(&made)
		return "Bearer " + made.Secret
	}
	read, ingest := bearer(access.Read), bearer(access.Ingest)
	g.ask("Bearer "+apiToken, "POST", "/v1/sources", `{"sources":[{"check":"web","source":"w1","labels":{"ping":"`+id+`"}}]}`).want(201, "")
	links := linksOf(t, g)
	badge := strings.TrimPrefix(links.Badge(monitor.SourceRef{Check: "web", Source: "w1"}), "http://127.0.0.1")
	acknowledge := strings.TrimPrefix(links.Acknowledge("some-alarm"), "http://127.0.0.1")
	for _, c := range []struct {
		certificate, auth, method, path string
		status                          int
	}{
		{"dashboard", "", "POST", acknowledge, 404}, // the alarm, not the permission, is missing
		{"", read, "POST", acknowledge, 404},
		{"", ingest, "POST", acknowledge, 404},
		{"agent", "", "GET", acknowledge, 404},
		{"agent", "", "GET", badge, 200},
		{"", ingest, "GET", badge, 200},
		{"dashboard", "", "POST", "/ping/" + id, 200},
		{"", read, "POST", "/ping/" + id, 200},
		{"dashboard", "", "GET", "/v1/ping/web/w1?key=" + pingKey, 200},
		{"dashboard", "GenieKey " + pingKey, "GET", "/v1/ping/web/w1", 200},
		{"dashboard", "Basic " + base64.StdEncoding.EncodeToString([]byte("x:"+pingKey)), "GET", "/v1/ping/web/w1", 200},
		{"dashboard", "", "GET", "/v1/ping/web/w1", 401},
		{"agent", "", "GET", "/v1/ping/web/w1", 200},
		{"", read, "GET", "/v1/ping/web/w1", 403},
		{"dashboard", "", "POST", "/v1/sources/web/w1/retire", 403},
		{"", read, "POST", "/v1/sources/web/w1/retire", 403},
	} {
		r := request(t.Context(), c.method, c.path, "")
		if c.certificate != "" {
			r.TLS = certificate(c.certificate)
		}
		if c.auth != "" {
			r.Header.Set("Authorization", c.auth)
		}
		if a := send(t, g.s, r); a.Status != c.status || a.Status == 404 && !strings.Contains(a.Body, "no_alarm") {
			t.Errorf("%s %s by certificate %q, Authorization %.12q: %d %s, want %d", c.method, c.path, c.certificate, c.auth, a.Status, a.Body, c.status)
		}
	}
}

// TestStrictTransportSecurity: browsers that came by TLS come by TLS again.
func TestStrictTransportSecurity(t *testing.T) {
	g := newRig(t)
	for _, path := range []string{"/healthz", "/v1/cache/a/key"} {
		r := request(t.Context(), http.MethodGet, path, "")
		r.TLS = &tls.ConnectionState{}
		if h := send(t, g.s, r).Header.Get("Strict-Transport-Security"); h != "max-age=2592000" {
			t.Errorf("%s by TLS: %q", path, h)
		}
	}
	if h := g.do("GET", "/healthz", "").Header.Get("Strict-Transport-Security"); h != "" {
		t.Errorf("without TLS: %q", h)
	}
}

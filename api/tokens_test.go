package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor/intake"
	"github.com/understudy-ha/understudy/store/memory"
)

const configToken1 = "correct-horse-battery"

// awayStore is a store whose tokens cannot be read now and then.
type awayStore struct {
	*memory.Store
	away  atomic.Bool
	lists atomic.Int64
}

func (s *awayStore) Tokens() access.Tokens { return awayTokens{s.Store.Tokens(), s} }

type awayTokens struct {
	access.Tokens
	s *awayStore
}

func (t awayTokens) List(ctx context.Context) ([]access.Token, time.Time, error) {
	t.s.lists.Add(1)
	if t.s.away.Load() {
		return nil, time.Time{}, lease.ErrUnavailable
	}
	return t.Tokens.List(ctx)
}

// tokenRig is a server with a configured token.
type tokenRig struct {
	t     *testing.T
	store *awayStore
	s     *Server
}

func newTokenRig(t *testing.T, cfg Config) *tokenRig {
	t.Helper()
	g := &tokenRig{t: t, store: &awayStore{Store: memory.New(nil)}}
	cfg.Store = g.store
	var err error
	if g.s, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return g
}

// token makes one and returns its secret.
func (g *tokenRig) token(name string, lasts time.Duration, scopes ...access.Scope) string {
	g.t.Helper()
	one, secret, err := access.NewToken(name, scopes, "alice")
	if err == nil {
		_, err = g.store.Tokens().Add(g.t.Context(), one, lasts)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	return secret
}

func (g *tokenRig) do(token, method, path, body string) answer {
	g.t.Helper()
	r := request(g.t.Context(), method, path, body)
	r.RemoteAddr = "127.0.0.1:1" // not limited
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return send(g.t, g.s, r)
}

// TestScopes asks every route with every kind of token, and expects what openapi.json says.
func TestScopes(t *testing.T) {
	in, err := intake.NewHTTP(intake.HTTPConfig{Flow: nowhere{}, Authorize: MayIngest})
	if err != nil {
		t.Fatal(err)
	}
	g := newTokenRig(t, Config{Token: configToken1, Monitor: &Monitor{HTTP: in}})
	secrets := map[access.Scope]string{}
	for _, s := range access.AllScopes() {
		secrets[s] = g.token(string(s), 0, s)
	}
	g.do(secrets[access.Read], "GET", "/v1/roles", "").want(200, "") // they are read …
	g.s.stop()                                                       // … before nobody waits any more, and streams end at once
	var doc struct {
		Paths    map[string]map[string]json.RawMessage
		Security []map[string][]string
	}
	g.do(configToken1, "GET", "/openapi.json", "").into(&doc)
	blank := strings.NewReplacer("{role}", "x", "{session}", "x", "{space}", "x", "{key}", "x", "{queue}", "x", "{id}", "x", "{event}", "x", "{check}", "x", "{source}", "x", "{alarm}", "x", "{shard}", "x", "{node}", "x", "{what}", "x")
	for _, rt := range g.s.routes() {
		method, path, _ := strings.Cut(rt.pattern, " ")
		if rt.open || rt.hidden {
			continue
		}
		var op struct{ Security []map[string][]string }
		if err := json.Unmarshal(doc.Paths[path][strings.ToLower(method)], &op); err != nil {
			t.Fatalf("%s: %v", rt.pattern, err)
		}
		if op.Security == nil {
			op.Security = doc.Security
		}
		need := op.Security[0]["token"][0]
		for scope, secret := range secrets {
			a := g.do(secret, method, blank.Replace(path), "")
			may := need == string(scope) || need == "read" && scope == access.Act
			refused := a.Status == http.StatusForbidden
			if a.Status == http.StatusUnauthorized || may == refused {
				t.Errorf("%s with the scope %s is answered %d, and needs %s: %s", rt.pattern, scope, a.Status, need, a.Body)
			}
		}
		if a := g.do(configToken1, method, blank.Replace(path), ""); a.Status == 401 || a.Status == 403 {
			t.Errorf("%s with the configured token is answered %d", rt.pattern, a.Status)
		}
	}
	a := g.do(secrets[access.Read], "POST", "/v1/roles/x/resign", "{}")
	p := a.want(403, "missing_scope")
	if want := `Bearer realm="understudy", error="insufficient_scope", scope="act"`; a.Header.Get("WWW-Authenticate") != want || !strings.Contains(p.Detail, "the scope act") {
		t.Errorf("%q, %s", a.Header.Get("WWW-Authenticate"), p.Detail)
	}
}

func TestBeatsByToken(t *testing.T) {
	in, err := intake.NewHTTP(intake.HTTPConfig{Flow: nowhere{}, Authorize: MayIngest})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) { // a wrong key waits
		g := newTokenRig(t, Config{Token: configToken1, Monitor: &Monitor{HTTP: in}})
		ops, over := g.token("ops", 0, access.Read, access.Act), g.token("over", time.Second, access.Ingest)
		time.Sleep(time.Second)
		const taken = 0 // whatever the intake says of it
		for token, want := range map[string]int{
			configToken1: taken, g.token("probe", 0, access.Ingest): taken, ops: 403, over: 401, "": 401, "wrong-horse-battery": 401,
		} {
			for _, path := range []string{"/v1/beats", "/v1/ping/e/s"} {
				if a := g.do(token, "POST", path, `{"event":"e","source":"s"}`); want != taken && a.Status != want || want == taken && (a.Status == 401 || a.Status == 403) {
					t.Errorf("%s by %.8s… is answered %d %s, want %d", path, token, a.Status, a.Body, want)
				}
			}
		}
		g.s.stop()
	})
}

// TestBeatsByTokenOfAnOpenServer: a token of the store counts where none is asked for, also beside ping keys, for which it
// is not to be taken.
func TestBeatsByTokenOfAnOpenServer(t *testing.T) {
	in, err := intake.NewHTTP(intake.HTTPConfig{Flow: nowhere{}, Keys: []intake.PingKey{{Name: "cron", Key: pingKey, Checks: []string{"w*"}}}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) { // a wrong key waits
		g := newTokenRig(t, Config{Monitor: &Monitor{HTTP: in}})
		ops, over := g.token("ops", 0, access.Read, access.Act), g.token("over", time.Second, access.Ingest)
		time.Sleep(time.Second)
		const taken = 0 // whatever the intake says of it
		for token, want := range map[string]int{
			"": taken, g.token("probe", 0, access.Ingest): taken, ops: 403, over: 401, "wrong-horse-battery": 401, pingKey: 403,
		} {
			for _, path := range []string{"/v1/beats", "/v1/ping/e/s"} {
				if a := g.do(token, "POST", path, `{"event":"e","source":"s"}`); want != taken && a.Status != want || want == taken && (a.Status == 401 || a.Status == 403) {
					t.Errorf("%s by %.8s… is answered %d %s, want %d", path, token, a.Status, a.Body, want)
				}
			}
		}
		g.s.stop()
	})
}

func TestTokensAreManaged(t *testing.T) {
	g := newTokenRig(t, Config{Token: configToken1})
	a := g.do(configToken1, "POST", "/v1/tokens", `{"name":"ops","scopes":["act","ingest"],"lasts_ms":3600000,"by":"carol"}`)
	if a.Status != 201 {
		t.Fatal(a.Body)
	}
	var made apitype.TokenSecret
	a.into(&made)
	if diff := cmp.Diff([]string{"act", "ingest"}, made.Token.Scopes); diff != "" || made.Token.State != apitype.TokenLive || made.Token.By != "carol (127.0.0.1)" ||
		!made.Token.Expires.Equal(made.Token.Created.Add(time.Hour)) {
		t.Errorf("made %+v", made.Token)
	}
	g.do(made.Secret, "GET", "/v1/roles", "").want(200, "") // at once
	g.do(made.Secret, "GET", "/v1/tokens", "").want(403, "config_token_needed")
	g.do(made.Secret, "POST", "/v1/tokens", `{"name":"more","scopes":["act"]}`).want(403, "config_token_needed")
	g.do(configToken1, "POST", "/v1/tokens", `{"name":"ops","scopes":["act"]}`).want(409, "taken")
	for _, body := range []string{`{"name":"x"}`, `{"name":"x","scopes":["root"]}`, `{"scopes":["read"]}`, `{"name":"x","scopes":["read"],"lasts_ms":-1}`, `{"name":"x","scopes":["read"],"lasts_ms":1}`, `{"name":"config","scopes":["read"]}`} {
		g.do(configToken1, "POST", "/v1/tokens", body).want(400, "invalid")
	}
	a = g.do(configToken1, "GET", "/v1/tokens", "")
	var list struct{ Tokens []apitype.Token }
	a.into(&list)
	if len(list.Tokens) != 1 || list.Tokens[0].ID != made.Token.ID || strings.Contains(a.Body, made.Secret) || strings.Contains(a.Body, "sum") {
		t.Errorf("listed %s", a.Body)
	}
	g.do(configToken1, "DELETE", "/v1/tokens/nobody", "").want(404, "no_token")
	var gone apitype.Token
	g.do(configToken1, "DELETE", "/v1/tokens/ops?by=dave", "").into(&gone)
	if gone.State != apitype.TokenRevoked || gone.RevokedBy != "dave (127.0.0.1)" {
		t.Errorf("revoked %+v", gone)
	}
	g.do(made.Secret, "GET", "/v1/roles", "").want(401, "unauthorized") // at once
	g.do(configToken1, "DELETE", "/v1/tokens/"+made.Token.ID, "").want(200, "")
}

// TestRevokedHere: who revokes a token here need not wait until this server has read the tokens again.
func TestRevokedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTokenRig(t, Config{Token: configToken1})
		secret := g.token("one", 0, access.Read)
		g.do(secret, "GET", "/v1/roles", "").want(200, "")
		streamed, beganAt := make(chan answer, 1), time.Now()
		go func() { streamed <- g.do(secret, "GET", "/v1/events", "") }()
		synctest.Wait()
		g.store.away.Store(true) // for whoever reads, but not for whoever revokes
		g.do(configToken1, "DELETE", "/v1/tokens/one", "").want(200, "")
		g.do(secret, "GET", "/v1/roles", "").want(401, "unauthorized")
		<-streamed
		if d := time.Since(beganAt); d > 3*time.Second {
			t.Errorf("the stream ended %v after its token", d)
		}
		g.s.stop()
	})
}

// TestStoreAwayAtStart: beats are to be sent again then, and their token is not called wrong.
func TestStoreAwayAtStart(t *testing.T) {
	in, err := intake.NewHTTP(intake.HTTPConfig{Flow: nowhere{}, Authorize: MayIngest})
	if err != nil {
		t.Fatal(err)
	}
	g := newTokenRig(t, Config{Token: configToken1, Monitor: &Monitor{HTTP: in}})
	secret := g.token("probe", 0, access.Ingest)
	g.store.away.Store(true)
	g.do(secret, "POST", "/v1/beats", `{"event":"e","source":"s"}`).want(503, "store_unavailable")
	g.s.stop()
}

// TestTokensElsewhere changes the store as another server, or the command line, does.
func TestTokensElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTokenRig(t, Config{Token: configToken1})
		defer g.s.stop()
		look := func(secret string, status int) {
			t.Helper()
			if a := g.do(secret, "GET", "/v1/roles", ""); a.Status != status {
				t.Errorf("answered %d, want %d: %s", a.Status, status, a.Body)
			}
		}
		one := g.token("one", 0, access.Read)
		brief := g.token("brief", 10*time.Second, access.Read)
		look(one, 200)
		look(one[:len(one)-43]+brief[len(brief)-43:], 401) // the id of one, with the rest of another
		two := g.token("two", 0, access.Read)
		time.Sleep(tokensMissed)
		look(two, 200) // made a moment ago
		if _, err := g.store.Tokens().Revoke(t.Context(), "one", "bob"); err != nil {
			t.Fatal(err)
		}
		look(one, 200) // it has not been read since
		time.Sleep(2 * time.Second)
		look(one, 401)
		look(brief, 200)
		g.store.away.Store(true)
		if _, err := g.store.Tokens().Revoke(t.Context(), "two", "bob"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(7 * time.Second)
		look(two, 200) // who could ask before still can
		look(one, 401)
		time.Sleep(time.Second)
		look(brief, 401) // time goes on without the store
		look(configToken1, 200)
		g.store.away.Store(false)
		time.Sleep(2 * time.Second)
		look(two, 401)

		before := g.store.lists.Load()
		for range 1000 {
			g.do("ust_aaaaaaaaaa_"+strings.Repeat("A", 43), "GET", "/v1/roles", "")
		}
		if n := g.store.lists.Load() - before; n > 1 {
			t.Errorf("a thousand unknown tokens at one moment had the store asked %d times", n)
		}
	})
}

func TestTokensNeverRead(t *testing.T) {
	g := newTokenRig(t, Config{Token: configToken1})
	secret := g.token("one", 0, access.Read)
	g.store.away.Store(true)
	g.do(secret, "GET", "/v1/roles", "").want(503, "store_unavailable")
	g.do(configToken1, "GET", "/v1/roles", "").want(200, "")
	g.do("no-secret-of-any-token", "GET", "/v1/roles", "").want(401, "unauthorized")
}

// TestStreamEndsWithItsToken: what continues for long does not outlive the right to it, be that a token or a certificate.
func TestStreamEndsWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTokenRig(t, Config{Token: configToken1, Clock: bubbleClock{time.Now()}, Clients: map[string]access.Scopes{"page": {access.Read}}})
		ctx, cancel := context.WithCancel(t.Context())
		running := make(chan struct{})
		go func() { defer close(running); _ = g.s.Run(ctx) }()
		defer func() { cancel(); <-running }()
		secret := g.token("page", 0, access.Read)
		ended := make(chan answer)
		go func() { ended <- g.do(secret, "GET", "/v1/events", "") }()
		select {
		case a := <-ended:
			t.Fatalf("the stream ended by itself: %d %s", a.Status, a.Body)
		case <-time.After(time.Minute):
		}
		if _, err := g.store.Tokens().Revoke(t.Context(), "page", "bob"); err != nil {
			t.Fatal(err)
		}
		revoked := time.Now()
		select {
		case <-ended:
			if d := time.Since(revoked); d > 2*time.Second+100*time.Millisecond {
				t.Errorf("the stream ended %v after its token", d)
			}
		case <-time.After(time.Minute):
			t.Fatal("the stream goes on without its token")
		}

		leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "page"}, NotAfter: time.Now().Add(90*time.Second + time.Second/2)}
		go func() {
			r := request(ctx, "GET", "/v1/events", "")
			r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
			ended <- send(t, g.s, r)
		}()
		select {
		case a := <-ended:
			if time.Until(leaf.NotAfter) != 0 || a.Status != 200 {
				t.Errorf("a stream answered %d, and ended %v before its certificate", a.Status, time.Until(leaf.NotAfter))
			}
		case <-time.After(3 * time.Minute):
			cancel()
			<-ended
			t.Error("the stream goes on without its certificate")
		}
	})
}

// TestOpenServer: on loopback, without a token of its own, everyone may do what was possible before there were
// tokens, and nobody may make any.
func TestOpenServer(t *testing.T) {
	g := newTokenRig(t, Config{})
	reader := g.token("reader", 0, access.Read)
	g.do("", "GET", "/v1/roles", "").want(200, "")
	g.do("whatever", "GET", "/v1/roles", "").want(200, "")
	g.do(reader, "GET", "/v1/roles", "").want(200, "")
	g.do(reader, "POST", "/v1/sessions", `{"name":"x"}`).want(403, "missing_scope")
	if a := g.do("", "POST", "/v1/sessions", `{"name":"x"}`); a.Status != 201 {
		t.Errorf("without a token: %d %s", a.Status, a.Body)
	}
	if _, err := g.store.Tokens().Revoke(t.Context(), "reader", "bob"); err != nil {
		t.Fatal(err)
	}
	g.s.router.auth.tokens.snapshot.invalidate()
	g.do(reader, "POST", "/v1/sessions", `{"name":"x"}`).want(401, "unauthorized") // and not "anybody"
	for _, method := range []string{"GET", "POST"} {
		g.do("", method, "/v1/tokens", "").want(403, "config_token_needed")
	}
	g.do("", "DELETE", "/v1/tokens/reader", "").want(403, "config_token_needed")
}

// TestPingsOfOtherSites: a server that asks for no token is not to believe what a page of another site has a
// browser send, by GET either.
func TestPingsOfOtherSites(t *testing.T) {
	in, err := intake.NewHTTP(intake.HTTPConfig{Flow: nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	g := newTokenRig(t, Config{Monitor: &Monitor{HTTP: in}})
	reader := g.token("reader", 0, access.Read)
	for _, method := range []string{"GET", "HEAD", "POST"} {
		for site, refused := range map[string]bool{"cross-site": true, "same-site": true, "same-origin": false, "none": false, "": false} {
			r := request(t.Context(), method, "/v1/ping/e/s", "")
			r.Header.Set("Sec-Fetch-Site", site)
			if a := send(t, g.s, r); refused != (a.Status == 403) {
				t.Errorf("%s from %q is answered %d %s", method, site, a.Status, a.Body)
			}
		}
		if a := g.do(reader, method, "/v1/ping/e/s", ""); a.Status != 403 {
			t.Errorf("%s with a token for reading is answered %d %s", method, a.Status, a.Body)
		}
	}
	r := request(t.Context(), "GET", "/v1/roles", "") // a link may lead here
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	send(t, g.s, r).want(200, "")
}

// TestSetTokenEndsStreams: what the old one began does not continue.
func TestSetTokenEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTokenRig(t, Config{Token: configToken1})
		ended := make(chan answer, 1)
		go func() { ended <- g.do(configToken1, "GET", "/v1/events", "") }()
		synctest.Wait()
		for _, token := range []string{configToken1, "another-horse-battery"} {
			if len(ended) > 0 {
				t.Error("the stream ended before its token")
			}
			if err := g.s.SetToken(token); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if len(ended) == 0 {
			t.Error("the stream goes on without its token")
		}
		g.s.stop()
	})
}

func TestSetToken(t *testing.T) {
	g := newTokenRig(t, Config{Token: configToken1})
	const second = "another-horse-battery"
	if err := g.s.SetToken(second); err != nil {
		t.Fatal(err)
	}
	g.do(configToken1, "GET", "/v1/roles", "").want(401, "unauthorized")
	g.do(second, "GET", "/v1/tokens", "").want(200, "")
	for _, bad := range []string{"", "short"} {
		if err := g.s.SetToken(bad); err == nil {
			t.Errorf("SetToken(%q) was taken", bad)
		}
	}
	g.do(second, "GET", "/v1/roles", "").want(200, "")
	if err := newTokenRig(t, Config{}).s.SetToken(second); err == nil {
		t.Error("a server without a token was given one")
	}
}

// TestAudit: the history has the token beside what its bearer says of itself.
func TestAudit(t *testing.T) {
	g := newTokenRig(t, Config{Token: configToken1})
	ops := g.token("ops", 0, access.Act)
	var session struct{ Session string }
	g.do(ops, "POST", "/v1/sessions", `{"name":"web-1"}`).into(&session)
	g.do(ops, "PUT", "/v1/leases/role/billing", fmt.Sprintf(`{"session":%q}`, session.Session)).want(200, "")
	for _, c := range []struct{ token, body string }{{ops, `{}`}, {ops, `{"by":"carol"}`}, {configToken1, `{}`}, {configToken1, `{"by":"carol"}`}} {
		g.do(c.token, "POST", "/v1/roles/billing/resign", c.body).want(202, "")
	}
	events, err := g.store.Read(t.Context(), history.Query{Part: "role"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range events {
		if who, asked := strings.CutPrefix(e.Reason, "asked to resign by "); asked {
			got = append(got, who)
		}
	}
	want := []string{"token ops (127.0.0.1)", "carol with token ops (127.0.0.1)", "token config (127.0.0.1)", "carol (127.0.0.1)"}
	if !slices.Equal(got, want) {
		t.Errorf("asked by %q, want %q", got, want)
	}
	g.do(configToken1, "POST", "/v1/roles/billing/resign", `{"by":"carol with token ops"}`).want(400, "invalid")
	long := strings.Repeat("x", lease.MaxName/2)
	g.token(strings.Repeat("n", access.MaxName), 0, access.Act)
	r := withCaller(request(t.Context(), "POST", "/", ""), caller{token: access.Token{ID: "i", Name: strings.Repeat("n", access.MaxName)}})
	r.RemoteAddr = "[2001:db8:1111:2222:3333:4444:5555:6666]:80"
	if who, err := requesterOf(r, long); err != nil || len(who) > lease.MaxName {
		t.Errorf("%d bytes are more than the history takes: %v", len(who), err)
	}
}

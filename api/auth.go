package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/access"
)

// authorizer decides whether a request may pass.
type authorizer struct {
	config      *configToken
	operator    string                   // what the history calls a caller with that token
	tokens      *tokenCache              // the store's tokens; nil when it keeps none
	clients     map[string]access.Scopes // what a client certificate gives, by its name
	crossOrigin *http.CrossOriginProtection
}

func newAuthorizer(cfg Config) authorizer {
	g := authorizer{config: &configToken{}, operator: cmp.Or(cfg.Operator, "token "+access.Config), clients: cfg.Clients, crossOrigin: http.NewCrossOriginProtection()}
	g.config.set(cfg.Token)
	return g
}

// configToken is the token of the configuration, which a reload may replace.
type configToken struct {
	current atomic.Pointer[tokenSum] // nil while there is none
}

// tokenSum is one token of the configuration, of which only the sum is kept.
type tokenSum struct {
	sum      [sha256.Size]byte
	replaced chan struct{} // closed when another replaces it
}

func (c *configToken) set(token string) {
	var next *tokenSum
	if token != "" {
		next = &tokenSum{sum: sha256.Sum256([]byte(token)), replaced: make(chan struct{})}
		if was := c.current.Load(); was != nil && was.sum == next.sum {
			return
		}
	}
	if was := c.current.Swap(next); was != nil {
		close(was.replaced)
	}
}

func (c *configToken) isSet() bool { return c.current.Load() != nil }

// match returns the configured token if the request carries it, else nil. It compares sums of equal length in constant
// time, so that timing reveals nothing about the token.
func (c *configToken) match(r *http.Request) *tokenSum {
	now := c.current.Load()
	text, ok := bearerToken(r)
	given := sha256.Sum256([]byte(text))
	if now == nil || subtle.ConstantTimeCompare(given[:], now.sum[:]) != 1 || !ok {
		return nil
	}
	return now
}

// caller is who sent a request, as far as its token says.
type caller struct {
	// token of the store that was shown; the zero token with none.
	token access.Token
	// scopes is what the caller may do.
	scopes access.Scopes
	// config is the configured token, if that was shown.
	config *tokenSum
	// operator is what the history calls a caller with that token.
	operator string
	// certificate: it was a client certificate, and token stands for it, which expires when it ends.
	certificate bool
}

// MayIngest reports whether a request that came through a [Server] carries a token that may send heartbeats: the
// configured one, or one of the store.
func MayIngest(r *http.Request) bool { return callerOf(r.Context()).scopes.Has(access.Ingest) }

// TooManyWrongKeys counts a request that came through a [Server] with a wrong ping key or token, and reports whether its address
// has sent too many of them.
func TooManyWrongKeys(r *http.Request) bool {
	l, ok := r.Context().Value(limiterKey{}).(*limiter)
	return ok && l.allow(r, caller{}, wrongToken) != nil
}

// HasSentTooManyWrongKeys reports whether TooManyWrongKeys would say so now, and counts nothing.
func HasSentTooManyWrongKeys(r *http.Request) bool {
	l, ok := r.Context().Value(limiterKey{}).(*limiter)
	return ok && l.isOver(r, caller{}, wrongToken)
}

// limiterKey is that of the limiter in the context of a request whose handler checks keys itself.
type limiterKey struct{}

// bearerToken is what a request carries as Authorization: Bearer.
func bearerToken(r *http.Request) (shown string, ok bool) {
	scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(shown), strings.EqualFold(scheme, "Bearer")
}

// authorize returns the caller, or an error if the route is not for them.
func (g authorizer) authorize(r *http.Request, to route) (caller, error) {
	// DNS rebinding: a page of another site can make its own name resolve to this host, and the browser then sends
	// requests that look local. Browsers always send Host; a health check of HTTP/1.0 need not.
	if !g.config.isSet() && r.Host != "" && !isLoopback(hostOf(r.Host)) {
		return caller{}, fmt.Errorf("%w: without a token this server answers only as localhost, 127.0.0.1 or [::1], not as %.100q", errHost, r.Host)
	}
	if name := forwardedBy(r.Header); name != "" && !g.config.isSet() {
		return caller{}, fmt.Errorf("%w: the request carries %s: it came through a proxy, and without a token anyone who reaches the proxy could do everything (set token_file, or keep the proxy away from this port)", errProxied, name)
	}
	if err := g.crossOrigin.Check(g.forOriginCheck(r, to)); err != nil {
		return caller{}, errCrossOrigin
	}
	// Health checks and the page's files carry no secrets.
	if to.open && !to.keyed {
		return caller{}, nil
	}
	who, err := g.authenticate(r)
	switch {
	case to.keyed && (r.PathValue("key") != "" || err == errUnauthorized):
		return caller{}, nil // ping keys: the handler checks them itself
	case err != nil:
		return who, err
	// What the request may do without a token or certificate it may do with one that gives less.
	case to.keyed && !who.scopes.Has(to.needs()) && (who.certificate || to.hasOwnKey(r)):
		return caller{}, nil
	// Tokens of the store must not create tokens: a leaked one could then outlive its revocation.
	case to.manages && who.config == nil:
		return who, errManages
	case !who.scopes.Has(to.needs()):
		return who, scopeError{need: to.needs(), has: who.token}
	}
	return who, nil
}

// forwardedBy returns the name of a header that only proxies add; "" without one.
func forwardedBy(h http.Header) string {
	found := ""
	for name := range h {
		if name == "Forwarded" || name == "Via" || strings.HasPrefix(name, "X-Forwarded-") {
			if found == "" || name < found { // the same one each time
				found = name
			}
		}
	}
	return found
}

// forOriginCheck is the request as the cross-origin check must see it. A ping by GET changes something, and a value of the
// cache may be fetched for one, so that a server without a token must refuse one that a page of another site makes the
// browser send. Only browsers send the headers that are checked.
func (g authorizer) forOriginCheck(r *http.Request, to route) *http.Request {
	safe := to.scope != access.Ingest && !to.costs
	// A browser sends a client certificate by itself, as it sends no token.
	tokenOnly := g.config.isSet() && len(g.clients) == 0
	if safe || r.Method == http.MethodPost || tokenOnly || r.Header["Sec-Fetch-Site"] == nil && r.Header["Origin"] == nil {
		return r
	}
	r = r.WithContext(r.Context()) // a copy
	r.Method = http.MethodPost
	return r
}

// authenticate returns the caller: errUnauthorized itself when the request carries no token, and an error that wraps it when
// it carries one of the store's form that is not valid. Without a configured token, a request without a token may do
// everything, because the server then listens on this host alone.
func (g authorizer) authenticate(r *http.Request) (caller, error) {
	if shown := g.config.match(r); shown != nil {
		return caller{scopes: access.AllScopes(), config: shown, operator: g.operator}, nil
	}
	if shown, ok := bearerToken(r); ok && g.tokens != nil {
		if id, sum, ok := access.Parse(shown); ok {
			t, found, err := g.tokens.find(r.Context(), id, sum)
			if err != nil {
				return caller{}, err
			}
			if found {
				return caller{token: t, scopes: t.Scopes}, nil
			}
			// Not the rights of a request without a token: a revoked token must not give its bearer more than before.
			return caller{}, fmt.Errorf("%w; the token that was sent is not known here, has expired, or was revoked", errUnauthorized)
		}
	}
	// A token that is wrong is refused, whoever shows it.
	if _, sent := bearerToken(r); !sent {
		if who, ok := g.certified(r); ok {
			return who, nil
		}
	}
	if g.config.isSet() {
		return caller{}, errUnauthorized
	}
	return caller{scopes: access.AllScopes()}, nil
}

// certified returns the caller whose client certificate the listener has verified, if its common name or one of its DNS names
// is configured. It is asked at each request: a connection may outlive the certificate.
func (g authorizer) certified(r *http.Request) (caller, bool) {
	if len(g.clients) == 0 || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return caller{}, false
	}
	shown := r.TLS.VerifiedChains[0][0]
	if time.Now().After(shown.NotAfter) {
		return caller{}, false
	}
	for _, name := range append([]string{shown.Subject.CommonName}, shown.DNSNames...) {
		if scopes, ok := g.clients[name]; ok {
			return caller{token: access.Token{ID: "certificate/" + name, Name: name, Scopes: scopes, Expires: shown.NotAfter}, scopes: scopes, certificate: true}, true
		}
	}
	return caller{}, false
}

// hasToken reports whether the request carried a valid token.
func (c caller) hasToken() bool { return c.token.ID != "" || c.config != nil }

// cancelWhenRevoked calls stop soon after the caller's token or certificate has ended, and returns then or when ctx ends. A
// stream must not outlive what opened it.
func (g authorizer) cancelWhenRevoked(ctx context.Context, who caller, stop func()) {
	if who.certificate {
		cancelAt(ctx, who.token.Expires, stop)
		return
	}
	if who.config == nil {
		g.tokens.stopWhenRevoked(ctx, who.token.ID, stop)
		return
	}
	select {
	case <-ctx.Done():
	case <-who.config.replaced:
		stop()
	}
}

// cancelAt calls stop at that time of the wall clock, and returns then or when ctx ends.
func cancelAt(ctx context.Context, end time.Time, stop func()) {
	for left := time.Until(end); left > 0; left = time.Until(end) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(left, time.Minute)): // the wall clock may step, which no timer notices
		}
	}
	stop()
}

// callerKey is that of the caller in the context of a request.
type callerKey struct{}

// withCaller puts a caller with a token into the context of the request.
func withCaller(r *http.Request, who caller) *http.Request {
	if !who.hasToken() {
		return r
	}
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, who))
}

func callerOf(ctx context.Context) caller {
	who, _ := ctx.Value(callerKey{}).(caller)
	return who
}

// hostOf is the host of a Host header, without its port.
func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return hostport
}

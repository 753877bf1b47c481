package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/understudy-ha/understudy/access"
)

// gate decides who may ask.
type gate struct {
	config *configToken
	book   *tokenBook // the store's tokens; nil when it keeps none
	guard  *http.CrossOriginProtection
}

func newGate(token string) gate {
	g := gate{config: &configToken{}, guard: http.NewCrossOriginProtection()}
	g.config.set(token)
	return g
}

// configToken is the token of the configuration, which may be exchanged.
type configToken struct {
	now atomic.Pointer[configured] // nil while there is none
}

// configured is one token of the configuration.
type configured struct {
	sum  [sha256.Size]byte
	over chan struct{} // closed when another has taken its place
}

func (c *configToken) set(token string) {
	var next *configured
	if token != "" {
		next = &configured{sum: sha256.Sum256([]byte(token)), over: make(chan struct{})}
		if was := c.now.Load(); was != nil && was.sum == next.sum {
			return
		}
	}
	if was := c.now.Swap(next); was != nil {
		close(was.over)
	}
}

func (c *configToken) there() bool { return c.now.Load() != nil }

// shown is it if a request shows it, else nil. How long it takes tells nothing of the token.
func (c *configToken) shown(r *http.Request) *configured {
	now := c.now.Load()
	text, ok := bearer(r)
	given := sha256.Sum256([]byte(text))
	if now == nil || subtle.ConstantTimeCompare(given[:], now.sum[:]) != 1 || !ok {
		return nil
	}
	return now
}

// caller is who asks, as far as the request shows it.
type caller struct {
	// token of the store that was shown; the zero token with none.
	token access.Token
	// may is what the caller may do.
	may access.Scopes
	// config is the configured token, if that was shown.
	config *configured
}

// MayIngest tells of a request that came through a [Server] whether it shows a token that may send beats: the
// configured one, or one of the store.
func MayIngest(r *http.Request) bool { return callerOf(r.Context()).may.Has(access.Ingest) }

// bearer is what a request shows as Authorization: Bearer.
func bearer(r *http.Request) (shown string, ok bool) {
	scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(shown), strings.EqualFold(scheme, "Bearer")
}

// admit tells who asks, if they may.
func (g gate) admit(r *http.Request, to route) (caller, error) {
	if !g.config.there() && r.Host != "" && !loopback(hostOf(r.Host)) {
		// A page of another site may have made its own name resolve to this host. A
		// browser always says which; a health check of HTTP/1.0 need not.
		return caller{}, fmt.Errorf("%w: without a token this server answers only as localhost, 127.0.0.1 or [::1], not as %.100q", errHost, r.Host)
	}
	if err := g.guard.Check(g.asChange(r, to)); err != nil {
		return caller{}, errCrossOrigin
	}
	if to.open && !to.keyed {
		return caller{}, nil
	}
	who, err := g.identify(r)
	switch {
	case to.keyed && (r.PathValue("key") != "" || err == errUnauthorized):
		return caller{}, nil // it has keys of its own
	case err != nil:
		return who, err
	case to.manages && who.config == nil:
		return who, errManages
	case !who.may.Has(to.needs()):
		return who, scopeError{need: to.needs(), has: who.token}
	}
	return who, nil
}

// asChange is a request as the guard is to see it: a ping by GET changes something, and a server that asks for
// no token must not take one that a page of another site has sent.
func (g gate) asChange(r *http.Request, to route) *http.Request {
	if to.scope != access.Ingest || r.Method == http.MethodPost || g.config.there() {
		return r
	}
	r = r.WithContext(r.Context()) // a copy
	r.Method = http.MethodPost
	return r
}

// identify tells who asks: errUnauthorized itself when no token was shown, and an error that wraps it when one of
// the store was that is not good. Without a configured token whoever shows none of the store may do everything,
// because the server is reached from this host alone.
func (g gate) identify(r *http.Request) (caller, error) {
	if shown := g.config.shown(r); shown != nil {
		return caller{may: access.AllScopes(), config: shown}, nil
	}
	if shown, ok := bearer(r); ok && g.book != nil {
		if id, sum, ok := access.Parse(shown); ok {
			t, found, err := g.book.find(r.Context(), id, sum)
			if err != nil {
				return caller{}, err
			}
			if found {
				return caller{token: t, may: t.Scopes}, nil
			}
			// Not "anybody": the end of a token must not give its bearer more.
			return caller{}, fmt.Errorf("%w; the token that was sent is not known here, has expired, or was revoked", errUnauthorized)
		}
	}
	if g.config.there() {
		return caller{}, errUnauthorized
	}
	return caller{may: access.AllScopes()}, nil
}

// shown tells whether a token was.
func (c caller) shown() bool { return c.token.ID != "" || c.config != nil }

// follow ends what a caller began soon after the token has ended that was shown; it returns when ctx has ended.
func (g gate) follow(ctx context.Context, who caller, stop func()) {
	if who.config == nil {
		g.book.follow(ctx, who.token.ID, stop)
		return
	}
	select {
	case <-ctx.Done():
	case <-who.config.over:
		stop()
	}
}

// callerKey is that of the caller in the context of a request.
type callerKey struct{}

// withCaller remembers who asks, where that is more than anybody.
func withCaller(r *http.Request, who caller) *http.Request {
	if !who.shown() {
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

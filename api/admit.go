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

// configToken is the sum of the token of the configuration; nil while there is none.
type configToken struct {
	sum atomic.Pointer[[sha256.Size]byte]
}

func (c *configToken) set(token string) {
	if token == "" {
		c.sum.Store(nil)
		return
	}
	c.sum.Store(new(sha256.Sum256([]byte(token))))
}

func (c *configToken) there() bool { return c.sum.Load() != nil }

// shown tells whether a request shows it. How long it takes tells nothing of the token.
func (c *configToken) shown(r *http.Request) bool {
	sum := c.sum.Load()
	text, ok := bearer(r)
	given := sha256.Sum256([]byte(text))
	return sum != nil && subtle.ConstantTimeCompare(given[:], sum[:]) == 1 && ok
}

// caller is who asks, as far as the request shows it.
type caller struct {
	// token of the store that was shown; the zero token with none.
	token access.Token
	// may is what the caller may do.
	may access.Scopes
	// config: the configured token was shown.
	config bool
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
	if err := g.guard.Check(r); err != nil {
		return caller{}, errCrossOrigin
	}
	if to.open && !to.keyed {
		return caller{}, nil
	}
	who, err := g.identify(r)
	switch {
	case to.open:
		return who, nil // it knows its callers itself, and may have use for this
	case err != nil:
		return who, err
	case to.manages && !who.config:
		return who, errManages
	case !who.may.Has(to.needs()):
		return who, scopeError{need: to.needs(), has: who.token}
	}
	return who, nil
}

// identify tells who asks. Without a configured token whoever shows no token may do everything, because the
// server is reached from this host alone.
func (g gate) identify(r *http.Request) (caller, error) {
	if g.config.shown(r) {
		return caller{may: access.AllScopes(), config: true}, nil
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
		}
	}
	if g.config.there() {
		return caller{}, errUnauthorized
	}
	return caller{may: access.AllScopes()}, nil
}

// callerKey is that of the caller in the context of a request.
type callerKey struct{}

// withCaller remembers who asks, where that is more than anybody.
func withCaller(r *http.Request, who caller) *http.Request {
	if who.token.ID == "" && !who.config {
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

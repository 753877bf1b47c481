package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strings"
)

// gate decides who may ask.
type gate struct {
	sum   *[sha256.Size]byte // of the token; nil without one
	guard *http.CrossOriginProtection
}

func newGate(token string) gate {
	g := gate{guard: http.NewCrossOriginProtection()}
	if token != "" {
		g.sum = new(sha256.Sum256([]byte(token)))
	}
	return g
}

func (g gate) admit(r *http.Request, open bool) error {
	if g.sum == nil && r.Host != "" && !loopback(hostOf(r.Host)) {
		// A page of another site may have made its own name resolve to this host. A
		// browser always says which; a health check of HTTP/1.0 need not.
		return fmt.Errorf("%w: without a token this server answers only as localhost, 127.0.0.1 or [::1], not as %.100q", errHost, r.Host)
	}
	if err := g.guard.Check(r); err != nil {
		return errCrossOrigin
	}
	if open || g.sum == nil {
		return nil
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	given := sha256.Sum256([]byte(strings.TrimSpace(token)))
	if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(given[:], g.sum[:]) != 1 {
		return errUnauthorized
	}
	return nil
}

// hostOf is the host of a Host header, without its port.
func hostOf(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return hostport
}

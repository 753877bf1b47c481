package intake

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/glob"
	"github.com/understudy-ha/understudy/internal/secret"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

var (
	errDenied   = errors.New("send a ping key, or the API's token")
	errFlood    = errors.New("too many wrong keys are being answered")
	errNotFor   = errors.New("this key is not for that event")
	errPostOnly = errors.New("this key accepts only POST")
)

// PingKey lets programs send beats that may do nothing else. It is taken as
// "Authorization: Bearer KEY" (or GenieKey), as the password of basic authentication, as ?key=KEY,
// or in the path of a ping, /v1/ping/key/KEY/EVENT/SOURCE. What stands in a URL
// stands in the logs of proxies too.
type PingKey struct {
	// Name is for people: 1 to monitor.MaxName bytes.
	Name string
	// Key is 16 to 200 letters, digits, '-', '.', '_' and '~'. Take a random one.
	Key secret.Text
	// Checks that it is for; '*' stands for any characters. Empty: for all.
	Checks []string
	// PostOnly refuses GET and HEAD, which programs that preview links send too.
	PostOnly bool
}

// Validate returns an error that wraps [lease.ErrInvalid] and does not show the key.
func (k PingKey) Validate() error {
	if err := lease.ValidateText("name of a ping key", k.Name, 1, monitor.MaxName); err != nil {
		return err
	}
	if len(k.Key) < 16 || len(k.Key) > 200 {
		return fmt.Errorf("%w: ping key %q has %d characters; use 16 to 200", lease.ErrInvalid, k.Name, len(k.Key))
	}
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._~", r)
	}
	if strings.ContainsFunc(string(k.Key), odd) {
		return fmt.Errorf("%w: ping key %q has a character that does not fit into a URL; use letters, digits, '-', '.', '_' and '~'", lease.ErrInvalid, k.Name)
	}
	for _, pattern := range k.Checks {
		if err := lease.ValidateText("checks of ping key "+k.Name, pattern, 1, monitor.MaxName); err != nil {
			return err
		}
	}
	return nil
}

// allows reports whether a key is for a check. A nil key allows everything.
func (k *PingKey) allows(check string) bool {
	return k == nil || len(k.Checks) == 0 || slices.ContainsFunc(k.Checks, func(p string) bool { return glob.Match(p, check) })
}

// A wrong key or UUID is answered after denyAfter, at most denySlots of them at a time: guessing stays slow, and cheap to refuse.
const (
	denyAfter = time.Second
	denySlots = 64
)

// gate decides which requests may send heartbeats.
type gate struct {
	keys           []PingKey
	sums           [][sha256.Size]byte
	authorize      func(*http.Request) bool
	tooMany        func(*http.Request) bool
	hasSentTooMany func(*http.Request) bool
	slots          chan struct{}
}

func newGate(c HTTPConfig) (*gate, error) {
	keys := c.Keys
	never := func(*http.Request) bool { return false }
	g := &gate{keys: slices.Clone(keys), authorize: c.Authorize, tooMany: never, hasSentTooMany: never, slots: make(chan struct{}, denySlots)}
	if c.TooManyWrong != nil {
		g.tooMany = c.TooManyWrong
	}
	if c.HasSentTooMany != nil {
		g.hasSentTooMany = c.HasSentTooMany
	}
	for i, k := range keys {
		if err := k.Validate(); err != nil {
			return nil, err
		}
		for _, other := range keys[:i] {
			if other.Name == k.Name || other.Key == k.Key {
				return nil, fmt.Errorf("%w: ping keys %q and %q are the same, or have one name", lease.ErrInvalid, other.Name, k.Name)
			}
		}
		g.sums = append(g.sums, sha256.Sum256([]byte(k.Key)))
	}
	return g, nil
}

// find looks a key up, in a time that tells nothing about the keys.
func (g *gate) find(given string) *PingKey {
	sum := sha256.Sum256([]byte(given))
	found := -1
	for i := range g.sums {
		if subtle.ConstantTimeCompare(sum[:], g.sums[i][:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return nil
	}
	return &g.keys[found]
}

// given is the key that a request has, "" for none.
func given(r *http.Request) string {
	if key := r.PathValue("key"); key != "" {
		return key
	}
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "GenieKey") {
		return strings.TrimSpace(token)
	}
	return r.URL.Query().Get("key")
}

// open reports whether everybody may send heartbeats.
func (g *gate) open() bool { return g.authorize == nil && len(g.keys) == 0 }

// admit returns the key of a request; a nil key allows everything. Without authorize a request
// without a key is admitted, but one with a wrong key is refused.
func (g *gate) admit(r *http.Request) (*PingKey, error) {
	if g.open() {
		return nil, nil
	}
	key := given(r)
	if key != "" {
		if k := g.find(key); k != nil {
			if k.PostOnly && r.Method != http.MethodPost {
				return nil, errPostOnly
			}
			return k, nil
		}
	}
	switch {
	case g.authorize == nil && key == "":
		return nil, nil
	case g.authorize != nil && r.PathValue("key") == "" && g.authorize(r):
		return nil, nil
	case g.tooMany(r):
		return nil, errFlood
	case key == "":
		return nil, errDenied
	}
	return nil, g.deny(r.Context(), errDenied)
}

// deny delays why, the answer to a wrong key or UUID.
func (g *gate) deny(ctx context.Context, why error) error {
	select {
	case g.slots <- struct{}{}:
		defer func() { <-g.slots }()
	default:
		return errFlood
	}
	pause(ctx, denyAfter)
	return why
}

// pause returns after d, or when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}

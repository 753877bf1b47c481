package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Limits.
const (
	MaxTokens = 1000 // in one store, ended ones included
	// MaxName is the most bytes of a token's name: the history shows it beside the caller's own name.
	MaxName = 40
	// MinLife and MaxLife bound how long a token lasts that does not last for ever.
	MinLife = time.Second
	MaxLife = 10 * 366 * 24 * time.Hour
	// KeepEnded is how long an ended token stays listed: the first token created after that removes it.
	KeepEnded = 366 * 24 * time.Hour
)

var (
	// ErrNotFound: no token has that id, and no live one has that name.
	ErrNotFound = errors.New("access: no such token")
	// ErrTaken: a live token has that name, or another has that id.
	ErrTaken = errors.New("access: name or id taken")
	// ErrFull: there are [MaxTokens] live tokens.
	ErrFull = errors.New("access: too many tokens")
)

// Scope is a kind of thing that a token lets its bearer do.
type Scope string

// Scopes.
const (
	Read   Scope = "read"   // read anything
	Act    Scope = "act"    // change anything; read anything
	Ingest Scope = "ingest" // send heartbeats and messages, and nothing else
)

// Scopes are those of a token, in the order of AllScopes, each once.
type Scopes []Scope

// AllScopes returns every scope.
func AllScopes() Scopes { return Scopes{Read, Act, Ingest} }

// ParseScopes reads scopes by name. Errors wrap lease.ErrInvalid.
func ParseScopes(names []string) (Scopes, error) {
	var out Scopes
	for _, s := range AllScopes() {
		if slices.Contains(names, string(s)) {
			out = append(out, s)
		}
	}
	for _, name := range names {
		if !slices.Contains(out, Scope(name)) {
			return nil, fmt.Errorf("%w: scope %.40q; use read, act or ingest", lease.ErrInvalid, name)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: a token needs a scope: read, act or ingest", lease.ErrInvalid)
	}
	return out, nil
}

// Has reports whether the scopes allow what needs the given one. Act includes read; no other scope includes another.
func (s Scopes) Has(need Scope) bool {
	return slices.Contains(s, need) || need == Read && slices.Contains(s, Act)
}

// Names of the scopes.
func (s Scopes) Names() []string {
	out := make([]string, len(s))
	for i, one := range s {
		out[i] = string(one)
	}
	return out
}

func (s Scopes) String() string { return strings.Join(s.Names(), ", ") }

// Token is what a store keeps of a token. It holds no secret.
type Token struct {
	ID     string            `json:"id"`
	Name   string            `json:"name"`
	Scopes Scopes            `json:"scopes"`
	Sum    [sha256.Size]byte `json:"-"` // of the whole secret
	// Created and By: when, by the store's clock, and by whom.
	Created time.Time `json:"created"`
	By      string    `json:"by"`
	// Expires is when it ends by itself; zero: never.
	Expires time.Time `json:"expires,omitzero"`
	// Revoked and RevokedBy: when it was ended, and by whom; zero: it was not.
	Revoked   time.Time `json:"revoked,omitzero"`
	RevokedBy string    `json:"revoked_by,omitempty"`
}

// IsLive reports whether the token may be used at that time of the store's clock.
func (t Token) IsLive(now time.Time) bool {
	return t.Revoked.IsZero() && (t.Expires.IsZero() || now.Before(t.Expires))
}

// ended is when a token that is not live ended.
func (t Token) ended() time.Time {
	if t.Revoked.IsZero() || !t.Expires.IsZero() && t.Expires.Before(t.Revoked) {
		return t.Expires
	}
	return t.Revoked
}

// HasSum reports whether sum is that of the token's secret. It takes the same time for every sum, so that timing reveals
// nothing about the secret.
func (t Token) HasSum(sum [sha256.Size]byte) bool {
	return subtle.ConstantTimeCompare(t.Sum[:], sum[:]) == 1
}

// Validate returns an error that wraps lease.ErrInvalid unless a store may keep the token.
func (t Token) Validate() error {
	if !validID(t.ID) {
		return fmt.Errorf("%w: token id %.40q; use %d of a–z and 2–7", lease.ErrInvalid, t.ID, idLength)
	}
	if err := ValidateName(t.Name); err != nil {
		return err
	}
	scopes, err := ParseScopes(t.Scopes.Names())
	switch {
	case err != nil:
		return err
	case !slices.Equal(scopes, t.Scopes):
		return fmt.Errorf("%w: give each scope of a token once, in the order read, act, ingest", lease.ErrInvalid)
	case t.Sum == [sha256.Size]byte{}:
		return fmt.Errorf("%w: token %q has no secret", lease.ErrInvalid, t.Name)
	}
	return lease.ValidateText("who makes the token", t.By, 1, lease.MaxName)
}

// Config is the name of the token of a server's configuration, which is in no store.
const Config = "config"

// ValidateName checks the name of a token: 1 to [MaxName] bytes of printable text, and not [Config].
func ValidateName(name string) error {
	if name == Config {
		return fmt.Errorf("%w: %q is the name of the token of a server's configuration; take another", lease.ErrInvalid, name)
	}
	return lease.ValidateText("name of the token", name, 1, MaxName)
}

// The form of a secret: ust_<id>_<32 random bytes in base64url>.
const (
	prefix   = "ust_"
	idLength = 10
	secret   = 32
)

// NewToken returns a new token and its secret, which cannot be recovered afterwards. [Tokens.Add] sets its times.
// Errors wrap lease.ErrInvalid.
func NewToken(name string, scopes Scopes, by string) (Token, string, error) {
	t := Token{ID: strings.ToLower(rand.Text()[:idLength]), Name: name, Scopes: slices.Clone(scopes), By: by}
	var random [secret]byte
	_, _ = rand.Read(random[:]) // it never fails
	text := prefix + t.ID + "_" + base64.RawURLEncoding.EncodeToString(random[:])
	t.Sum = sha256.Sum256([]byte(text))
	return t, text, t.Validate()
}

// Parse takes a secret apart: the id of its token, and the sum to compare. ok is false if it has not the
// form of a secret.
func Parse(text string) (id string, sum [sha256.Size]byte, ok bool) {
	rest, ok := strings.CutPrefix(text, prefix)
	id, random, cut := strings.Cut(rest, "_")
	if !ok || !cut || !validID(id) || len(random) != base64.RawURLEncoding.EncodedLen(secret) {
		return "", sum, false
	}
	return id, sha256.Sum256([]byte(text)), true
}

func validID(id string) bool {
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return len(id) == idLength
}

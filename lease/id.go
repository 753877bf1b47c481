package lease

import (
	"crypto/rand"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits on what people and programs may name. They keep every row small, and
// every name fit to be printed in a terminal, a log and a page.
const (
	MaxSpace   = 32  // bytes
	MaxKey     = 200 // bytes
	MaxName    = 200 // bytes
	MaxAddress = 500 // bytes
	MaxReason  = 200 // bytes; a longer reason is cut, not refused
)

// ID names a lease: the space of the part that uses it ("role", "shard", …) and
// a key in that space.
type ID struct {
	Space string `json:"space"`
	Key   string `json:"key"`
}

func (id ID) String() string { return id.Space + "/" + id.Key }

// Validate returns an error that wraps [ErrInvalid] unless the space is 1 to
// [MaxSpace] of a–z, 0–9, '-', '_' and '.', starting with a letter, and the key
// is 1 to [MaxKey] bytes of printable UTF-8 without white space at its ends.
func (id ID) Validate() error {
	if err := ValidateSpace(id.Space); err != nil {
		return err
	}
	if id.Key == "." || id.Key == ".." {
		return fmt.Errorf("%w: the key %q would be lost in a URL's path", ErrInvalid, id.Key)
	}
	return ValidateText("key", id.Key, 1, MaxKey)
}

// ValidateSpace checks a space by itself; see [ID.Validate].
func ValidateSpace(space string) error {
	if space == "" || len(space) > MaxSpace {
		return fmt.Errorf("%w: space must have 1 to %d characters, not %d", ErrInvalid, MaxSpace, len(space))
	}
	for i, r := range space {
		letter := r >= 'a' && r <= 'z'
		other := r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
		if !letter && (i == 0 || !other) {
			return fmt.Errorf("%w: space %q: use a–z, 0–9, '-', '_' and '.', starting with a letter", ErrInvalid, space)
		}
	}
	return nil
}

// ValidateText checks a text that people choose and that is shown to people:
// least to most bytes of valid UTF-8, printable, no white space at its ends. The
// error names what, wraps [ErrInvalid] and quotes the text safely.
func ValidateText(what, s string, least, most int) error {
	switch {
	case len(s) < least:
		return fmt.Errorf("%w: %s is empty", ErrInvalid, what)
	case len(s) > most:
		return fmt.Errorf("%w: %s has %d bytes; at most %d are allowed", ErrInvalid, what, len(s), most)
	case !utf8.ValidString(s):
		return fmt.Errorf("%w: %s is not valid UTF-8", ErrInvalid, what)
	case strings.TrimSpace(s) != s:
		return fmt.Errorf("%w: %s %q begins or ends with white space", ErrInvalid, what, s)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%w: %s %q contains the unprintable character %U", ErrInvalid, what, s, r)
		}
	}
	return nil
}

// Instance is one running process. Its ID is random and new at every start; Name
// and Address are for people and for name resolving.
type Instance struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
}

// NewInstance gives a process its identity for this run. The name and address
// are checked when the instance is first used, by [Instance.Validate].
func NewInstance(name, address string) Instance {
	return Instance{ID: NewID(), Name: name, Address: address}
}

// NewID returns a random identifier of 26 characters (130 bits).
func NewID() string { return rand.Text() }

// Validate returns an error that wraps [ErrInvalid] unless the instance has an
// id and a name, and all three are printable and within their limits.
func (i Instance) Validate() error {
	if err := ValidateText("instance id", i.ID, 1, MaxName); err != nil {
		return err
	}
	if err := ValidateText("instance name", i.Name, 1, MaxName); err != nil {
		return err
	}
	return ValidateText("address", i.Address, 0, MaxAddress)
}

// Label is the instance as the history shows it: its name, and enough of its
// id to tell two runs of the same name apart.
func (i Instance) Label() string {
	short := i.ID
	if len(short) > 8 {
		short = short[:8]
	}
	return i.Name + "/" + short
}

// IsNamed reports whether a successor's name means this instance: by its name or by
// its whole id.
func (i Instance) IsNamed(successor string) bool {
	return successor != "" && (successor == i.Name || successor == i.ID)
}

// TruncateReason bounds a reason to [MaxReason] bytes of printable text.
func TruncateReason(reason string) string {
	reason = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, reason)
	if len(reason) <= MaxReason {
		return reason
	}
	const more = "…"
	cut := MaxReason - len(more)
	for !utf8.RuneStart(reason[cut]) {
		cut--
	}
	return reason[:cut] + more
}

// ReleaseRequestedReason is the reason with which a request to give a lease up is recorded.
func ReleaseRequestedReason(successor, who string) string {
	reason := "asked to resign by " + who
	if successor != "" {
		reason = "asked to resign for " + successor + " by " + who
	}
	return TruncateReason(reason)
}

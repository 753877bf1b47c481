package resolve

import (
	"errors"
	"fmt"
	"strings"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

var (
	// ErrUnknown: nothing has this name.
	ErrUnknown = errors.New("resolve: there is no such name")
	// ErrStale: what was known of the name cannot be believed any more, or yet.
	ErrStale = errors.New("resolve: what was known cannot be believed any more")
	// ErrAmbiguous: two names differ only in the case of their letters, and the asker does
	// not tell cases apart.
	ErrAmbiguous = errors.New("resolve: names differ only in the case of letters")
	// ErrVacant: the name exists and has no holder.
	ErrVacant = errors.New("resolve: nobody holds it")
)

// Kind is what sort of thing a name stands for.
type Kind string

// Kinds.
const (
	Role    Kind = "role"    // who holds a role
	Primary Kind = "primary" // where writes of a shard go
	Replica Kind = "replica" // the replicas of a shard that have a whole copy
)

// Name is what is asked for.
type Name struct {
	Kind Kind   `json:"kind"`
	Of   string `json:"of"` // the role or shard
}

// ParseName reads a name as people write it: "role/billing", "primary/orders" or
// "replica/orders"; anything else is the name of a role. Errors wrap lease.ErrInvalid.
func ParseName(text string) (Name, error) {
	n := Name{Kind: Role, Of: text}
	if kind, of, cut := strings.Cut(text, "/"); cut {
		switch k := Kind(kind); k {
		case Role, Primary, Replica:
			n = Name{Kind: k, Of: of}
		}
	}
	return n, n.Validate()
}

// String is what [ParseName] reads.
func (n Name) String() string { return string(n.Kind) + "/" + n.Of }

// Validate returns an error that wraps lease.ErrInvalid unless something can have the name.
func (n Name) Validate() error {
	switch n.Kind {
	case Role:
		return elect.ValidateRole(n.Of)
	case Primary, Replica:
		return shard.ValidateName(n.Of)
	default:
		return fmt.Errorf("%w: kind %.40q of a name; use role, primary or replica", lease.ErrInvalid, string(n.Kind))
	}
}

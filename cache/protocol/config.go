package protocol

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// Member is a peer: the address that other peers connect to, which is its name,
// and the one that clients connect to.
type Member struct {
	URL string `json:"url"`
	API string `json:"api"`
}

// Config is a numbered list of members. The first has number 1 and is what every
// peer was started with; each later one differs by one member from the one before
// it, whose majority agreed to it, so that a majority of any two in a row has a
// peer in common.
type Config struct {
	Number  int64    `json:"number"`
	Members []Member `json:"members"` // in the order of their urls
	// Floor is a term: up to it, terms may have been used under the configurations
	// before the last, with whose majorities this one's need not share a peer.
	Floor int64 `json:"floor,omitempty"`
}

// MaxMembers bounds a configuration.
const MaxMembers = 15

// NewConfig is the configuration 1 with these members.
func NewConfig(members []Member) Config {
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b Member) int { return cmp.Compare(a.URL, b.URL) })
	return Config{Number: 1, Members: slices.Compact(sorted)}
}

// Validate checks the members: 1 to [MaxMembers], each with addresses of its own.
func (c Config) Validate() error {
	if n := len(c.Members); n == 0 || n > MaxMembers {
		return fmt.Errorf("cache: %d members: a cluster has 1 to %d", n, MaxMembers)
	}
	urls, apis := map[string]bool{}, map[string]bool{}
	for _, m := range c.Members {
		if err := m.Validate(); err != nil {
			return err
		}
		if urls[m.URL] || apis[m.API] {
			return fmt.Errorf("cache: member %s,%s is named twice, with other addresses: each url and each api address belongs to one member", m.URL, m.API)
		}
		urls[m.URL], apis[m.API] = true, true
	}
	return nil
}

// Validate checks the addresses: tcp://host:port, at most 255 bytes.
func (m Member) Validate() error {
	for _, a := range []struct{ what, addr string }{{"url", m.URL}, {"api", m.API}} {
		if !strings.HasPrefix(a.addr, "tcp://") || len(a.addr) > 255 || !strings.Contains(a.addr[len("tcp://"):], ":") || strings.ContainsAny(a.addr, " ,\t\n\x00") {
			return fmt.Errorf("cache: the %s of a member must look like tcp://host:port, got %q", a.what, a.addr)
		}
	}
	return nil
}

// Majority is how many members agree on anything.
func (c Config) Majority() int { return len(c.Members)/2 + 1 }

// Has reports whether a peer is a member.
func (c Config) Has(url string) bool { return c.index(url) >= 0 }

func (c Config) index(url string) int {
	return slices.IndexFunc(c.Members, func(m Member) bool { return m.URL == url })
}

// Digest tells configurations of one number apart.
func (c Config) Digest() uint64 {
	h := sha256.New()
	for _, m := range c.Members {
		fmt.Fprintf(h, "%d %s %d %s\n", len(m.URL), m.URL, len(m.API), m.API)
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}

package protocol

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// Every peer is given the list of the members. To change it, the operator edits the
// list by one member and reloads every peer, one after another. Meanwhile some peers
// have the old list and some the new one, and both may elect, because a majority of
// one list and a majority of the other always share a peer:
//
//	Let A have n members, and B the same members and one more, x.
//	A majority of A has at least ⌊n/2⌋+1 members, one of B at least ⌊(n+1)/2⌋+1.
//	Together that is n+2 for every n, even or odd. All of them are in B, which has
//	only n+1 members: so at least one peer is in both.
//
// That peer has promised its vote to one candidate alone, whatever list the candidate
// has: promises are to peers, not to lists, and a new list ends none of them. So two
// candidates with such lists never both have a majority.
//
// Lists that differ by two have no such peer: {a,b,c} and {a,b,c,d,e} have the
// majorities {a,b} and {c,d,e}. So peers with such lists ignore each other
// (memberlists.go), and a peer takes no list that leaves a connected one behind by two.

// Member is a peer: the address that other peers connect to, which is its name,
// and the address that clients connect to.
type Member struct {
	URL string `json:"url"`
	API string `json:"api"`
}

// Members is a list of all peers of a cluster, in the order of their urls.
type Members []Member

// MaxMembers bounds a list.
const MaxMembers = 15

// NewMembers sorts a list and drops repeated entries.
func NewMembers(members []Member) Members {
	sorted := slices.Clone(members)
	slices.SortFunc(sorted, func(a, b Member) int { return cmp.Or(cmp.Compare(a.URL, b.URL), cmp.Compare(a.API, b.API)) })
	return slices.Compact(sorted)
}

// Validate checks the list: 1 to [MaxMembers] members, each with addresses of its own.
func (l Members) Validate() error {
	if n := len(l); n == 0 || n > MaxMembers {
		return fmt.Errorf("cache: %d members: a cluster has 1 to %d", n, MaxMembers)
	}
	urls, apis := map[string]bool{}, map[string]bool{}
	for _, m := range l {
		if err := m.Validate(); err != nil {
			return err
		}
		if urls[m.URL] || apis[m.API] {
			return fmt.Errorf("cache: member %s,%s appears twice, with other addresses: each url and each api address belongs to one member", m.URL, m.API)
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

// Majority is how many members must agree on a fetch.
func (l Members) Majority() int { return len(l)/2 + 1 }

// Has reports whether a peer is in the list.
func (l Members) Has(url string) bool { return l.Index(url) >= 0 }

// Index is the position of a peer in the list, -1 when it is not there.
func (l Members) Index(url string) int {
	return slices.IndexFunc(l, func(m Member) bool { return m.URL == url })
}

// Digest tells lists apart.
func (l Members) Digest() uint64 {
	h := sha256.New()
	for _, m := range l {
		fmt.Fprintf(h, "%d %s %d %s\n", len(m.URL), m.URL, len(m.API), m.API)
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// Difference has "+url" for each peer that is only in next, and "-url" for each that
// is only in l. Addresses of clients do not count: majorities are of peers.
func (l Members) Difference(next Members) (out []string) {
	for _, m := range next {
		if !l.Has(m.URL) {
			out = append(out, "+"+m.URL)
		}
	}
	for _, m := range l {
		if !next.Has(m.URL) {
			out = append(out, "-"+m.URL)
		}
	}
	return out
}

// WorksWith reports whether peers with these lists may elect together: every majority
// of one list shares a peer with every majority of the other.
func (l Members) WorksWith(other Members) bool { return len(l.Difference(other)) <= 1 }

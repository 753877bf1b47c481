package claim_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/internal/testkit/script"
)

func TestShare(t *testing.T) {
	script.Table(t, "testdata/share.txt", func() func(script.Words) string {
		return func(in script.Words) string {
			s := claim.Share{Free: in.Has("free")}
			for key, to := range map[string]*int{"members": &s.Members, "mine": &s.Mine, "held": &s.Held, "least": &s.Least} {
				if in.Has(key) {
					fmt.Sscan(in[key], to)
				}
			}
			return fmt.Sprintf("fair=%d surplus=%d fresh=%d", s.FairCount(), s.Surplus(), s.Fresh(100))
		}
	})
}

// house is a set of members and the keys they hold. In each round everyone asks
// once, gives back and takes.
type house struct {
	held  []int
	fresh int // given back in this round or the last
	lain  int // free for longer
	moved int // keys that changed hands in this round
}

func (h *house) share(i int) claim.Share {
	s := claim.Share{Members: len(h.held), Mine: h.held[i], Least: slices.Min(h.held), Free: h.fresh+h.lain > 0}
	for _, n := range h.held {
		s.Held += n
	}
	return s
}

// round lets all act in some order. When stale, they all ask first, and act on
// what they heard, as instances do that ask at the same moment.
func (h *house) round(rng *rand.Rand, stale bool) {
	h.moved = 0
	order := rng.Perm(len(h.held))
	shares := make([]claim.Share, len(h.held))
	for _, i := range order {
		shares[i] = h.share(i)
	}
	before := h.fresh
	for _, i := range order {
		if !stale {
			shares[i] = h.share(i)
		}
		h.act(i, shares[i])
	}
	lain := min(before, h.fresh)
	h.fresh, h.lain = h.fresh-lain, h.lain+lain
}

func (h *house) act(i int, s claim.Share) {
	const most = 1000
	back := min(s.Surplus(), h.held[i])
	h.held[i] -= back
	h.fresh += back
	if back > 0 {
		h.moved += back
		return // what it gave is not for itself
	}
	old := min(h.lain, most)
	took := min(h.fresh, s.Fresh(most-old))
	h.lain, h.fresh = h.lain-old, h.fresh-took
	h.held[i] += old + took
	h.moved += old + took
}

// few is how many rounds members may need: of those who hold too much, one at a
// time gives back.
func few(members int) int { return 6 + 3*members }

// TestShareConverges: from any division, giving back leads to a fair one within
// a few rounds, and then nothing moves any more.
func TestShareConverges(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		h := &house{held: make([]int, 1+rng.IntN(12))}
		keys := rng.IntN(100 * (1 + rng.IntN(10)))
		switch rng.IntN(4) {
		case 0: // one has all
			h.held[0] = keys
		case 1: // nobody has any
			h.lain = keys
		default:
			for range keys {
				h.held[rng.IntN(1+rng.IntN(len(h.held)))]++
			}
		}
		begin := fmt.Sprint(h.held)
		stale := seed%2 == 1
		rounds := few(len(h.held))
		for range rounds {
			h.round(rng, stale)
		}
		if spread := slices.Max(h.held) - slices.Min(h.held); spread > 1 || h.fresh+h.lain > 0 {
			t.Fatalf("seed %d: from %s (and %d free) to %v (and %d free) after %d rounds",
				seed, begin, keys, h.held, h.fresh+h.lain, rounds)
		}
		for range 5 {
			if h.round(rng, stale); h.moved > 0 {
				t.Fatalf("seed %d: %d keys move in a fair division, to %v", seed, h.moved, h.held)
			}
		}
	}
}

// TestShareJoins: whoever joins gets its part in a few rounds, and few keys move
// that need not.
func TestShareJoins(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for _, keys := range []int{1, 7, 100, 1000} {
		h := &house{held: []int{keys}}
		for members := 2; members <= 8; members++ {
			h.held = append(h.held, 0)
			moved := 0
			for range few(members) {
				h.round(rng, false)
				moved += h.moved
			}
			if spread := slices.Max(h.held) - slices.Min(h.held); spread > 1 {
				t.Errorf("%d keys, %d members: %v", keys, members, h.held)
			}
			// Each key that moves is given back once and taken once. Some more do,
			// because what is free for a moment does not count when parts are cut.
			if least := 2 * (keys / members); moved > least+least/2+4*members {
				t.Errorf("%d keys, %d members: %d moves, %d are needed", keys, members, moved, least)
			}
		}
	}
}

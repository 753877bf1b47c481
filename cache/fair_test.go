package cache

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/cache/wire"
)

// A client with many cold keys does not hold up another client's single one.
func TestFetchesTakeTurns(t *testing.T) {
	const flood = 300
	release := make(chan struct{})
	c := newCluster(t, 1, func(ctx context.Context, f Fetch) (Value, error) {
		if strings.HasPrefix(f.Key, "flood") {
			select {
			case <-release:
			case <-ctx.Done():
				return Value{}, ctx.Err()
			}
		}
		return echo(ctx, f)
	}, func(_ int, cfg *Config) { cfg.Fetches = 1 }).settled()
	many, other := newRaw(t, c.members[0].API, nil), newRaw(t, c.members[0].API, nil)
	for i := range flood {
		many.send(fmt.Sprint(i), "?", soon(), fmt.Sprint("flood ", i), "", "\x01", decimal(60_000))
	}
	waiting := func() (n int) {
		f := c.peers[0].fetches
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, calls := range f.waiting.calls {
			n += len(calls)
		}
		return n
	}
	eventually(t, "all but one wait for a place", func() bool { return waiting() == flood-1 })
	other.send("1", "?", soon(), "single", "", "\x01", decimal(60_000))
	eventually(t, "so does the other client's key", func() bool { return waiting() == flood })
	release <- struct{}{}
	release <- struct{}{} // at most one more key of the flood goes first
	other.want("1", "=", "value of single")
	close(release)
}

// A client of the original is not told at once to ask another peer: it would be back at once.
func TestRefusalsArePaced(t *testing.T) {
	c := newCluster(t, 1, echo, nil).settled()
	r := newRaw(t, c.members[0].API, nil)
	long := strings.Repeat("k", c.peers[0].cfg.MaxKey+1)
	asked := time.Now()
	r.send("1", "?", soon(), long)
	r.want("1", "#")
	if took := time.Since(asked); took < refuseAfter {
		t.Errorf("refused after %v, sooner than %v", took, refuseAfter)
	}
	r.send("2", "?", soon(), long, "", "\x01", decimal(60_000))
	if got := r.next(); got[1] != "!" || got[2] != string(wire.CodeTooLarge) {
		t.Errorf("reply %q", got)
	}
	// But for what another peer may do: a second keep-alive would say that the refusal is held back.
	passive := newCluster(t, 1, echo, func(_ int, c *Config) { c.Origin = nil }).settled()
	r = newRaw(t, passive.members[0].API, nil)
	r.send("1", "?", soon(), "key")
	r.want("1", "#")
	if s := passive.peers[0].Stats(); r.alive.Load() != 1 || s.Referred != 1 || s.Refused != 0 {
		t.Errorf("%d keep-alives, %+v", r.alive.Load(), s)
	}
}

func TestMixedHasNoSecret(t *testing.T) {
	self := protocol.Member{URL: "tcp://127.0.0.1:1", API: "tcp://127.0.0.1:2"}
	cfg := Config{Self: self.URL, Members: []protocol.Member{self}, Mixed: true, Secret: make([]byte, 16)}
	if err := cfg.Validate(); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "mixed") {
		t.Errorf("%v", err)
	}
}

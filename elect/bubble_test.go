package elect_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

var timing = lease.Timing{Interval: time.Second, Timeout: 5 * time.Second}

// node is one instance with its keeper and its own link to the store, running in
// the bubble.
type node struct {
	*lease.Keeper
	clock *leasetest.BubbleClock
	link  *leasetest.Faulty
	stop  func()
}

func startNode(t *testing.T, store leasetest.Target, name string, timing lease.Timing) *node {
	t.Helper()
	clock, link := &leasetest.BubbleClock{}, leasetest.NewFaulty(store, rand.Uint64())
	k, err := lease.NewKeeper(lease.KeeperConfig{
		Store: link, Roster: link, Instance: lease.NewInstance(name, name+":80"), Timing: timing, Clock: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := k.Run(ctx); err != nil {
			t.Errorf("the keeper of %s returned %v", name, err)
		}
	}()
	n := &node{Keeper: k, clock: clock, link: link}
	// Called by several: no lock may be held while the bubble's time must continue.
	n.stop = func() {
		cancel()
		<-done
		link.Wait()
	}
	t.Cleanup(n.stop)
	return n
}

func start(t *testing.T, store leasetest.Target, name string) *node {
	t.Helper()
	return startNode(t, store, name, timing)
}

// cut takes the node off the store, both ways; mend puts it back.
func (n *node) cut() {
	n.link.Change(func(l *leasetest.Network) { l.CutRequests, l.CutAnswers = true, true })
}
func (n *node) mend() { n.link.Change(func(l *leasetest.Network) { *l = leasetest.Network{} }) }

// stage watches who plays which role, and fails the test when two do at once.
type stage struct {
	t       *testing.T
	mu      sync.Mutex
	playing map[string]elect.Term
	last    map[string]int64
	entered map[string]int
}

func newStage(t *testing.T) *stage {
	return &stage{t: t, playing: map[string]elect.Term{}, last: map[string]int64{}, entered: map[string]int{}}
}

// work plays the role until its context ends, and takes grace to stop.
func (s *stage) work(grace time.Duration) elect.Work {
	return func(ctx context.Context, term elect.Term) error {
		s.mu.Lock()
		if other, busy := s.playing[term.Role]; busy {
			s.t.Errorf("two primaries of %s: %s under term %d and %s under term %d",
				term.Role, other.Instance.Name, other.Number, term.Instance.Name, term.Number)
		}
		if term.Number <= s.last[term.Role] {
			s.t.Errorf("term %d of %s after %d", term.Number, term.Role, s.last[term.Role])
		}
		s.playing[term.Role], s.last[term.Role] = term, term.Number
		s.entered[term.Role]++
		s.mu.Unlock()
		<-ctx.Done()
		time.Sleep(grace)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.playing[term.Role] == term {
			delete(s.playing, term.Role)
		}
		return ctx.Err()
	}
}

// who plays the role now; "" is nobody.
func (s *stage) who(role string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.playing[role].Instance.Name
}

// terms is how often someone took the role.
func (s *stage) terms(role string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entered[role]
}

// until waits for something to be true and returns how long it took.
func until(t *testing.T, within time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > within {
			t.Fatalf("%s: not within %v", what, within)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// campaign is one that runs in the bubble.
type campaign struct {
	cancel context.CancelCauseFunc
	done   chan error
}

var errStop = errors.New("stopped by the test")

// result stops the campaign and returns what it returned.
func (c *campaign) result() error {
	c.cancel(errStop)
	err := <-c.done
	c.done <- err
	return err
}

func (c *campaign) ended() bool {
	synctest.Wait()
	return len(c.done) > 0
}

type runner func(context.Context, elect.Config, elect.Work) error

func (n *node) run(t *testing.T, run runner, cfg elect.Config, work elect.Work) *campaign {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := &campaign{cancel: cancel, done: make(chan error, 1)}
	cfg.Keeper = n.Keeper
	go func() { c.done <- run(ctx, cfg, work) }()
	t.Cleanup(func() { _ = c.result() })
	return c
}

func mustResolve(t *testing.T, store *memory.Store, role, want string) {
	t.Helper()
	p, err := elect.Resolve(t.Context(), store, role)
	if want == "" && !errors.Is(err, elect.ErrVacant) {
		t.Errorf("%s resolves to %+v, %v; want ErrVacant", role, p, err)
	}
	if want != "" && (err != nil || p.Name != want || p.Address != want+":80" || p.Role != role || p.Term == 0 || p.Since.IsZero()) {
		t.Errorf("%s resolves to %+v, %v; want %s", role, p, err, want)
	}
}

func names(ps []elect.Primary) string {
	var out strings.Builder
	for _, p := range ps {
		out.WriteString(fmt.Sprint(p.Name, " "))
	}
	return out.String()
}

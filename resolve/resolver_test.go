package resolve_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/resolve"
	"github.com/understudy-ha/understudy/shard/shardtest"
	"github.com/understudy-ha/understudy/store/memory"
)

var timing = lease.Timing{Interval: time.Second, Timeout: 5 * time.Second}

// background runs f until the test's end, or until stop is called.
func background(t *testing.T, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

// began is when a term began.
type began struct {
	term int64
	at   time.Time
}

// said is an answer: the term that it named, and how long it could be believed.
type said struct {
	term  int64
	until time.Time
}

// play lets three instances campaign for a role while their links and the resolver's are cut at
// random, and returns how many answers could be believed after another term had started.
// flatter is added to what the store says is left of a lease.
func play(t *testing.T, seed uint64, flatter time.Duration) (late, answers, terms int) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 1))
		store := memory.New(nil)
		var mu sync.Mutex
		var begins []began
		var links []*leasetest.Faulty
		for i := range 3 {
			link := leasetest.NewFaulty(store, rng.Uint64())
			links = append(links, link)
			t.Cleanup(link.Wait)
			k, err := lease.NewKeeper(lease.KeeperConfig{
				Store: link, Roster: link, Instance: lease.NewInstance(fmt.Sprint("n", i), "n:80"), Timing: timing, Clock: &leasetest.BubbleClock{},
			})
			if err != nil {
				t.Fatal(err)
			}
			background(t, func(ctx context.Context) { _ = k.Run(ctx) })
			background(t, func(ctx context.Context) {
				_ = elect.Run(ctx, elect.Config{Keeper: k, Role: "billing"}, func(ctx context.Context, term elect.Term) error {
					mu.Lock()
					begins = append(begins, began{term.Number, time.Now()})
					mu.Unlock()
					<-ctx.Done()
					return ctx.Err()
				})
			})
		}
		own := leasetest.NewFaulty(store, rng.Uint64())
		t.Cleanup(own.Wait)
		clock := &leasetest.BubbleClock{}
		resolver, err := resolve.NewResolver(resolve.ResolverConfig{
			Store: flatterer{own, flatter}, Notifier: lease.NewNotifier(own, clock, nil), MaxAge: 20 * time.Second, Interval: time.Second, Clock: clock,
		})
		if err != nil {
			t.Fatal(err)
		}
		background(t, func(ctx context.Context) { _ = resolver.Run(ctx) })
		var all []said
		links = append(links, own)
		for range 12 {
			link := links[rng.IntN(len(links))]
			link.Change(func(n *leasetest.Network) { n.CutRequests, n.CutAnswers = true, true })
			for range 60 + rng.IntN(40) { // longer than a session lives, so that none is given back
				time.Sleep(100 * time.Millisecond)
				a, err := resolver.Answer(resolve.Name{Kind: resolve.Role, Of: "billing"})
				if err == nil && len(a.Holders) == 1 {
					all = append(all, said{a.Holders[0].Term, time.Now().Add(a.TTL)})
				}
			}
			link.Change(func(n *leasetest.Network) { *n = leasetest.Network{} })
			time.Sleep(3 * time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, s := range all {
			for _, b := range begins {
				if b.term > s.term && s.until.After(b.at) {
					late++
					break
				}
			}
		}
		answers, terms = len(all), len(begins)
	})
	return late, answers, terms
}

// flatterer is a store that says that more is left of leases than is.
type flatterer struct {
	*leasetest.Faulty
	more time.Duration
}

func (f flatterer) List(ctx context.Context, space, after string, limit int) ([]lease.Lease, error) {
	all, err := f.Faulty.List(ctx, space, after, limit)
	for i := range all {
		all[i].Remaining += f.more
	}
	return all, err
}

func TestNoAnswerOutlivesATakeover(t *testing.T) {
	all, asked := 0, 0
	for seed := range uint64(12) {
		late, answers, terms := play(t, seed, 0)
		if late > 0 {
			t.Errorf("seed %d: %d of %d answers could be believed after the next of %d terms had begun", seed, late, answers, terms)
		}
		all, asked = all+terms, asked+answers
	}
	if all < 30 || asked < 2000 {
		t.Errorf("only %d terms and %d answers", all, asked)
	}
}

func TestFlattererIsCaught(t *testing.T) {
	caught := 0
	for seed := range uint64(6) {
		late, _, _ := play(t, seed, 4*time.Second)
		caught += late
	}
	if caught == 0 {
		t.Error("answers that outlive a lease are not noticed")
	}
}

// slow is a store whose readings take a while.
type slow struct {
	*memory.Store
	takes func() time.Duration
}

func (s slow) List(ctx context.Context, space, after string, limit int) ([]lease.Lease, error) {
	time.Sleep(s.takes())
	return s.Store.List(ctx, space, after, limit)
}

// A store that is slow is read less often, but often enough that answers do not end meanwhile.
func TestSlowReadingsKeepAnswers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for name, c := range map[string]struct {
		takes  func() time.Duration
		timing lease.Timing
	}{
		"rather slow":   {func() time.Duration { return 700 * time.Millisecond }, timing},
		"slow":          {func() time.Duration { return 1500 * time.Millisecond }, timing},
		"now and then":  {func() time.Duration { return time.Duration(rng.Int64N(int64(1500 * time.Millisecond))) }, timing},
		"short leases":  {func() time.Duration { return 0 }, lease.Timing{Interval: 200 * time.Millisecond, Timeout: time.Second}},
		"longer leases": {func() time.Duration { return 1800 * time.Millisecond }, lease.Timing{Interval: time.Second, Timeout: 20 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { keepsAnswers(t, c.takes, c.timing) })
		})
	}
}

func keepsAnswers(t *testing.T, takes func() time.Duration, timing lease.Timing) {
	store, clock := memory.New(nil), &leasetest.BubbleClock{}
	k, err := lease.NewKeeper(lease.KeeperConfig{
		Store: store, Roster: store, Instance: lease.NewInstance("n", "n:80"), Timing: timing, Clock: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	background(t, func(ctx context.Context) { _ = k.Run(ctx) })
	background(t, func(ctx context.Context) {
		_ = elect.Run(ctx, elect.Config{Keeper: k, Role: "billing", StopGrace: 100 * time.Millisecond}, func(ctx context.Context, _ elect.Term) error {
			<-ctx.Done()
			return ctx.Err()
		})
	})
	time.Sleep(time.Second)
	b, err := resolve.NewResolver(resolve.ResolverConfig{Store: slow{store, takes}, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	background(t, func(ctx context.Context) { _ = b.Run(ctx) })
	time.Sleep(2 * time.Second)
	for range 6000 {
		if a, err := b.Answer(role("billing")); err != nil || len(a.Holders) != 1 {
			t.Fatalf("%+v, %v", a, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func role(of string) resolve.Name { return resolve.Name{Kind: resolve.Role, Of: of} }
func find(b *resolve.Resolver, n resolve.Name) (string, bool, error) {
	a, above, err := b.Find(n)
	if len(a.Holders) > 0 {
		return a.Holders[0].Address, above, err
	}
	return "", above, err
}

func TestBook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New(nil)
		hold := func(role, address string) lease.Session {
			s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("n", address), Timing: lease.Timing{Interval: time.Second, Timeout: time.Hour}}
			if _, err := store.StartSession(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			free, err := store.Get(t.Context(), elect.Leases(role, 1)[0])
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Acquire(t.Context(), lease.Expectation{Lease: free.ID, Session: s.ID, Seen: free.Seen()}); err != nil {
				t.Fatal(err)
			}
			return s
		}
		billing := hold("Billing", "a:1")
		hold("x", "x:1")
		hold("X", "x:2")
		hold("a.b", "ab:1")
		link := leasetest.NewFaulty(store, 1)
		t.Cleanup(link.Wait)
		clock := &leasetest.BubbleClock{}
		notifier := lease.NewNotifier(link, clock, nil)
		background(t, func(ctx context.Context) { _ = notifier.Run(ctx) })
		named := view()
		named.Row.Name = "Orders"
		views := shardtest.NewViews(named)
		b, err := resolve.NewResolver(resolve.ResolverConfig{Store: link, Notifier: notifier, Shards: views, Roles: []string{"configured"}, Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Find(role("billing")); !errors.Is(err, resolve.ErrStale) {
			t.Errorf("unread: %v", err)
		}
		background(t, func(ctx context.Context) { _ = b.Run(ctx) })
		synctest.Wait()
		for _, c := range []struct {
			name  resolve.Name
			want  string
			above bool
			err   error
		}{
			{role("billing"), "a:1", false, nil},
			{role("BILLING"), "a:1", false, nil},
			{role("configured"), "", false, nil},
			{role("x"), "", false, resolve.ErrAmbiguous},
			{role("a.b"), "ab:1", false, nil},
			{role("B"), "", true, resolve.ErrUnknown},
			{role("nobody"), "", false, resolve.ErrUnknown},
			{resolve.Name{Kind: resolve.Primary, Of: "orders"}, "a:1", false, nil},
			{resolve.Name{Kind: resolve.Replica, Of: "orders"}, "b:1", false, nil},
			{resolve.Name{Kind: resolve.Primary, Of: "other"}, "", false, resolve.ErrUnknown},
		} {
			got, above, err := find(b, c.name)
			if got != c.want || above != c.above || !errors.Is(err, c.err) {
				t.Errorf("%s: %q %v %v", c.name, got, above, err)
			}
		}
		if a, err := b.Answer(role("X")); err != nil || a.Holders[0].Address != "x:2" {
			t.Errorf("exactly X: %v, %v", a, err)
		}
		if _, err := b.Answer(role("billing")); !errors.Is(err, resolve.ErrUnknown) {
			t.Errorf("billing is not Billing: %v", err)
		}

		// Changes are seen at once where the store notifies.
		if err := store.EndSession(t.Context(), billing.ID, "over"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(120 * time.Millisecond) // a tenth of the interval, and of its jitter
		if got, _, err := find(b, role("billing")); got != "" || err != nil {
			t.Errorf("after the release: %q, %v", got, err)
		}
		hold("Billing", "b:1")
		time.Sleep(120 * time.Millisecond) // a tenth of the interval, and of its jitter
		if got, _, _ := find(b, role("billing")); got != "b:1" {
			t.Errorf("after the takeover: %q", got)
		}

		// The store is away: answers end, and come back with it.
		link.Change(func(n *leasetest.Network) { n.CutRequests, n.CutAnswers = true, true })
		time.Sleep(3 * time.Second)
		if a, _, err := b.Find(role("billing")); err != nil || a.TTL > 2*time.Second {
			t.Errorf("after 3 s: %v for %v, %v", a, a.TTL, err)
		}
		time.Sleep(2 * time.Second)
		for _, n := range []resolve.Name{role("billing"), role("configured"), role("nobody")} {
			if _, _, err := b.Find(n); !errors.Is(err, resolve.ErrStale) {
				t.Errorf("after 5 s: %s: %v", n, err)
			}
		}
		views.Age, views.Err = 5*time.Second, lease.ErrUnavailable
		if _, _, err := b.Find(resolve.Name{Kind: resolve.Primary, Of: "orders"}); !errors.Is(err, resolve.ErrStale) || !errors.Is(err, lease.ErrUnavailable) {
			t.Errorf("shards, after 5 s: %v", err)
		}
		link.Change(func(n *leasetest.Network) { *n = leasetest.Network{} })
		time.Sleep(7 * time.Second)
		if got, _, err := find(b, role("billing")); got != "b:1" {
			t.Errorf("when it is back: %q, %v", got, err)
		}

		// The roles that exist without an instance are others now.
		b.SetRoles([]string{"added"})
		time.Sleep(2 * time.Second)
		if _, _, err := find(b, role("added")); err != nil {
			t.Errorf("an added role: %v", err)
		}
		if _, _, err := find(b, role("configured")); !errors.Is(err, resolve.ErrUnknown) {
			t.Errorf("a role that is gone: %v", err)
		}
	})
}

func TestBookConfig(t *testing.T) {
	for name, c := range map[string]resolve.ResolverConfig{
		"no store":   {},
		"too brief":  {Store: memory.New(nil), MaxAge: time.Millisecond},
		"too long":   {Store: memory.New(nil), MaxAge: 2 * time.Hour},
		"too seldom": {Store: memory.New(nil), Interval: 4 * time.Second},
	} {
		if _, err := resolve.NewResolver(c); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

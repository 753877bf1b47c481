package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
)

func runNotifier(t *testing.T, store lease.Store) *lease.Notifier {
	notifier := lease.NewNotifier(store, &leasetest.BubbleClock{}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- notifier.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	return notifier
}

func drain(sub *lease.Subscription) (out []lease.Change) {
	for {
		select {
		case c := <-sub.C():
			out = append(out, c)
		default:
			return out
		}
	}
}

func TestHubDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notifier := runNotifier(t, newSpy())
		other := lease.ID{Space: "role", Key: "other"}
		one, both, all := notifier.Subscribe(role), notifier.Subscribe(role, other), notifier.Subscribe()
		synctest.Wait()
		drain(one)
		drain(both)
		drain(all)
		closed := notifier.Subscribe(role)
		closed.Close()
		a, b := lease.Change{Lease: role, Term: 1}, lease.Change{Lease: other, Term: 2}
		notifier.Wake(a)
		notifier.Wake(b)
		notifier.Wake(lease.Change{})
		for name, c := range map[string]struct {
			sub  *lease.Subscription
			want int
		}{"one": {one, 2}, "both": {both, 3}, "all": {all, 3}, "closed": {closed, 0}} {
			if got := drain(c.sub); len(got) != c.want {
				t.Errorf("%s got %+v, want %d changes", name, got, c.want)
			}
		}
	})
}

// A reader that falls behind learns that it missed something, and never blocks
// the others.
func TestHubOverflow(t *testing.T) {
	notifier := lease.NewNotifier(newSpy(), nil, nil)
	slow := notifier.Subscribe(role)
	defer slow.Close()
	for n := range int64(1000) {
		notifier.Wake(lease.Change{Lease: role, Term: n})
	}
	got := drain(slow)
	zero := false
	for _, c := range got {
		zero = zero || c == lease.Change{}
	}
	if !zero || len(got) > 17 {
		t.Errorf("after 1000 changes: %d, one of them zero: %t", len(got), zero)
	}
	notifier.Wake(lease.Change{Lease: role, Term: 1})
	if got := drain(slow); len(got) != 1 || got[0].Term != 1 {
		t.Errorf("after the overflow: %+v", got)
	}
}

func TestHubRestartsABrokenWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		store.fail(unavailable, "watch")
		notifier := runNotifier(t, store)
		sub := notifier.Subscribe(role)
		defer sub.Close()
		time.Sleep(time.Minute)
		if n := store.count("watch"); n < 12 || n > 40 {
			t.Errorf("%d attempts in a minute, want a back-off up to 5 s", n)
		}
		store.intercept(nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := drain(sub); len(got) != 1 || got[0] != (lease.Change{}) {
			t.Errorf("when the watch is back: %+v, want the zero change", got)
		}
	})
}

func TestHubWithoutNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		store.watch = errors.ErrUnsupported
		sub := runNotifier(t, store).Subscribe()
		defer sub.Close()
		time.Sleep(time.Hour)
		if n := store.count("watch"); n < 50 || n > 61 {
			t.Errorf("a store without notifications was asked %d times in an hour, want about once a minute", n)
		}
		store.mu.Lock()
		store.watch = nil // its address leads past the pooler now
		store.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := drain(sub); len(got) != 1 || got[0] != (lease.Change{}) {
			t.Errorf("when the store has notifications: %+v, want the zero change", got)
		}
	})
}

// A store is watched only while somebody waits, and for some time after.
func TestNotifierWatchesWhileItIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		notifier := runNotifier(t, store)
		time.Sleep(time.Minute)
		if n := store.count("watch"); n != 0 {
			t.Errorf("watched %d times without a subscription", n)
		}
		for range 10 {
			sub := notifier.Subscribe(role)
			time.Sleep(time.Second)
			if got := drain(sub); len(got) > 1 {
				t.Errorf("woken by %v", got)
			}
			sub.Close()
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		notifier.Subscribe(role)
		time.Sleep(time.Minute)
		if n := store.count("watch"); n != 2 {
			t.Errorf("watched %d times, want once for ten subscriptions in a row and once for the last", n)
		}
	})
}

// Where every watcher slows the others down, a subscription that can do without is refused, and asks seldom.
func TestNotifierWatchesIfFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		notifier := runNotifier(t, crowdedSpy{store})
		sub := notifier.SubscribeIfFew(role)
		defer sub.Close()
		time.Sleep(time.Hour)
		if n := store.count("watch if few"); n < 6 || n > 13 {
			t.Errorf("asked %d times in an hour, want about every ten minutes", n)
		}
		if n := store.count("watch"); n != 0 {
			t.Errorf("watched %d times", n)
		}
		sub.SetDemand(lease.WatchAlways)
		synctest.Wait()
		if got := drain(sub); len(got) != 1 || store.count("watch") != 1 {
			t.Errorf("an urgent subscription got %v, %d watches", got, store.count("watch"))
		}
		sub.SetDemand(lease.WatchIfFew)
		time.Sleep(time.Minute)
		notifier.Wake(lease.Change{Lease: role, Term: 1})
		if got := drain(sub); len(got) != 1 {
			t.Errorf("of what the process hears anyway it got %v", got)
		}
		if n := store.count("watch"); n != 1 {
			t.Errorf("watched %d times after the urgency ended", n)
		}
		asked := store.count("watch if few")
		sub.SetDemand(lease.NoWatch)
		time.Sleep(time.Hour)
		if n := store.count("watch if few") - asked; n > 1 { // one may have been on its way
			t.Errorf("asked %d times in an hour for a subscription that needs nothing", n)
		}
	})
}

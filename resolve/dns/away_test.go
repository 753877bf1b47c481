//go:build !embedded

package dns_test

import (
	"context"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/resolve"
	"github.com/understudy-ha/understudy/resolve/dns"
	"github.com/understudy-ha/understudy/store/memory"
)

// TestStoreAway: from a resolver on a real store, while that can be reached, cannot, and can again.
func TestStoreAway(t *testing.T) {
	const most = time.Second
	store := memory.New(nil)
	s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("web-1", "10.0.0.1:80"), Timing: lease.Timing{Interval: time.Second, Timeout: time.Hour}}
	if _, err := store.StartSession(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Acquire(t.Context(), lease.Expectation{Lease: elect.Leases("billing", 1)[0], Session: s.ID}); err != nil {
		t.Fatal(err)
	}
	link := leasetest.NewFaulty(store, 1)
	t.Cleanup(link.Wait)
	resolver, err := resolve.NewResolver(resolve.ResolverConfig{Store: link, MaxAge: most, Interval: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = resolver.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	server, _ := serve(t, dns.Config{Source: resolver})

	until := func(rcode, records int, also func(begun time.Time, m *wire.Msg)) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for deadline := time.Now().Add(time.Minute); ; <-tick.C {
			begun := time.Now()
			m := ask(t, "udp", server, question("billing.role.ha.internal.", wire.TypeA))
			if also != nil {
				also(begun, m)
			}
			if m.Rcode == rcode && len(m.Answer) == records {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("no %s with %d records came: %v", wire.RcodeToString[rcode], records, m)
			}
		}
	}
	until(wire.RcodeSuccess, 1, nil)
	link.Change(func(n *leasetest.Network) { n.Refuse = 1 })
	cut := time.Now()
	until(wire.RcodeServerFailure, 0, func(begun time.Time, m *wire.Msg) {
		if begun.Sub(cut) > most && len(m.Answer) > 0 {
			t.Errorf("an old address, %v after the store went away: %v", begun.Sub(cut), m.Answer)
		}
	})
	link.Change(func(n *leasetest.Network) { n.Refuse = 0 })
	until(wire.RcodeSuccess, 1, nil)
	if err := store.EndSession(t.Context(), s.ID, "over"); err != nil {
		t.Fatal(err)
	}
	until(wire.RcodeSuccess, 0, nil)
}

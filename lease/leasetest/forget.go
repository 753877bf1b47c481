package leasetest

import (
	"errors"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
)

func (b *bench) forget(id lease.ID, seen lease.Seen) error {
	return b.Forget(b.ctx, lease.ForgetRequest{Lease: id, Seen: seen, By: "operator"})
}

func (b *bench) mustForget(id lease.ID) {
	b.Helper()
	if err := b.forget(id, b.get(id).Seen()); err != nil {
		b.Fatalf("Forget(%s): %v", id, err)
	}
}

func testForget(b *bench) {
	a := b.session("a")
	b.take(role("kept"), a)
	l := b.take(role("r"), a)
	b.release(l, "")
	b.mustForget(role("r"))
	if got := b.get(role("r")); got.Term != 0 || got.Session != "" || !got.Free() {
		b.Errorf("a forgotten lease is shown as %+v", got)
	}
	if left, err := b.List(b.ctx, "role", "", 10); err != nil || len(left) != 1 || left[0].Key != "kept" {
		b.Errorf("the list after it: %+v, %v; want kept alone", left, err)
	}
	if err := b.forget(role("r"), lease.Seen{}); !errors.Is(err, lease.ErrNotFound) {
		b.Errorf("Forget again: %v, want ErrNotFound", err)
	}
	told := b.events(history.Query{Part: "role", Subject: "r", Newest: true, Limit: 1})[0]
	if told.Reason != "forgotten by operator" || told.Term != l.Term || told.From != "" || told.To != "" {
		b.Errorf("the history says %+v", told)
	}
	// Neither may the terms fall when the clock does: not of this lease, and not of another that was forgotten before it.
	b.step(-2 * time.Hour)
	early := b.take(role("early"), b.session("e"))
	b.release(early, "")
	b.mustForget(role("early"))
	if got := b.take(role("r"), b.session("c")); got.Term <= l.Term {
		b.Errorf("the next term is %d, was %d before it was forgotten", got.Term, l.Term)
	}
}

func testForgetRefused(b *bench) {
	refused := func(what string, seen lease.Seen) {
		b.Helper()
		if err := b.forget(role("r"), seen); !errors.Is(err, lease.ErrHeld) {
			b.Errorf("Forget of %s: %v, want ErrHeld", what, err)
		}
	}
	a, c := b.session("a"), b.session("c")
	held := b.take(role("r"), a)
	refused("a held lease", held.Seen())
	b.step(timing.Timeout / 2)
	b.renew(c)
	b.step(timing.Timeout / 2)
	lapsed := b.get(role("r")).Seen()
	refused("what was seen before another term", lease.Seen{Term: lapsed.Term - 1, Session: lapsed.Session, Seq: lapsed.Seq})
	refused("another session", lease.Seen{Term: lapsed.Term, Session: c.ID, Seq: lapsed.Seq})
	refused("a session that has moved since", lease.Seen{Term: lapsed.Term, Session: lapsed.Session, Seq: lapsed.Seq - 1})
	if _, err := b.Join(b.ctx, role("r"), c.ID); err != nil {
		b.Fatal(err)
	}
	refused("a lease that is waited for", lapsed)
	if err := b.Leave(b.ctx, role("r"), c.ID); err != nil {
		b.Fatal(err)
	}
	if got := b.get(role("r")); got.Seen() != lapsed {
		b.Fatalf("refusals changed the lease to %+v", got)
	}
	b.mustForget(role("r"))
	// Its last holder cannot come back, whatever the clock says later.
	b.step(-timing.Timeout)
	if _, err := b.RenewSession(b.ctx, a.ID); !errors.Is(err, lease.ErrLapsed) {
		b.Errorf("its last holder renews: %v, want ErrLapsed", err)
	}
}

func testSpaces(b *bench) {
	spaces := func() []lease.SpaceCount {
		b.Helper()
		out, err := b.Spaces(b.ctx)
		if err != nil {
			b.Fatal(err)
		}
		return out
	}
	if got := spaces(); len(got) != 0 {
		b.Errorf("an empty store has %+v", got)
	}
	a := b.session("a")
	for _, id := range []lease.ID{role("x"), role("y"), {Space: "shard", Key: "x"}, {Space: "job", Key: "x"}} {
		b.release(b.take(id, a), "")
	}
	b.mustForget(lease.ID{Space: "job", Key: "x"})
	b.mustForget(role("y"))
	want := []lease.SpaceCount{{Space: "role", Leases: 1}, {Space: "shard", Leases: 1}}
	if got := spaces(); !slices.Equal(got, want) {
		b.Errorf("Spaces: %+v, want %+v", got, want)
	}
}

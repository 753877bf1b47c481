package leasetest

import (
	"bytes"
	"errors"

	"github.com/understudy-ha/understudy/lease"
)

func testState(b *bench) {
	a, c := b.session("a"), b.session("c")
	read := func(id lease.ID, data string, term int64) {
		b.Helper()
		s, err := b.ReadState(b.ctx, id)
		if err != nil || string(s.Data) != data || s.Term != term {
			b.Errorf("the state of %s is %.40q under term %d, %v; want %.40q under term %d", id, s.Data, s.Term, err, data, term)
		}
	}
	write := func(l lease.Lease, term int64, data string, want error) {
		b.Helper()
		if err := b.WriteState(b.ctx, l.ID, term, []byte(data)); !errors.Is(err, want) {
			b.Errorf("writing %.40q under term %d: %v, want %v", data, term, err, want)
		}
	}
	r := lease.Lease{ID: role("r")}
	read(r.ID, "", 0)
	write(r, 0, "nobody", lease.ErrNotHeld)
	write(r, 1, "nobody", lease.ErrNotHeld)

	first, other := b.take(r.ID, a), b.take(lease.ID{Space: "shard", Key: "r"}, a)
	read(r.ID, "", 0)
	binary := "x\x00\xff 1\r\n'; --"
	write(first, first.Term, binary, nil)
	write(first, first.Term, binary, nil)
	write(first, first.Term-1, "old", lease.ErrNotHeld)
	write(first, first.Term+1, "future", lease.ErrNotHeld)
	read(r.ID, binary, first.Term)
	read(other.ID, "", 0)
	write(other, other.Term, "another", nil)
	write(first, first.Term, string(bytes.Repeat([]byte("x"), lease.MaxState+1)), lease.ErrInvalid)
	long := string(bytes.Repeat([]byte{0, 0xff}, lease.MaxState/2))
	write(first, first.Term, long, nil)
	read(r.ID, long, first.Term)
	write(first, first.Term, "last", nil)

	// A successor finds it, and the former holder changes nothing any more.
	b.release(first, "")
	write(first, first.Term, "released", lease.ErrNotHeld)
	second := b.take(r.ID, c)
	read(r.ID, "last", first.Term)
	write(first, first.Term, "former", lease.ErrNotHeld)
	write(second, second.Term, "", nil)
	read(r.ID, "", second.Term)

	// A lapsed holder that nobody has followed may still write; one that was followed may not.
	b.step(timing.Timeout)
	write(second, second.Term, "late", nil)
	third := b.take(r.ID, b.session("d"))
	write(second, second.Term, "too late", lease.ErrNotHeld)
	read(r.ID, "late", second.Term)
	write(third, third.Term, "mine", nil)
	read(r.ID, "mine", third.Term)
	read(other.ID, "another", other.Term)

	// A lease that is forgotten leaves nothing behind.
	b.release(third, "")
	b.mustForget(r.ID)
	read(r.ID, "", 0)
	read(other.ID, "another", other.Term)
}

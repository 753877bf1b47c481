package cachetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
)

func checkEmpty(b *bench) error {
	if err := errors.Join(b.want(), b.wantState(cache.State{})); err != nil {
		return err
	}
	return steps(func() error { return b.save() }, b.again, func() error { return b.want() })
}

// roundTrip saves records in one go and wants them back.
func roundTrip(b *bench, records ...cache.Record) error {
	return steps(func() error { return b.save(records...) }, b.again, func() error { return b.want(records...) })
}

func checkRecords(b *bench) error {
	high := "" // a value whose digest has its highest bit set
	for i := 0; protocol.Digest([]byte(high)) <= math.MaxInt64; i++ {
		high = fmt.Sprint(i)
	}
	largest := record("largest", high, 0)
	largest.Entry.Term, largest.Entry.Expire, largest.Entry.Made = protocol.MaxWireNumber, protocol.MaxWireNumber, protocol.MaxWireNumber
	unknown := record("made at an unknown time", "value", 3)
	unknown.Entry.Made = 0
	return roundTrip(b,
		record("a", "value", 1),
		largest,
		unknown,
		record("empty", "", 4),
		cache.Record{Key: "only a term", Entry: protocol.Entry{Term: 7}},
	)
}

func checkReplaced(b *bench) error {
	second := record("k", "the second, which is longer", 20)
	without := cache.Record{Key: "k", Entry: protocol.Entry{Term: second.Entry.Term + 1}}
	return steps(
		func() error { return b.save(record("k", "first", 10)) },
		func() error { return roundTrip(b, second) },
		func() error { return roundTrip(b, without) }, // the value goes
		func() error { return roundTrip(b, record("k", "third", 30)) },
	)
}

func checkDeleted(b *bench) error {
	keep := record("keep", "k", 2)
	return steps(
		func() error { return b.save(record("gone", "g", 1), keep) },
		func() error { return b.save(cache.Record{Key: "gone"}, cache.Record{Key: "was never there"}) },
		b.again,
		func() error { return b.want(keep) },
		func() error { return b.save(record("gone", "is back", 3)) },
		b.again,
		func() error { return b.want(keep, record("gone", "is back", 3)) },
	)
}

func checkTwice(b *bench) error {
	return steps(
		func() error {
			return b.save(record("k", "first", 1), cache.Record{Key: "k"}, record("gone", "g", 3), record("k", "last", 2), cache.Record{Key: "gone"})
		},
		b.again,
		func() error { return b.want(record("k", "last", 2)) },
	)
}

func checkKeys(b *bench) error {
	var records []cache.Record
	for i, key := range []string{
		"k", "K", "k ", " k", "k\x00", "k\x00a", "k\x00b", "\x00", "\xff", "\xfe", "\xff\xff", "k\xff", "k\xfe", "\u00e9", "e\u0301", "%", "'", "k\n", "1", "01", "1.0",
	} {
		records = append(records, record(key, fmt.Sprint("value of ", i), int64(i)))
	}
	for i := range 256 {
		records = append(records, record("byte "+string([]byte{byte(i)}), "v", int64(i)))
	}
	return roundTrip(b, records...)
}

func checkValues(b *bench) error {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	return roundTrip(b,
		record("every byte", string(every), 1), record("zeros", strings.Repeat("\x00", 100), 2),
		record("ends in zeros", "a\x00\x00", 3), record("a number", "1e3", 4), record("no text", "\xff\xfe\xfd", 5),
	)
}

func checkLongKey(b *bench) error {
	long := strings.Repeat("long ", 1<<10/5)
	return roundTrip(b, record(long+"a", "1", 1), record(long+"b", "2", 2), record(long, "3", 3))
}

func checkLarge(b *bench) error {
	large := []byte(strings.Repeat("0123456789abcdef", 1<<20)) // 16 MiB
	large[len(large)-1] = 'x'
	return steps(
		func() error { return roundTrip(b, record("large", string(large), 1), record("small", "s", 2)) },
		func() error { return b.save(record("large", "small now", 3)) },
		b.again,
		func() error { return b.want(record("small", "s", 2), record("large", "small now", 3)) },
	)
}

func checkThousands(b *bench) error {
	var records, rest []cache.Record
	for i := range 5000 {
		r := record(fmt.Sprintf("key %d", i), strings.Repeat(fmt.Sprint(i), 20), int64(i))
		records = append(records, r)
		if i%3 == 0 {
			rest = append(rest, r)
		}
	}
	return steps(
		func() error { return roundTrip(b, records...) },
		func() error {
			var gone []cache.Record
			for i, r := range records {
				if i%3 != 0 {
					gone = append(gone, cache.Record{Key: r.Key})
				}
			}
			return b.save(gone...)
		},
		b.again,
		func() error { return b.want(rest...) },
	)
}

// checkOrder: saving is the only use that every storage sees.
func checkOrder(b *bench) error {
	r := func(key string, n int64) cache.Record { return record(key, key, n) }
	return steps(
		func() error { return b.save(r("z", 1), r("a", 2), r("m", 3)) },
		func() error { return b.save(r("b", 4)) },
		func() error { return b.save(r("a", 2)) }, // once more, as it was
		b.again,
		func() error { return b.want(r("z", 1), r("m", 3), r("b", 4), r("a", 2)) },
		func() error { return b.save(r("z", 9)) },
		b.again,
		func() error { return b.want(r("m", 3), r("b", 4), r("a", 2), r("z", 9)) },
	)
}

// checkAllOrNothing ends a Save in its middle, if the storage looks at its
// context there: what it says must be what it has done.
func checkAllOrNothing(b *bench) error {
	old := []cache.Record{record("a", "old", 1), record("b", "old", 2)}
	var more []cache.Record
	for i := range 1000 {
		more = append(more, record(fmt.Sprint("more ", i), "new", int64(i)))
	}
	more = append(more, cache.Record{Key: "a"})
	if err := b.save(old...); err != nil {
		return err
	}
	for _, after := range []int{0, 1, 2, 5} {
		err := b.s.Save(&endingContext{Context: b.ctx, looks: after}, more)
		if reopened := b.again(); reopened != nil {
			return reopened
		}
		want := old
		if err == nil {
			want = append(old[1:2:2], more[:1000]...)
		}
		if wrong := b.want(want...); wrong != nil {
			return fmt.Errorf("a Save that returned %v: %w", err, wrong)
		}
		if err == nil {
			return nil
		}
	}
	return nil
}

// endingContext ends when it has been looked at a few times.
type endingContext struct {
	context.Context
	looks int
}

func (c *endingContext) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return c.Context.Err()
}

func checkLoadError(b *bench) error {
	stop := errors.New("stop here")
	if err := b.save(record("a", "1", 1), record("b", "2", 2), record("c", "3", 3)); err != nil {
		return err
	}
	if err := b.end("closing", b.h.Close); err != nil {
		return err
	}
	s, err := b.h.Open()
	if err != nil {
		return err
	}
	b.s = s
	calls := 0
	_, err = s.Load(b.ctx, func(cache.Record) error {
		if calls++; calls == 2 {
			return stop
		}
		return nil
	})
	if calls != 2 || !errors.Is(err, stop) {
		return fmt.Errorf("the function given to Load was called %d times, and Load returned %v; want 2 and its error", calls, err)
	}
	return nil
}

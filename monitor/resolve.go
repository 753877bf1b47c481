package monitor

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// sender makes a request of the store; doing names it in the log.
type sender func(ctx context.Context, doing string, f func(context.Context) error) error

// resolve finds the ids of all sources that are gathered. It asks the store by send.
func (fl *flusher) resolve(ctx context.Context, send sender) error {
	now := fl.clock.Now()
	fl.missing = fl.missing[:0]
	clear(fl.asked)
	clear(fl.checks)
	fl.answerKnown(func(it *item) (Outcome, bool) { return fl.lookUpID(now, it) })
	for part := range slices.Chunk(fl.missing, MaxSources) {
		var answer []ResolvedSource
		err := send(ctx, "resolving names", func(ctx context.Context) (err error) {
			answer, err = fl.in.cfg.Store.ResolveSources(ctx, part)
			return err
		})
		if err != nil {
			return err
		}
		if len(answer) != len(part) {
			return fmt.Errorf("%w: the store answered for %d of %d names", lease.ErrUnknown, len(answer), len(part))
		}
		for i, r := range answer {
			fl.ids.remember(now, part[i], r)
		}
		fl.in.count(func(s *IntakeStats) { s.Resolved += int64(len(part)) })
	}
	if len(fl.missing) > 0 {
		fl.answerKnown(func(it *item) (Outcome, bool) {
			f := fl.ids.find(now, it.beat().Check, it.beat().Source)
			it.id, it.bySender = f.id, f.senderClock
			return cmp.Or(f.unknown, Unknown), it.id == 0
		})
	}
	fl.in.cached.Store(int64(fl.ids.size()))
	return nil
}

// lookUpID finds a source in the cache, or adds it to what the store is asked for. After a change of the
// configuration one source of each check is asked for, because the answer says whose clock counts.
func (fl *flusher) lookUpID(now time.Duration, it *item) (Outcome, bool) {
	b := it.beat()
	if b.Signal > SignalFail || b.Code > math.MaxInt32 || b.Code < math.MinInt32 {
		return Malformed, true
	}
	f := fl.ids.find(now, b.Check, b.Source)
	it.id, it.bySender = f.id, f.senderClock
	if it.id != 0 {
		if _, asked := fl.checks[b.Check]; f.checkKnown || asked {
			return 0, false
		}
	}
	if f.unknown != 0 {
		return f.unknown, true
	}
	if _, asked := fl.asked[f.key]; asked {
		return 0, false
	}
	if lease.ValidateText("check name", b.Check, 1, MaxName) != nil || lease.ValidateText("source", b.Source, 1, MaxName) != nil {
		return Malformed, true
	}
	fl.asked[f.key] = struct{}{}
	fl.checks[b.Check] = struct{}{}
	fl.missing = append(fl.missing, SourceRef{Check: b.Check, Source: b.Source})
	return 0, false
}

// answerKnown answers those gathered beats whose outcome is known, and keeps the others.
func (fl *flusher) answerKnown(known func(*item) (Outcome, bool)) {
	kept, ready := fl.gathered[:0], fl.ready[:0]
	for _, it := range fl.gathered {
		if outcome, ok := known(&it); ok {
			it.outcome = outcome
			ready = append(ready, it)
		} else {
			kept = append(kept, it)
		}
	}
	fl.gathered, fl.ready = kept, ready
	fl.answer(nil)
}

// resolveAgain makes the flush again from names: the store that did not answer may have been restored or failed over,
// and its IDs may name other sources now.
func (fl *flusher) resolveAgain(ctx context.Context) error {
	fl.ids.reset()
	var waited []item
	for _, id := range fl.order {
		waited = append(waited, fl.chains[id]...)
	}
	fl.redo = append(waited, fl.redo...) // which came later
	clear(fl.chains)
	fl.order = fl.order[:0]
	fl.gathered = append(fl.gathered[:0], fl.items...)
	err := fl.resolve(ctx, func(ctx context.Context, _ string, f func(context.Context) error) error { return f(ctx) })
	if err == nil {
		fl.mergeBeats()
	}
	return err
}

// resolveUnknown resolves the names of sources again whose IDs the store no longer knows. Those that are unknown the
// second time are answered as unknown.
func (fl *flusher) resolveUnknown(unknown []int64) {
	gone := make(map[int64]bool, len(unknown))
	for _, id := range unknown {
		gone[id] = true
	}
	now := fl.clock.Now()
	var again []item
	requeue := func(it item) {
		fl.ids.drop(fl.ids.find(now, it.beat().Check, it.beat().Source).key)
		it.again = true
		again = append(again, it)
	}
	for _, it := range fl.items {
		switch {
		case !gone[it.id]:
			fl.ready = append(fl.ready, it)
		case it.again:
			it.outcome = Unknown
			fl.ready = append(fl.ready, it)
		default:
			requeue(it)
		}
	}
	fl.order = slices.DeleteFunc(fl.order, func(id int64) bool {
		if gone[id] {
			for _, it := range fl.chains[id] {
				requeue(it)
			}
			delete(fl.chains, id)
		}
		return gone[id]
	})
	fl.redo = append(again, fl.redo...) // which came later
}

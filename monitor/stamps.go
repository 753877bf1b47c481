package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// arrange makes the stamps of a flush. Beats that cannot be in it, because their
// source is in it with another signal, wait in the source's chain.
func (fl *flusher) arrange() {
	fl.items, fl.stamps, fl.paths = fl.items[:0], fl.stamps[:0], fl.paths[:0]
	clear(fl.index)
	for _, f := range fl.in.open() {
		if f.cfg.Steady {
			fl.paths = append(fl.paths, f)
		}
	}
	for _, c := range fl.empty {
		fl.path(c.path)
	}
	fresh := slices.IndexFunc(fl.gathered, func(it item) bool { return !it.again })
	if fresh < 0 {
		fresh = len(fl.gathered)
	}
	for _, it := range fl.gathered[:fresh] { // they came before all that waits
		if !fl.place(it, false) {
			fl.chain(it)
		}
	}
	fl.unchain()
	for _, it := range fl.gathered[fresh:] {
		if fl.chains[it.id] != nil || !fl.place(it, false) {
			fl.chain(it)
		}
	}
	slices.SortFunc(fl.stamps, func(a, b Stamp) int { return cmp.Compare(a.Source, b.Source) })
}

func (fl *flusher) chain(it item) {
	if fl.chains[it.id] == nil {
		fl.order = append(fl.order, it.id)
	}
	fl.chains[it.id] = append(fl.chains[it.id], it)
}

// unchain places the first beats of each chain.
func (fl *flusher) unchain() {
	waiting := fl.order[:0]
	for _, id := range fl.order {
		chain := fl.chains[id]
		for len(chain) > 0 && len(fl.stamps) < fl.in.cfg.MaxBatch && fl.place(chain[0], len(chain) > maxChain) {
			chain = chain[1:]
		}
		if len(chain) == 0 {
			delete(fl.chains, id)
			continue
		}
		fl.chains[id] = chain
		waiting = append(waiting, id)
	}
	fl.order = waiting
}

// place puts a beat into the flush, if its source is not in it, or what is said
// about it can be said together.
func (fl *flusher) place(it item, force bool) bool {
	b := it.beat()
	sent := said(b.Sent)
	at, ok := fl.index[it.id]
	if !ok {
		fl.index[it.id] = len(fl.stamps)
		fl.stamps = append(fl.stamps, Stamp{
			Source: it.id, Path: fl.path(it.c.path), Signal: b.Signal, Code: b.Code,
			Sent: sent, Seq: b.Seq, BySender: it.bySender, Count: 1,
		})
		fl.items = append(fl.items, it)
		return true
	}
	s := &fl.stamps[at]
	// What is told by its time from a replay is not mixed with what is not.
	if !force && (s.Signal != Fine || b.Signal != Fine || s.Sent.IsZero() != sent.IsZero()) {
		return false
	}
	s.Count++
	s.Path, s.Signal, s.Code = fl.path(it.c.path), b.Signal, b.Code
	if c := sent.Compare(s.Sent); c > 0 || c == 0 && b.Seq > s.Seq {
		s.Sent, s.Seq = sent, b.Seq
	}
	fl.items = append(fl.items, it)
	return true
}

// said is the sender's time, unless it cannot be one.
func said(t time.Time) time.Time {
	if year := t.Year(); year < 1900 || year > 2900 {
		return time.Time{}
	}
	return t
}

// path is a path's place among the proofs.
func (fl *flusher) path(f *Inflow) int {
	i := slices.Index(fl.paths, f)
	if i < 0 {
		i = len(fl.paths)
		fl.paths = append(fl.paths, f)
	}
	return i
}

// store sends the flush, and answers.
func (fl *flusher) store(ctx context.Context) {
	var answer Stored
	var began time.Duration
	err := fl.insist(ctx, "storing beats", func(ctx context.Context) (err error) {
		if fl.tries > 0 {
			if err := fl.anew(ctx); err != nil {
				return err
			}
		}
		began = fl.clock.Now()
		answer, err = fl.in.cfg.Intake.Store(ctx, Delivery{Proofs: fl.prove(began), Beats: fl.stamps})
		return err
	})
	if err != nil {
		fl.fail(fl.items, err)
		return
	}
	fl.proveAt = began + fl.in.cfg.Every
	fl.ids.renew(answer.Generation)
	fl.in.count(func(s *InletStats) {
		s.Flushes++
		s.Stamps += int64(len(fl.stamps))
		s.Replayed += int64(answer.Replayed)
		s.Latency += fl.clock.Now() - began
	})
	fl.ready = fl.ready[:0]
	if len(answer.Unknown) > 0 {
		fl.forget(answer.Unknown)
	} else {
		fl.ready = append(fl.ready, fl.items...)
	}
	fl.answer(nil)
	for _, c := range fl.empty {
		var err error
		if fl.stale(c, began) {
			err = fmt.Errorf("%w: a proof waited for longer than %v, and proves nothing", lease.ErrUnavailable, staleAfter*fl.in.cfg.Every)
		}
		c.done <- err
	}
}

// anew makes the flush again from names: the store that did not answer may be
// another one by now.
func (fl *flusher) anew(ctx context.Context) error {
	fl.ids.reset()
	for _, id := range fl.order {
		fl.redo = append(fl.redo, fl.chains[id]...)
	}
	clear(fl.chains)
	fl.order = fl.order[:0]
	fl.gathered = append(fl.gathered[:0], fl.items...)
	err := fl.resolve(ctx, func(ctx context.Context, _ string, f func(context.Context) error) error { return f(ctx) })
	if err == nil {
		fl.arrange()
	}
	return err
}

// prove makes the proofs of the flush's paths. While beats wait for long, nothing is
// proven by others that overtake them: an inlet that is behind is one that does not see.
func (fl *flusher) prove(now time.Duration) []Proof {
	came, waits := fl.in.queue.oldest()
	behind := waits && now-came > fl.in.cfg.Every
	fl.proofs = fl.proofs[:0]
	for _, f := range fl.paths {
		asked := slices.ContainsFunc(fl.empty, func(c *call) bool { return c.path == f && !fl.stale(c, now) })
		fl.proofs = append(fl.proofs, Proof{
			Path: f.cfg.Name, Trust: f.cfg.Trust, Gap: f.cfg.Gap, Unproven: !asked && (behind || !f.cfg.Steady),
		})
	}
	return fl.proofs
}

// stale tells whether nobody waits any more for what a call without beats says of its
// path, or it waited for so long that it may not be true any more.
func (fl *flusher) stale(c *call, now time.Duration) bool {
	return c.gone.Load() || now-c.came > staleAfter*fl.in.cfg.Every
}

// forget has the names of sources resolved anew whose ids are not there any more,
// once: what is unknown then is.
func (fl *flusher) forget(unknown []int64) {
	gone := make(map[int64]bool, len(unknown))
	for _, id := range unknown {
		gone[id] = true
	}
	now := fl.clock.Now()
	anew := func(it item) {
		fl.ids.drop(fl.ids.find(now, it.beat().Event, it.beat().Source).key)
		it.again = true
		fl.redo = append(fl.redo, it)
	}
	for _, it := range fl.items {
		switch {
		case !gone[it.id]:
			fl.ready = append(fl.ready, it)
		case it.again:
			it.outcome = Unknown
			fl.ready = append(fl.ready, it)
		default:
			anew(it)
		}
	}
	fl.order = slices.DeleteFunc(fl.order, func(id int64) bool {
		if gone[id] {
			for _, it := range fl.chains[id] {
				anew(it)
			}
			delete(fl.chains, id)
		}
		return gone[id]
	})
}

// insist makes a request until it is answered, as long as somebody waits for
// that. One whose outcome is unknown is made again: a beat that is stored twice
// has come a moment later and is counted twice, and says the same.
func (fl *flusher) insist(ctx context.Context, doing string, f func(context.Context) error) error {
	for doubt := false; ; {
		if ctx.Err() != nil {
			return fmt.Errorf("%w: the inlet stops", doubtful(doubt))
		}
		call, cancel := context.WithTimeout(ctx, storeTimeout)
		err := f(call)
		cancel()
		if err == nil {
			if fl.tries > 0 {
				fl.log.Info("the store answers again", "doing", doing, "after", fl.tries)
			}
			fl.tries = 0
			return nil
		}
		if fl.tries++; fl.tries == 1 {
			fl.log.Warn("the store did not do it; trying again while somebody waits", "doing", doing, "err", err)
		}
		fl.in.count(func(s *InletStats) { s.Failures++ })
		pause := backoff(fl.tries, 50*time.Millisecond, time.Second)
		fl.proveAt = fl.clock.Now() + pause
		doubt = doubt || !errors.Is(err, lease.ErrUnavailable)
		if errors.Is(err, lease.ErrInvalid) {
			return err
		}
		if fl.wanted() {
			lease.Sleep(ctx, fl.clock, pause)
		}
		// Who waited may have left during the pause, and said more elsewhere since: a process that
		// was stopped must not go on with what was new then.
		if !fl.wanted() {
			return fmt.Errorf("%w: %w", doubtful(doubt), err)
		}
	}
}

// doubtful is the error of a request that was not answered.
func doubtful(doubt bool) error {
	if doubt {
		return lease.ErrUnknown
	}
	return lease.ErrUnavailable
}

// wanted tells whether somebody still waits for the flush.
func (fl *flusher) wanted() bool {
	waits := func(it item) bool { return !it.c.gone.Load() }
	return slices.ContainsFunc(fl.items, waits) || slices.ContainsFunc(fl.gathered, waits) ||
		slices.ContainsFunc(fl.empty, func(c *call) bool { return !c.gone.Load() })
}

// backoff is how long to wait after so many failures in a row.
func backoff(failures int, least, most time.Duration) time.Duration {
	pause := min(most, least<<min(failures-1, 20))
	return pause/2 + rand.N(pause/2+1)
}

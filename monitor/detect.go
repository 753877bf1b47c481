package monitor

import "context"

// detect judges what is due until ctx ends.
//
// It polls, and does not sleep until the next source is due: a beat of a source
// that is watched and a signal make one due at any moment, and so does a person.
// A look that finds nothing reads the heads of some indexes.
func (w *Watcher) detect(ctx context.Context) {
	look := w.loop("looking for what is due")
	for next := w.clock.Now(); ctx.Err() == nil; {
		began := w.clock.Now()
		w.mu.Lock()
		parts := w.parts
		w.mu.Unlock()
		more, err := false, error(nil)
		if len(parts) > 0 {
			more, err = w.look(ctx, parts)
		}
		pause := look.told(err, w.cfg.Poll)
		if more {
			continue
		}
		// Who was woken has looked before its time: it must not wait for that as well, or
		// one that is woken again and again would not look for long.
		if next = max(min(next, began)+pause, began); err != nil {
			next = w.clock.Now() + pause
		}
		timer, stop := w.clock.Timer(next - w.clock.Now())
		select {
		case <-ctx.Done():
		case <-timer:
		case <-w.wakeDetect:
		}
		stop()
	}
}

// look judges one batch and tells whether there is more to do at once.
func (w *Watcher) look(ctx context.Context, parts []int) (more bool, err error) {
	began := w.clock.Now()
	var l Look
	err = w.request(ctx, func(ctx context.Context) (err error) {
		l, err = w.cfg.Table.Due(ctx, parts, w.cfg.Batch)
		return err
	})
	if err != nil {
		return false, err
	}
	w.count(func(s *WatchStats) { s.Latency = w.clock.Now() - began })
	w.saw(l)
	made, err := w.judge(ctx, l)
	// If nothing was changed, it is left for the next poll: whatever undid it may go on.
	return made > 0 && l.Next <= l.Now, err
}

// judge judges the candidates of a look and makes the changes.
func (w *Watcher) judge(ctx context.Context, l Look) (made int, err error) {
	b, err := w.current(ctx, l.Generation)
	if err != nil || len(l.Candidates) == 0 {
		return 0, err
	}
	t := turner{look: l, sinks: b.sinks, id: newRequestID}
	changes := make([]Change, 0, len(l.Candidates))
	for i := range l.Candidates {
		c := &l.Candidates[i]
		// An event that changed since it was read undoes the change, and is read
		// anew with the next look.
		if e := b.events[c.Event]; e != nil && e.Rev == c.EventRev {
			changes = append(changes, t.turn(&e.Event, c))
		} else {
			w.forgetBook()
		}
	}
	if len(changes) == 0 {
		return 0, nil
	}
	var done []bool
	err = w.request(ctx, func(ctx context.Context) (err error) {
		done, err = w.cfg.Table.Apply(ctx, changes)
		return err
	})
	if err != nil {
		// If it was made nevertheless, nothing is lost: its notices were stored with it.
		return 0, err
	}
	w.count(func(s *WatchStats) {
		s.Looks++
		s.Judged += int64(len(l.Candidates))
		for i, ok := range done[:min(len(done), len(changes))] {
			c := &changes[i]
			if !ok {
				s.Undone++
				continue
			}
			made++
			if c.Turn != Stay {
				s.Turns[c.Turn]++
			}
			if c.Turn == Onset {
				s.Delay += l.Wall.Sub(c.At)
			}
		}
	})
	return made, nil
}

package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/lease"
)

// Bounds of one call of the storage.
const (
	saveRecords  = 1000
	saveBytes    = 8 << 20
	storageWait  = 10 * time.Second // for one call
	stopWait     = time.Second      // after that, or when the peer stops: for a call to see that its context has ended
	saveRetry    = time.Second      // after a failure, with jitter
	lastSaveWait = 5 * time.Second  // for what is unsaved when the peer stops
)

// saver writes to the storage, with one call at a time. Copies are written behind: only
// the keys that have changed are remembered, and the table is read when it is
// their turn, so that a slow disk makes copies older in storage, and never takes
// memory or holds anybody up. What must be durable first goes first, and is
// reported: many such wishes together cost one commit. What could not be made
// durable is tried again until it is.
type saver struct {
	storage  Storage
	table    *table
	clock    lease.Clock
	log      *slog.Logger
	stats    *counters
	maxDirty int // keys that may wait to be saved
	raised   func(protocol.Raised)
	durable  func(ticket uint64, err error) // everything up to this ticket was tried
	failing  bool                           // the last call failed
	hung     <-chan error                   // the result of a call that has not returned in time; nil: there is none

	mu            sync.Mutex
	dirty         map[string]struct{}
	wantedCeiling int64                  // wanted; 0: nothing
	wantedMembers *protocol.MembersState // wanted
	removals      storedRemovals
	ticket        uint64        // the last one given
	wake          chan struct{} // there is something to do
	urgent        chan struct{} // and it goes first
}

func newSaver(cfg Config, table *table, stats *counters) *saver {
	return &saver{storage: cfg.Storage, table: table, clock: cfg.Clock, log: cfg.Logger, stats: stats,
		maxDirty: cfg.MaxKeys + 100_000, dirty: map[string]struct{}{}, removals: newStoredRemovals(),
		wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
}

// save remembers that a key's copy has changed or was evicted.
func (s *saver) save(key string) {
	if s.storage == nil {
		return
	}
	s.mu.Lock()
	_, known := s.dirty[key]
	if !known && len(s.dirty) >= s.maxDirty {
		s.removals.neverDrop = true // the lost save may be that of a removal
		s.mu.Unlock()
		s.stats.saveFailures.Add(1)
		return
	}
	s.dirty[key] = struct{}{}
	s.mu.Unlock()
	if !known {
		wakeUp(s.wake)
	}
}

// restore takes over the list of removals that is stored. It leaves neverDrop as it is: the load may have evicted more
// than may wait to be deleted.
func (s *saver) restore(stored []protocol.Removal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range stored {
		s.removals.stored[r] = true
	}
}

// raiseCeiling asks for terms up to this to be stored; raised tells when.
func (s *saver) raiseCeiling(to int64) {
	s.mu.Lock()
	s.wantedCeiling = max(s.wantedCeiling, to)
	s.mu.Unlock()
	wakeUp(s.urgent)
}

// saveRemovals asks for the list of removals to be stored, and returns the ticket that
// durable will tell; 0 when nothing on it is new, and nobody has to wait.
func (s *saver) saveRemovals(all []protocol.Removal) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.removals.set(all) {
		wakeUp(s.wake)
		return 0
	}
	s.ticket++
	wakeUp(s.urgent)
	return s.ticket
}

// saveMembers asks for the list of members to be stored, as saveRemovals does.
func (s *saver) saveMembers(state protocol.MembersState) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wantedMembers = &state
	s.ticket++
	wakeUp(s.urgent)
	return s.ticket
}

func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run writes until ctx ends, and then what is left, for as long as is reasonable.
func (s *saver) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-s.wake:
		case <-s.urgent:
		case <-ctx.Done():
			continue
		}
		for s.saveAll(ctx) && ctx.Err() == nil {
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSaveWait)
	defer cancel()
	defer s.waitHung(context.WithoutCancel(ctx)) // whoever closes the storage must not do so during a call
	s.waitHung(last)
	_ = s.saveUrgent(last)
	if keys, _ := s.takeDirty(); s.saveCopies(last, keys) == nil {
		return
	}
	s.log.Warn("stopped before all copies were saved: they are fetched again, or come from the other peers")
}

// saveAll writes everything that is wanted now, and reports whether there may be more.
func (s *saver) saveAll(ctx context.Context) bool {
	err := s.saveUrgent(ctx)
	keys, gone := s.takeDirty()
	if len(keys) > 0 {
		err = errors.Join(err, s.saveCopies(ctx, keys))
	}
	if err == nil && len(gone) > 0 {
		err = s.forget(ctx, gone)
	}
	if err == nil {
		return len(keys) > 0
	}
	timer, stop := s.clock.Timer(time.Duration((0.5 + rand.Float64()) * float64(saveRetry)))
	defer stop()
	for {
		select {
		case <-timer:
			return true
		case <-s.urgent:
			_ = s.saveUrgent(ctx) // what still fails is tried again by the next round
		case <-ctx.Done():
			return false
		}
	}
}

// takeDirty takes the keys that are to be saved, and the removals that may be forgotten
// once they are.
func (s *saver) takeDirty() (keys map[string]struct{}, gone []protocol.Removal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.dirty) > 0 {
		keys, s.dirty = s.dirty, map[string]struct{}{}
	}
	return keys, s.removals.forgotten()
}

// forget stores the list of removals without those that are no longer needed: the
// deletions that they asked for are stored.
func (s *saver) forget(ctx context.Context, gone []protocol.Removal) error {
	s.mu.Lock()
	s.removals.drop(gone)
	list := s.removals.list()
	s.mu.Unlock()
	err := s.call(ctx, "removals", func(ctx context.Context) error { return s.storage.SaveRemovals(ctx, list) })
	if err != nil {
		s.mu.Lock()
		s.removals.add(gone)
		s.mu.Unlock()
	}
	return err
}

// saveUrgent stores what must be durable before someone continues, and reports it.
func (s *saver) saveUrgent(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	to, list, ticket := s.wantedCeiling, s.wantedMembers, s.ticket
	var removals []protocol.Removal
	unsaved := s.removals.unsaved
	if unsaved {
		removals = s.removals.list()
	}
	s.wantedCeiling, s.wantedMembers, s.removals.unsaved = 0, nil, false
	s.mu.Unlock()
	if to > 0 {
		out := protocol.Raised{To: to}
		if err := s.call(ctx, "the ceiling of terms", func(ctx context.Context) error { return s.storage.Raise(ctx, to) }); err != nil {
			out.Err = err.Error()
		}
		s.raised(out)
	}
	if list == nil && !unsaved {
		return nil
	}
	var err error
	if list != nil {
		err = s.call(ctx, "the list of members", func(ctx context.Context) error { return s.storage.SaveMembers(ctx, *list) })
	}
	if err == nil && unsaved {
		err = s.call(ctx, "removals", func(ctx context.Context) error { return s.storage.SaveRemovals(ctx, removals) })
	}
	if err != nil {
		s.mu.Lock()
		s.removals.unsaved = s.removals.unsaved || unsaved
		if s.wantedMembers == nil {
			s.wantedMembers = list
		}
		s.mu.Unlock()
	}
	s.durable(ticket, err)
	return err
}

// saveCopies saves these keys as the table has them now; those that it could not save
// are wanted again. Between two writes it looks after what goes first.
func (s *saver) saveCopies(ctx context.Context, keys map[string]struct{}) error {
	batch := make([]Record, 0, min(len(keys), saveRecords))
	bytes := 0
	flush := func() error {
		records := batch
		err := s.call(ctx, "copies", func(ctx context.Context) error { return s.storage.Save(ctx, records) })
		if err != nil {
			return err // a call that hangs may still read the batch
		}
		s.stats.saves.Add(int64(len(batch)))
		for _, r := range batch {
			delete(keys, r.Key)
		}
		batch, bytes = batch[:0], 0
		return nil
	}
	var err error
	for key := range keys {
		e := s.table.Get(key)
		e.Used = 0 // the ceiling stands for it
		batch = append(batch, Record{key, e})
		bytes += len(key) + len(e.Value)
		if len(batch) == saveRecords || bytes >= saveBytes {
			if err = flush(); err != nil {
				break
			}
			_ = s.saveUrgent(ctx)
		}
	}
	if err == nil && len(batch) > 0 {
		err = flush()
	}
	if err != nil {
		s.mu.Lock()
		for key := range keys {
			s.dirty[key] = struct{}{}
		}
		s.mu.Unlock()
	}
	return err
}

func (s *saver) call(ctx context.Context, what string, do func(context.Context) error) error {
	err := s.attempt(ctx, do)
	if err == nil {
		if s.failing {
			s.failing = false
			s.log.Info("the storage works again")
		}
		return nil
	}
	s.stats.saveFailures.Add(1)
	if !s.failing && ctx.Err() == nil {
		s.failing = true
		s.log.Error("storing failed, and is tried again; see to the disk", "what", what, "err", err)
	}
	return fmt.Errorf("storing %s: %w", what, err)
}

var errHung = fmt.Errorf("the storage has not answered for %v", storageWait)

// attempt makes one call of the storage, on a goroutine of its own: a disk that hangs cannot be interrupted. Until such a
// call returns, every other one fails at once, because the storage takes one at a time.
func (s *saver) attempt(ctx context.Context, do func(context.Context) error) error {
	if s.hung != nil {
		select {
		case <-s.hung:
			s.hung = nil
		default:
			return errHung
		}
	}
	limited, cancel := context.WithTimeout(ctx, storageWait)
	returned := make(chan error, 1)
	go func() {
		defer cancel()
		returned <- do(limited)
	}()
	select {
	case err := <-returned:
		return err
	case <-limited.Done():
	}
	timer, stop := s.clock.Timer(stopWait)
	defer stop()
	select {
	case err := <-returned:
		return err
	case <-timer:
		s.hung = returned
		return errHung
	}
}

// waitHung waits until a call that hangs has returned, or ctx ends.
func (s *saver) waitHung(ctx context.Context) {
	if s.hung == nil {
		return
	}
	select {
	case <-s.hung:
		s.hung = nil
	case <-ctx.Done():
	}
}

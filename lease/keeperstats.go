package lease

import "time"

// KeeperStats counts what a [Keeper] did since it was made.
type KeeperStats struct {
	Sessions int64         // started
	Renewals int64         // accepted
	Failures int64         // renewals without an answer
	Lost     int64         // sessions that lapsed
	Latency  time.Duration // of the last accepted renewal
}

// StoreAnswers is the message with which a part of a process logs, at INFO, that the store answers it again.
const StoreAnswers = "store answers again"

// Stats returns the counts so far.
func (k *Keeper) Stats() KeeperStats {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stats
}

// Failing is for how long the store has accepted no request, and why not the last one; 0 and nil if it did.
func (k *Keeper) Failing() (since time.Duration, failure error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failure == nil {
		return 0, nil
	}
	return k.cfg.Clock.Now() - k.acceptedAt, k.failure
}

// record keeps whether the store accepted a request, and counts.
func (k *Keeper) record(failure error, count func(*KeeperStats)) {
	k.mu.Lock()
	recovered := k.failure != nil && failure == nil
	k.failure = failure
	if failure == nil {
		k.acceptedAt = k.cfg.Clock.Now()
	}
	count(&k.stats)
	k.mu.Unlock()
	if recovered {
		k.log.Info(StoreAnswers)
	}
}

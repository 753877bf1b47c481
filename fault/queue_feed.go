//go:build linux

package fault

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite" // for a user's own transactions

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/store/postgres"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// Feed are users that enqueue in transactions of their own: some with several
// keys, some rolled back, some with a batch that was there already; one batch in twenty is not to be sent before a time.
type Feed struct {
	Database Database
	Target   *QueueTarget
	Users    int
	Keys     int
	// Every is the mean pause between two transactions of a user.
	Every time.Duration
	Seed  uint64

	mu   sync.Mutex
	sent []Sent
}

// farthest is how far ahead a batch is scheduled at most.
const farthest = 3 * time.Second

// Run feeds until ctx ends, and returns what it did.
func (f *Feed) Run(ctx context.Context) []Sent {
	var users sync.WaitGroup
	for i := range f.Users {
		users.Go(func() { f.user(ctx, i) })
	}
	users.Wait()
	return f.sent
}

func (f *Feed) user(ctx context.Context, by int) {
	random := rand.New(rand.NewPCG(f.Seed, uint64(by)))
	var before dispatch.Message
	for n := 0; ctx.Err() == nil; {
		var batches []dispatch.Message
		for range 1 + random.IntN(3) {
			// Each user has a key of its own, and all share the others.
			key := random.IntN(f.Keys)
			if random.IntN(3) == 0 {
				key = by
			}
			batch := f.Target.batch(key, fmt.Sprintf("u%d-%d", by, n))
			if random.IntN(20) == 0 {
				batch.NotBefore = time.Now().Add(time.Duration(random.Int64N(int64(farthest))))
			}
			batches = append(batches, batch)
			n++
		}
		fate := Committed
		if random.IntN(8) == 0 {
			fate = RolledBack
		}
		known := before.ID != "" && random.IntN(8) == 0
		if known {
			batches = append(batches, before)
		}
		added, fate := f.transact(ctx, batches, fate)
		if known {
			f.again(before, added, fate)
			batches = batches[:len(batches)-1]
		}
		f.note(by, n, batches, fate)
		if fate == Committed {
			before = batches[0]
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(random.Int64N(int64(2*f.Every) + 1))):
		}
	}
}

// One enqueues one batch, which is not to be sent before a time if that is not zero. It tries again: its ID is known then.
func (f *Feed) One(id string, key int, notBefore time.Time) Sent {
	b := f.Target.batch(key, id)
	b.NotBefore = notBefore
	fate := RolledBack
	for try := 0; fate != Committed && try < 12; try++ {
		_, fate = f.transact(context.Background(), []dispatch.Message{b}, Committed)
	}
	return Sent{ID: b.ID, Key: b.Key, By: f.Users, Fate: fate, NotBefore: notBefore}
}

func (f *Feed) note(by, n int, batches []dispatch.Message, fate Fate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, b := range batches {
		f.sent = append(f.sent, Sent{ID: b.ID, Key: b.Key, By: by, N: n + i, Fate: fate, NotBefore: b.NotBefore})
	}
}

// again: a batch that is there already is not new. Told by a batch that cannot be.
func (f *Feed) again(b dispatch.Message, added []bool, fate Fate) {
	if fate == Committed && added[len(added)-1] {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.sent = append(f.sent, Sent{ID: b.ID + ", enqueued once more and said to be new,", Key: b.Key})
	}
}

// transact enqueues in a transaction, and returns what became of it.
func (f *Feed) transact(ctx context.Context, batches []dispatch.Message, want Fate) (added []bool, fate Fate) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	enqueue := f.enqueueSQLite
	if f.Database.Addr != "" {
		enqueue = f.enqueuePostgres
	}
	added, err := enqueue(ctx, batches, want)
	switch {
	case errors.Is(err, errCommit):
		return added, InDoubt
	case err != nil:
		return added, RolledBack
	}
	return added, want
}

var errCommit = errors.New("the COMMIT got no answer")

func (f *Feed) enqueuePostgres(ctx context.Context, batches []dispatch.Message, want Fate) ([]bool, error) {
	conn, err := pgx.Connect(ctx, f.Database.URL)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	added, err := postgres.Enqueue(ctx, tx, batches...)
	if err != nil || want == RolledBack {
		return added, errors.Join(err, tx.Rollback(ctx))
	}
	if err := tx.Commit(ctx); err != nil {
		return added, fmt.Errorf("%w: %w", errCommit, err)
	}
	return added, nil
}

func (f *Feed) enqueueSQLite(ctx context.Context, batches []dispatch.Message, want Fate) ([]bool, error) {
	db, err := sql.Open("sqlite", strings.TrimPrefix(f.Database.URL, "sqlite:")+"?_txlock=immediate&_pragma=busy_timeout(4000)")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	added, err := sqlite.Enqueue(ctx, tx, batches...)
	if err != nil || want == RolledBack {
		return added, errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return added, fmt.Errorf("%w: %w", errCommit, err)
	}
	return added, nil
}

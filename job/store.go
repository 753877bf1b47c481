package job

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// Store keeps jobs and their runs, and is the clock that decides what is due.
//
// Every method is atomic, linearizable against the others on the same job, and safe to use from many goroutines. Errors
// are those of lease.Store, [ErrNotFound] where it is named, and those of decisions, as they are. Scheduled times are
// kept in milliseconds. An ErrUnknown of Change means that it may have been applied.
type Store interface {
	// Change reads the job and the store's clock, does what decide makes of them, and returns the job afterwards. No other change
	// comes in between. decide gets a job with only a name if there is none.
	Change(ctx context.Context, name string, decide Decision) (Job, error)

	// Get returns a job, and the store's clock; ErrNotFound if there is none.
	Get(ctx context.Context, name string) (Job, time.Time, error)

	// List returns jobs in the order of their names, and the store's clock.
	List(ctx context.Context, q Query) ([]Job, time.Time, error)

	// Runs returns the runs of a job, the latest first: those scheduled before a time if that is not zero, in one of the
	// states if any are given, and limit at most. A job that is not there has none.
	Runs(ctx context.Context, q RunQuery) ([]Run, error)

	// PutOutput replaces what is kept of the output of a run that runs or ran under a term; ErrNotFound if there is none.
	PutOutput(ctx context.Context, key RunKey, term int64, o Output) error

	// Output returns what is kept of a run's output; ErrNotFound if there is no such run.
	Output(ctx context.Context, key RunKey) (Output, error)
}

// CombinedStore is a Store that changes a job and the lease that it runs under in one transaction: a run costs two instead of four.
type CombinedStore interface {
	Store

	// AcquireAndChange acquires the lease as lease.Store.Acquire does and, if it has it, changes the job: both or, if either is
	// refused, neither.
	AcquireAndChange(ctx context.Context, e lease.Expectation, name string, decide func(lease.Lease) Decision) (lease.Lease, Job, error)

	// ChangeAndRelease changes the job and releases the lease as lease.Store.Release does. If that is not held it returns
	// lease.ErrNotHeld, and has changed the job nonetheless.
	ChangeAndRelease(ctx context.Context, name string, decide Decision, r lease.ReleaseRequest) error
}

// Query selects jobs.
type Query struct {
	After string // name; those after it
	// DueWithin selects the jobs whose DueMillis is no later than so long from now; 0 selects all.
	DueWithin time.Duration
	Limit     int // 1 to 1000
}

// maxPage is how many jobs are read at once.
const maxPage = 1000

// readPages calls do with all jobs that q selects, at most a thousand at a time, and the store's clock. Each request has the timeout.
func readPages(ctx context.Context, store Store, timeout time.Duration, q Query, do func(page []Job, now time.Time)) error {
	for q.Limit = maxPage; ; {
		call, cancel := context.WithTimeout(ctx, timeout)
		page, now, err := store.List(call, q)
		cancel()
		if err != nil {
			return err
		}
		last := len(page) < maxPage
		if !last {
			q.After = page[maxPage-1].Name // before do, whose the page is
		}
		do(page, now)
		if last {
			return nil
		}
	}
}

// RunQuery selects runs.
type RunQuery struct {
	Job    string
	Before time.Time
	State  State // "" is any
	Limit  int   // 1 to 1000
}

// BeforeMillis is Before as stores compare it, in milliseconds: later than every run if there is none. It is exact as a float64.
func (q RunQuery) BeforeMillis() int64 {
	if q.Before.IsZero() {
		return 1 << 53
	}
	return q.Before.UnixMilli()
}

// RunKey names a run.
type RunKey struct {
	Job       string
	Scheduled time.Time
}

// Output is the end of what a run has written.
type Output struct {
	Total int64  // bytes in all
	Tail  []byte // the last of them, at most [MaxTail]
}

// Never is the DueAt of a job that is never due, as stores keep it, in milliseconds.
const Never = math.MaxInt64 / 4

// DueMillis is when an instance should look at the job, as stores keep it: at DueAt, or because there is something of its alarm
// to send.
func (j Job) DueMillis() int64 {
	out := int64(Never)
	if due := j.DueAt(); !due.IsZero() {
		out = due.UnixMilli()
	}
	if j.Alarm.Pending() {
		out = min(out, j.Alarm.NextTry.UnixMilli())
	}
	return out
}

// PrunesAt reports whether a store drops runs beyond [KeepRuns] and outputs beyond [KeepTails] with the change that leads to
// this version: now and then is enough.
func PrunesAt(version int64) bool { return version%100 == 0 }

// Encode and Decode are the form in which stores keep jobs and runs.
func Encode(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// Decode reads what Encode wrote.
func Decode[T Job | Run](text string) (v T, err error) {
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return v, fmt.Errorf("job: a row cannot be read: %w", err)
	}
	return v, nil
}

func (k RunKey) String() string {
	return fmt.Sprintf("the run of %s of job %q", k.Scheduled.UTC().Format(time.RFC3339Nano), k.Job)
}

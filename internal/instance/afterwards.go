package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/backoff"
	"github.com/understudy-ha/understudy/internal/guard"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/open"
)

// ReleaseArg is the first argument of a process that is to call [ReleaseFor]: a watcher that has survived its guard.
const ReleaseArg = "guard-release"

// afterwardsInput is what a guard that was killed wants done once its program is dead.
type afterwardsInput struct {
	Store   string   `json:"store"`
	Lease   lease.ID `json:"lease"`
	Session string   `json:"session"`
	Term    int64    `json:"term"`
	Timeout int64    `json:"timeout_ms"`
	// Dir is what paths in the store's URL are relative to.
	Dir string `json:"dir"`
}

// afterwards lets a watcher release the term's lease if this process is killed. It releases no more: what else the
// session holds may be in use by programs that are still stopping.
func (p *Program) afterwards(term elect.Term) *guard.Afterwards {
	if p.StoreURL == "" {
		return nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil // the role lapses
	}
	input, err := json.Marshal(afterwardsInput{p.StoreURL, term.Lease, term.Session.ID(), term.Number, term.Session.Timing().Timeout.Milliseconds(), dir})
	if err != nil {
		return nil // of plain fields, cannot fail
	}
	a := &guard.Afterwards{Arg: ReleaseArg, Input: input}
	if a.Validate() != nil {
		return nil // a URL of kilobytes: the role lapses
	}
	return a
}

// ReleaseFor releases the lease of a guard that was killed, whose program is dead, as its input says. It tries until the
// session has lapsed.
func ReleaseFor(ctx context.Context, input io.Reader) error {
	var t afterwardsInput
	if err := json.NewDecoder(input).Decode(&t); err != nil {
		return fmt.Errorf("%s is for internal use: %w", ReleaseArg, err)
	}
	if err := os.Chdir(t.Dir); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(t.Timeout)*time.Millisecond)
	defer cancel()
	for retry := (backoff.Backoff{First: 50 * time.Millisecond, Most: time.Second}); ; {
		err := t.release(ctx)
		if err == nil || !Unreachable(err) || !retry.Wait(ctx) {
			return err
		}
	}
}

func (t afterwardsInput) release(ctx context.Context) error {
	st, err := open.Open(ctx, t.Store, open.Options{NoMigrate: true, MustExist: true})
	if err != nil {
		return err
	}
	defer st.Close()
	return st.Release(ctx, lease.ReleaseRequest{Lease: t.Lease, Session: t.Session, Term: t.Term, Reason: "guard killed"})
}

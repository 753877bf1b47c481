package cachetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
)

// Harness is one storage under test, empty at first. The suite has it open once
// at a time, and ends every use with one of the functions below.
type Harness struct {
	// Open opens the storage, with all that was stored in it.
	Open func() (cache.Storage, error)
	// Close ends a use in order. Nil: there is nothing to do.
	Close func(cache.Storage) error
	// Kill ends a use as the end of a killed process does. Nil: as Close.
	Kill func(cache.Storage) error
	// Crash ends a use as a crash of the machine does: what the storage has not
	// made safe is lost, as much of it as can be. Nil: what needs it is skipped.
	Crash func(cache.Storage) error
}

// Run puts a storage through the suite; newHarness makes an empty one for each test.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	for name, check := range checks() {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			if strings.HasPrefix(name, "crash/") && h.Crash == nil {
				t.Skip("this storage cannot be crashed")
			}
			if err := try(t.Context(), h, check); err != nil {
				t.Error(err)
			}
		})
	}
}

// checks are functions that return what they find wrong, so that broken storages
// can be put through them too.
func checks() map[string]func(*bench) error {
	return map[string]func(*bench) error{
		"empty":                            checkEmpty,
		"records/all that belongs to them": checkRecords,
		"records/replaced":                 checkReplaced,
		"records/deleted":                  checkDeleted,
		"records/twice in one save":        checkTwice,
		"records/keys are bytes":           checkKeys,
		"records/values are bytes":         checkValues,
		"records/a long key":               checkLongKey,
		"records/a large value":            checkLarge,
		"records/thousands in one save":    checkThousands,
		"records/in the order of saving":   checkOrder,
		"records/whole saves or nothing":   checkAllOrNothing,
		"load/ends at an error":            checkLoadError,
		"ceiling/never falls":              checkCeiling,
		"removals/the list is whole":       checkRemovals,
		"removals/names are bytes":         checkRemovalNames,
		"members/as they were":             checkMembers,
		"parts/do not touch each other":    checkParts,
		"kill/all is there":                checkKill,
		"crash/what is promised is there":  checkCrash,
		"crash/saves are lost in order":    checkCrashOrder,
	}
}

func try(ctx context.Context, h Harness, check func(*bench) error) error {
	b := &bench{ctx: ctx, h: h}
	if err := b.open(); err != nil {
		return err
	}
	err := check(b)
	if b.s != nil {
		err = errors.Join(err, b.end("closing", h.Close))
	}
	return err
}

// bench is one test with its storage.
type bench struct {
	ctx   context.Context
	h     Harness
	s     cache.Storage
	found contents // what the last open loaded
}

// contents is all that a storage has.
type contents struct {
	Records []cache.Record
	State   cache.State
}

// open opens the storage and loads it.
func (b *bench) open() (err error) {
	if b.s, err = b.h.Open(); err != nil {
		return fmt.Errorf("opening: %w", err)
	}
	b.found = contents{}
	b.found.State, err = b.s.Load(b.ctx, func(r cache.Record) error {
		b.found.Records = append(b.found.Records, r)
		return nil
	})
	if err != nil {
		return fmt.Errorf("loading: %w", err)
	}
	return nil
}

func (b *bench) end(how string, end func(cache.Storage) error) error {
	s := b.s
	b.s = nil
	if end == nil {
		return nil
	}
	if err := end(s); err != nil {
		return fmt.Errorf("%s: %w", how, err)
	}
	return nil
}

// again closes the storage, opens it and loads it.
func (b *bench) again() error {
	if err := b.end("closing", b.h.Close); err != nil {
		return err
	}
	return b.open()
}

func (b *bench) save(records ...cache.Record) error {
	if err := b.s.Save(b.ctx, records); err != nil {
		return fmt.Errorf("saving %d records: %w", len(records), err)
	}
	return nil
}

// want compares what was loaded, in its order.
func (b *bench) want(records ...cache.Record) error {
	if diff := cmp.Diff(brief(records), brief(b.found.Records), cmpopts.EquateEmpty()); diff != "" {
		return fmt.Errorf("loaded other records than were saved (-want +got):\n%s", diff)
	}
	return nil
}

// briefly is a record whose text is not as long as its value.
type briefly struct {
	Key                string
	Term, Expire, Made int64
	Digest, Found      uint64
	Length             int
}

func brief(records []cache.Record) []briefly {
	out := make([]briefly, len(records))
	for i, r := range records {
		e := r.Entry
		out[i] = briefly{r.Key, e.Term, e.Expire, e.Made, e.Digest, protocol.Digest(e.Value), len(e.Value)}
	}
	return out
}

func (b *bench) wantState(want cache.State) error {
	if diff := cmp.Diff(want, b.found.State, cmpopts.EquateEmpty(), cmpopts.SortSlices(removalLess)); diff != "" {
		return fmt.Errorf("loaded another state than was saved (-want +got):\n%s", diff)
	}
	return nil
}

func removalLess(a, b protocol.Removal) bool {
	if a.Scope != b.Scope {
		return a.Scope < b.Scope
	}
	if a.Name != b.Name {
		return a.Name < b.Name
	}
	return a.Term < b.Term
}

// record is a copy with a value; every field differs from those of other n.
func record(key, value string, n int64) cache.Record {
	return cache.Record{Key: key, Entry: protocol.Entry{
		Term: 1_700_000_000_000 + n, Expire: 1_800_000_000_000 + n, Made: 1_790_000_000_000 + n,
		Digest: protocol.Digest([]byte(value)), Value: []byte(value),
	}}
}

func steps(errs ...func() error) error {
	for _, f := range errs {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

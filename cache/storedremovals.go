package cache

import (
	"maps"
	"slices"

	"github.com/understudy-ha/understudy/cache/protocol"
)

// storedRemovals is the list of removals that is stored: all that are known, and those that
// are forgotten already but whose deletions may not be stored. Without them, what was
// removed would be back after a restart.
type storedRemovals struct {
	stored    map[protocol.Removal]bool // true: still known
	unsaved   bool                      // something on it is not stored
	neverDrop bool                      // nothing is ever taken off
}

func newStoredRemovals() storedRemovals {
	return storedRemovals{stored: map[protocol.Removal]bool{}}
}

// set takes over what is known now, and reports whether any of it is new.
func (l *storedRemovals) set(known []protocol.Removal) bool {
	for r := range l.stored {
		l.stored[r] = false
	}
	before := len(l.stored)
	for _, r := range known {
		l.stored[r] = true
	}
	added := len(l.stored) > before
	l.unsaved = l.unsaved || added
	return added
}

func (l *storedRemovals) list() []protocol.Removal { return slices.Collect(maps.Keys(l.stored)) }

// forgotten are those that are forgotten, and may be dropped once everything that is
// unsaved now is saved.
func (l *storedRemovals) forgotten() (out []protocol.Removal) {
	if l.neverDrop {
		return nil
	}
	for r, known := range l.stored {
		if !known {
			out = append(out, r)
		}
	}
	return out
}

func (l *storedRemovals) drop(gone []protocol.Removal) {
	for _, r := range gone {
		if !l.stored[r] {
			delete(l.stored, r)
		}
	}
}

// add puts back what could not be dropped.
func (l *storedRemovals) add(gone []protocol.Removal) {
	for _, r := range gone {
		if !l.stored[r] {
			l.stored[r] = false // in the list, although not known
		}
	}
}

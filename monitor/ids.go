package monitor

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"time"
)

// ids knows the ids of sources by heart. A source costs about 40 bytes: it is
// known by 128 bits of its names, made with two secret seeds, so that nobody can
// choose names that meet.
//
// It has two generations of at most half of the ids each: what was not asked for
// while one filled up is forgotten.
type ids struct {
	seeds      [2]maphash.Seed
	most       int
	young, old map[digest]int64
	// events that some source was found of since the configuration changed.
	events map[string]knownEvent
	// unknown names, until a moment on this host's clock.
	unknown map[digest]struct{}
	until   time.Duration
	// generation of the configuration that all of this is from.
	generation int64
}

type digest [2]uint64

type knownEvent struct {
	digest
	senderClock bool
}

const (
	// maxIDs bounds the ids, in both generations together.
	maxIDs = 4_000_000
	// maxUnknown bounds the unknown names that are remembered.
	maxUnknown = 100_000
	// unknownFor is how long they are.
	unknownFor = time.Second
)

func newIDs(most int) *ids {
	return &ids{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, most: most,
		young: map[digest]int64{}, events: map[string]knownEvent{}, unknown: map[digest]struct{}{},
	}
}

func (k *ids) sum(text string) digest {
	return digest{maphash.String(k.seeds[0], text), maphash.String(k.seeds[1], text)}
}

// of is the key of a source. The event's part is turned, so that names that are
// exchanged differ.
func (k *ids) of(event digest, source string) digest {
	s := k.sum(source)
	return digest{s[0] + bits.RotateLeft64(event[0], 23), s[1] + bits.RotateLeft64(event[1], 23)}
}

// found is what is known of a source.
type found struct {
	key         digest
	id          int64 // 0: none is known
	senderClock bool
	event       bool // senderClock is known to be so
	unknown     bool // the store did not know it, a moment ago
}

func (k *ids) find(now time.Duration, event, source string) found {
	e, ok := k.events[event]
	if !ok {
		e.digest = k.sum(event)
	}
	f := found{key: k.of(e.digest, source), event: ok, senderClock: e.senderClock}
	if f.id = k.young[f.key]; f.id != 0 {
		return f
	}
	if f.id = k.old[f.key]; f.id != 0 {
		k.put(f.key, f.id)
		return f
	}
	if now >= k.until {
		clear(k.unknown)
	}
	_, f.unknown = k.unknown[f.key]
	return f
}

func (k *ids) put(key digest, id int64) {
	if len(k.young) >= k.most/2 {
		k.old, k.young = k.young, map[digest]int64{}
	}
	k.young[key] = id
}

// learn remembers the store's answer.
func (k *ids) learn(now time.Duration, ref Ref, r Resolved) {
	e, known := k.events[ref.Event]
	if !known {
		e.digest = k.sum(ref.Event)
	}
	key := k.of(e.digest, ref.Source)
	if r.ID == 0 {
		k.drop(key)
		if len(k.unknown) == 0 {
			k.until = now + unknownFor
		}
		if len(k.unknown) < maxUnknown {
			k.unknown[key] = struct{}{}
		}
		return
	}
	k.put(key, r.ID)
	if !known || e.senderClock != r.SenderClock {
		e.senderClock = r.SenderClock
		k.events[strings.Clone(ref.Event)] = e
	}
}

func (k *ids) drop(key digest) {
	delete(k.young, key)
	delete(k.old, key)
}

// renew forgets what another configuration may say otherwise. Ids stay: those of
// sources that are gone are refused by the store.
func (k *ids) renew(generation int64) {
	if generation == k.generation {
		return
	}
	if generation < k.generation {
		k.reset() // the store is as it was some time ago
	}
	k.generation = generation
	clear(k.events)
	clear(k.unknown)
}

// reset forgets everything. A store that was restored, or whose copy took over, may
// give an id that is known by heart to another source.
func (k *ids) reset() {
	k.young, k.old = map[digest]int64{}, nil
	clear(k.events)
	clear(k.unknown)
}

func (k *ids) size() int { return len(k.young) + len(k.old) }

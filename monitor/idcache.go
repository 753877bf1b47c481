package monitor

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"time"
)

// idCache holds the cached ids of sources. A source costs about 40 bytes: its key is 128 bits of a hash of
// its names, made with two secret seeds, so that a sender cannot choose names that collide.
//
// It has two generations of at most half of the ids each: an id that was not looked up while one filled up
// is forgotten.
type idCache struct {
	seeds      [2]maphash.Seed
	most       int
	young, old map[digest]int64
	// checks are the checks of which a source was found since the configuration changed.
	checks map[string]knownCheck
	// unknown names, until a moment on this host's clock.
	unknown map[digest]Outcome // Unknown or Full
	until   time.Duration
	// generation of the configuration that all of this is from.
	generation int64
}

type digest [2]uint64

type knownCheck struct {
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

func newIDCache(most int) *idCache {
	return &idCache{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, most: most,
		young: map[digest]int64{}, checks: map[string]knownCheck{}, unknown: map[digest]Outcome{},
	}
}

func (k *idCache) hash(text string) digest {
	return digest{maphash.String(k.seeds[0], text), maphash.String(k.seeds[1], text)}
}

// key is the key of a source. The check's part is rotated, so that check "a", source "b" and check "b",
// source "a" differ.
func (k *idCache) key(check digest, source string) digest {
	s := k.hash(source)
	return digest{s[0] + bits.RotateLeft64(check[0], 23), s[1] + bits.RotateLeft64(check[1], 23)}
}

// found is what is known of a source.
type found struct {
	key         digest
	id          int64 // 0: none is known
	senderClock bool
	checkKnown  bool    // senderClock is known to be so
	unknown     Outcome // the store did not know it, a moment ago, and why; 0 otherwise
}

func (k *idCache) find(now time.Duration, check, source string) found {
	e, ok := k.checks[check]
	if !ok {
		e.digest = k.hash(check)
	}
	f := found{key: k.key(e.digest, source), checkKnown: ok, senderClock: e.senderClock}
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
	f.unknown = k.unknown[f.key]
	return f
}

func (k *idCache) put(key digest, id int64) {
	if len(k.young) >= k.most/2 {
		k.old, k.young = k.young, map[digest]int64{}
	}
	k.young[key] = id
}

// remember keeps the store's answer.
func (k *idCache) remember(now time.Duration, ref SourceRef, r ResolvedSource) {
	e, known := k.checks[ref.Check]
	if !known {
		e.digest = k.hash(ref.Check)
	}
	key := k.key(e.digest, ref.Source)
	if r.ID == 0 {
		k.drop(key)
		if len(k.unknown) == 0 {
			k.until = now + unknownFor
		}
		if len(k.unknown) < maxUnknown {
			why := Unknown
			if r.Full {
				why = Full
			}
			k.unknown[key] = why
		}
		return
	}
	k.put(key, r.ID)
	if !known || e.senderClock != r.SenderClock {
		e.senderClock = r.SenderClock
		k.checks[strings.Clone(ref.Check)] = e
	}
}

func (k *idCache) drop(key digest) {
	delete(k.young, key)
	delete(k.old, key)
}

// setGeneration forgets what another configuration may say otherwise. Ids stay: those of
// sources that are gone are refused by the store.
func (k *idCache) setGeneration(generation int64) {
	if generation == k.generation {
		return
	}
	if generation < k.generation {
		k.reset() // the store is as it was some time ago
	}
	k.generation = generation
	clear(k.checks)
	clear(k.unknown)
}

// reset forgets everything. A store that was restored, or whose standby took over, may give a cached id to
// another source.
func (k *idCache) reset() {
	k.young, k.old = map[digest]int64{}, nil
	clear(k.checks)
	clear(k.unknown)
}

func (k *idCache) size() int { return len(k.young) + len(k.old) }

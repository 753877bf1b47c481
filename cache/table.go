package cache

import (
	"cmp"
	"container/heap"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/understudy-ha/understudy/cache/protocol"
)

const (
	shards = 64
	// entryOverhead is what an entry costs besides its key and its value: the
	// node, its place in the map, and what the allocator rounds up.
	// TestTableOverhead measures it.
	entryOverhead = 176
)

// table holds copies in memory. Any goroutine may read; one writes. What was used
// least recently is evicted, over all shards, exactly: a use takes a number from
// one counter, and the shard whose tail has the lowest number loses it.
//
// Terms of keys without a copy, which anybody can make by asking for keys that do not exist, have a part of the table at
// most: beyond it, the least recently used of them is evicted in place of a copy.
//
// Its use is a hit or a Put. Get, Match and page look without using.
type table struct {
	seed     maphash.Seed
	maxKeys  int
	maxBytes int64
	onEvict  func(key string)
	shards   [shards]shard

	used                   atomic.Uint64 // the last use's number
	keys, bytes, evictions atomic.Int64  // changed by the writer only
	bareKeys               int64         // of keys: those without a copy; the writer's, as is
	bareBytes              int64         // what they take up
	forgot                 int64         // the highest term of what was evicted; the writer's
}

var _ protocol.Table = (*table)(nil)

// barePart is the part of the table that keys without a copy may fill: one in so many.
const barePart = 16

// shard is a part of the table. Its lists, from first to last, are in the order of
// use, the most recent first.
type shard struct {
	mu     sync.Mutex
	nodes  map[string]*node
	copies node // copies.next is the first, copies.prev the last
	bare   node // the same, of keys without a copy
}

type node struct {
	next, prev *node
	used       uint64
	key        string
	entry      protocol.Entry
}

// newTable makes an empty table that holds at most maxKeys entries, with or
// without a value, and maxBytes bytes of keys, values and overhead. evicted is
// told, by the goroutine that called Put and outside all locks, what was dropped
// to keep these bounds.
func newTable(maxKeys int, maxBytes int64, evicted func(key string)) *table {
	t := &table{seed: maphash.MakeSeed(), maxKeys: maxKeys, maxBytes: maxBytes, onEvict: evicted}
	for i := range t.shards {
		s := &t.shards[i]
		s.nodes = map[string]*node{}
		s.copies.next, s.copies.prev = &s.copies, &s.copies
		s.bare.next, s.bare.prev = &s.bare, &s.bare
	}
	return t
}

func size(key string, e protocol.Entry) int64 {
	return int64(len(key)) + int64(len(e.Value)) + entryOverhead
}

func (t *table) shardOf(key string) *shard { return &t.shards[maphash.String(t.seed, key)%shards] }

// useCopy uses a copy and returns it, and whether it is fresh.
func (t *table) useCopy(key []byte, wall int64) (protocol.Entry, bool) {
	s := &t.shards[maphash.Bytes(t.seed, key)%shards]
	s.mu.Lock()
	n := s.nodes[string(key)] // does not allocate: the string is only compared
	return t.finishUse(s, n, wall)
}

// useCopyString is useCopy for who has a string.
func (t *table) useCopyString(key string, wall int64) (protocol.Entry, bool) {
	s := t.shardOf(key)
	s.mu.Lock()
	return t.finishUse(s, s.nodes[key], wall)
}

// finishUse unlocks s.
func (t *table) finishUse(s *shard, n *node, wall int64) (protocol.Entry, bool) {
	if n == nil {
		s.mu.Unlock()
		return protocol.Entry{}, false
	}
	t.moveToFront(s, n)
	e := n.entry
	s.mu.Unlock()
	return e, e.Fresh(wall)
}

// moveToFront makes n the most recently used; s is locked.
func (t *table) moveToFront(s *shard, n *node) {
	// The number is taken under the shard's lock: the shard's lists are in the order
	// of numbers.
	n.used = t.used.Add(1)
	root := &s.copies
	if !n.entry.Held() {
		root = &s.bare
	}
	if root.next != n {
		n.unlink()
		n.prev, n.next = root, root.next
		n.prev.next, n.next.prev = n, n
	}
}

func (n *node) unlink() {
	if n.next != nil {
		n.prev.next, n.next.prev = n.next, n.prev
	}
}

// last is the least recently used of a shard, or of its keys without a copy; nil when there is none. s is locked.
func (s *shard) last(bare bool) *node {
	n := s.bare.prev
	if c := s.copies.prev; !bare && c != &s.copies && (n == &s.bare || c.used < n.used) {
		return c
	}
	if n == &s.bare {
		return nil
	}
	return n
}

// Get implements [protocol.Table].
func (t *table) Get(key string) protocol.Entry {
	s := t.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[key]; n != nil {
		return n.entry
	}
	return protocol.Entry{}
}

// Put implements [protocol.Table]. The zero Entry takes the key away, which is no
// eviction. An entry that is larger than the whole table is evicted at once,
// alone.
func (t *table) Put(key string, e protocol.Entry) {
	if large := size(key, e) > t.maxBytes; large || e.IsZero() {
		t.remove(key)
		if large {
			t.drop(key, e)
		}
		return
	}
	s := t.shardOf(key)
	s.mu.Lock()
	n := s.nodes[key]
	if n == nil {
		// The caller's key may be a part of something larger, which would be kept
		// in memory with it.
		n = &node{key: strings.Clone(key)}
		s.nodes[n.key] = n
	} else {
		t.count(n, -1)
	}
	n.entry = e
	t.count(n, 1)
	t.moveToFront(s, n)
	s.mu.Unlock()
	for t.keys.Load() > int64(t.maxKeys) || t.bytes.Load() > t.maxBytes {
		t.evict(t.bareKeys > int64(t.maxKeys+barePart-1)/barePart || t.bareBytes > t.maxBytes/barePart)
	}
}

// count adds a node to what is held, or takes it off: by is 1 or -1.
func (t *table) count(n *node, by int64) {
	bytes := by * size(n.key, n.entry)
	t.keys.Add(by)
	t.bytes.Add(bytes)
	if !n.entry.Held() {
		t.bareKeys += by
		t.bareBytes += bytes
	}
}

func (t *table) remove(key string) {
	s := t.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[key]; n != nil {
		t.unlink(s, n)
	}
}

// unlink takes a node away; s is locked.
func (t *table) unlink(s *shard, n *node) {
	n.unlink()
	delete(s.nodes, n.key)
	t.count(n, -1)
}

// Forgot implements [protocol.Table].
func (t *table) Forgot() int64 { return t.forgot }

func (t *table) drop(key string, e protocol.Entry) {
	t.forgot = max(t.forgot, e.Term, e.Used)
	t.evictions.Add(1)
	if t.onEvict != nil {
		t.onEvict(key)
	}
}

// evict drops the least recently used entry, or bare entry. Readers may use it in between; then
// it looks again.
func (t *table) evict(bare bool) {
	for {
		var oldest *shard
		var used uint64
		for i := range t.shards {
			s := &t.shards[i]
			s.mu.Lock()
			if n := s.last(bare); n != nil && (oldest == nil || n.used < used) {
				oldest, used = s, n.used
			}
			s.mu.Unlock()
		}
		if oldest == nil {
			return
		}
		oldest.mu.Lock()
		n := oldest.last(bare)
		if n.used != used {
			oldest.mu.Unlock()
			continue
		}
		t.unlink(oldest, n)
		oldest.mu.Unlock()
		t.drop(n.key, n.entry)
		return
	}
}

// Match implements [protocol.Table], in no order. It looks at every key: about
// 30 ns for each. each runs without a lock, and may call Put for any key.
func (t *table) Match(prefix string, each func(key string, e protocol.Entry) bool) {
	for i := range t.shards {
		s := &t.shards[i]
		var keys []string
		s.mu.Lock()
		for key := range s.nodes {
			if strings.HasPrefix(key, prefix) {
				keys = append(keys, key)
			}
		}
		s.mu.Unlock()
		for _, key := range keys {
			s.mu.Lock()
			n := s.nodes[key]
			if n == nil { // evicted meanwhile
				s.mu.Unlock()
				continue
			}
			e := n.entry
			s.mu.Unlock()
			if !each(key, e) {
				return
			}
		}
	}
}

// keyed is an entry with its key.
type keyed struct {
	key   string
	entry protocol.Entry
}

// page is the first limit copies, in the order of keys, whose keys start with
// prefix and come after the key after. It looks at every key, a shard at a time:
// about 30 ns for each, and for no longer than it takes to look at one
// shard does it hold up that shard's readers. What is put or evicted meanwhile may be
// in the page or not.
func (t *table) page(after string, limit int, prefix string) []keyed {
	if limit <= 0 {
		return nil
	}
	var first largest
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for key, n := range s.nodes {
			switch {
			case key <= after || !strings.HasPrefix(key, prefix) || !n.entry.Held():
			case len(first) < limit:
				heap.Push(&first, keyed{key, n.entry})
			case key < first[0].key:
				first[0] = keyed{key, n.entry}
				heap.Fix(&first, 0)
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(first, func(a, b keyed) int { return cmp.Compare(a.key, b.key) })
	return first
}

// largest is a heap whose first element has the largest key.
type largest []keyed

func (l largest) Len() int           { return len(l) }
func (l largest) Less(i, j int) bool { return l[i].key > l[j].key }
func (l largest) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *largest) Push(x any)        { *l = append(*l, x.(keyed)) }
func (l *largest) Pop() any          { panic("cache: a page only grows") }

// usage are how much is held, and how much was evicted since the start.
func (t *table) usage() (keys, bytes, evicted int64) {
	return t.keys.Load(), t.bytes.Load(), t.evictions.Load()
}

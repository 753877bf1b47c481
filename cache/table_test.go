package cache

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/cache/protocol"
)

func held(value string) protocol.Entry {
	return protocol.Entry{Term: 1, Expire: 100, Digest: protocol.Digest([]byte(value)), Value: []byte(value)}
}

// TestTableOrder plays random uses against a list that is a plain slice.
func TestTableOrder(t *testing.T) {
	const maxKeys, maxBare = 20, 2
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var evicted, wantEvicted []string
		var order []string // the least recent first
		bare := map[string]bool{}
		isBare := func(key string) bool { return bare[key] }
		use := func(key string) {
			order = slices.DeleteFunc(order, func(k string) bool { return k == key })
			order = append(order, key)
		}
		tab := newTable(maxKeys, 1<<40, func(key string) { evicted = append(evicted, key) })
		for range 2000 {
			key := strconv.Itoa(r.IntN(2 * maxKeys))
			switch r.IntN(8) {
			case 0, 1, 2, 3:
				e := [...]protocol.Entry{held(key), {Term: 7}, {Used: 7}}[r.IntN(3)] // a term alone is held too
				tab.Put(key, e)
				use(key)
				bare[key] = !e.Held()
				if len(order) > maxKeys {
					out := 0
					if n := len(slices.DeleteFunc(slices.Clone(order), func(k string) bool { return !bare[k] })); n > maxBare {
						out = slices.IndexFunc(order, isBare)
					}
					wantEvicted, order = append(wantEvicted, order[out]), slices.Delete(order, out, out+1)
				}
			case 4, 5:
				tab.useCopy([]byte(key), 1)
				if slices.Contains(order, key) {
					use(key)
				}
			case 6:
				tab.Get(key) // looks, and does not use
				tab.page("", 5, "")
				tab.Match("", func(string, protocol.Entry) bool { return true })
			case 7:
				tab.Put(key, protocol.Entry{})
				order = slices.DeleteFunc(order, func(k string) bool { return k == key })
			}
			if keys, _, _ := tab.usage(); keys != int64(len(order)) {
				t.Fatalf("seed %d: %d keys, want %d", seed, keys, len(order))
			}
		}
		if diff := cmp.Diff(wantEvicted, evicted); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}

// Keys without a copy evict few copies, however many are asked for.
func TestTableOfMissingKeys(t *testing.T) {
	const maxKeys = 160
	for _, tab := range []*table{newTable(maxKeys, 1<<30, nil), newTable(1<<20, maxKeys*(entryOverhead+10), nil)} {
		for i := range maxKeys {
			tab.Put(fmt.Sprintf("copy/%03d", i), held("1"))
		}
		for i := range 10_000 {
			tab.Put(fmt.Sprintf("miss/%05d", i), protocol.Entry{Used: int64(i)})
		}
		kept := 0
		tab.Match("copy/", func(string, protocol.Entry) bool { kept++; return true })
		if least := maxKeys - maxKeys/barePart - 1; kept < least {
			t.Errorf("%d of %d copies are left, want %d", kept, maxKeys, least)
		}
		if n := tab.Forgot(); n < 9000 {
			t.Errorf("what was evicted used terms up to %d", n)
		}
	}
}

func TestTableHit(t *testing.T) {
	tab := newTable(10, 1<<20, nil)
	tab.Put("k", held("v"))
	for _, c := range []struct {
		key   string
		wall  int64
		value string
		fresh bool
	}{{"k", 99, "v", true}, {"k", 100, "v", false}, {"other", 1, "", false}} {
		e, fresh := tab.useCopy([]byte(c.key), c.wall)
		if string(e.Value) != c.value || fresh != c.fresh {
			t.Errorf("%+v: %q, %t", c, e.Value, fresh)
		}
		e, fresh = tab.useCopyString(c.key, c.wall)
		if string(e.Value) != c.value || fresh != c.fresh {
			t.Errorf("by string: %+v: %q, %t", c, e.Value, fresh)
		}
	}
	key := []byte(strings.Repeat("long", 100))
	tab.Put(string(key), held("v"))
	if n := testing.AllocsPerRun(100, func() { tab.useCopy(key, 1) }); n != 0 {
		t.Errorf("a hit allocates %v times", n)
	}
}

func TestTableBytes(t *testing.T) {
	var evicted []string
	const each = 1000
	tab := newTable(1000, 10*(entryOverhead+2+each), func(key string) { evicted = append(evicted, key) })
	put := func(i, length int) { tab.Put(fmt.Sprintf("%02d", i), held(strings.Repeat("x", length))) }
	for i := range 10 {
		put(i, each)
	}
	if len(evicted) != 0 {
		t.Fatalf("evicted %v before it was full", evicted)
	}
	put(10, 1)
	if diff := cmp.Diff([]string{"00"}, evicted); diff != "" {
		t.Fatal(diff)
	}
	put(10, 3*each) // what grows pushes others out, not itself
	if diff := cmp.Diff([]string{"00", "01", "02"}, evicted); diff != "" {
		t.Fatal(diff)
	}
	keys, before, _ := tab.usage()
	put(5, 1<<20) // larger than the table: alone
	if diff := cmp.Diff([]string{"00", "01", "02", "05"}, evicted); diff != "" {
		t.Fatal(diff)
	}
	nowKeys, bytes, gone := tab.usage()
	if nowKeys != keys-1 || bytes != before-entryOverhead-2-each || gone != 4 {
		t.Errorf("%d keys, %d bytes, %d evicted", nowKeys, bytes, gone)
	}
	for i := range 20 {
		tab.Put(fmt.Sprintf("%02d", i), protocol.Entry{})
	}
	if keys, bytes, gone := tab.usage(); keys != 0 || bytes != 0 || gone != 4 {
		t.Errorf("emptied: %d keys, %d bytes, %d evicted", keys, bytes, gone)
	}
}

func TestTablePages(t *testing.T) {
	tab := newTable(10_000, 1<<30, nil)
	var want []string
	for _, i := range rand.Perm(1000) {
		key := fmt.Sprintf("%c/%03d", 'a'+i%3, i)
		tab.Put(key, held(key))
		want = append(want, key)
	}
	slices.Sort(want)
	for _, prefix := range []string{"", "a", "b/", "b/1", "zz"} {
		mine := slices.DeleteFunc(slices.Clone(want), func(k string) bool { return !strings.HasPrefix(k, prefix) })
		var got, matched []string
		for after := ""; ; {
			page := tab.page(after, 7, prefix)
			if len(page) > 7 {
				t.Fatalf("a page of %d", len(page))
			}
			for _, k := range page {
				if string(k.entry.Value) != k.key {
					t.Errorf("%s has the value %q", k.key, k.entry.Value)
				}
				got = append(got, k.key)
				after = k.key
			}
			if len(page) == 0 {
				break
			}
		}
		if !slices.Equal(got, mine) {
			t.Errorf("prefix %q: pages of %d keys, want %d", prefix, len(got), len(mine))
		}
		tab.Match(prefix, func(key string, e protocol.Entry) bool {
			matched = append(matched, key)
			return string(e.Value) == key
		})
		slices.Sort(matched)
		if !slices.Equal(matched, mine) {
			t.Errorf("prefix %q: %d matched, want %d", prefix, len(matched), len(mine))
		}
	}
	if tab.page("", 0, "") != nil {
		t.Error("a page of nothing")
	}
	n := 0
	tab.Match("", func(string, protocol.Entry) bool { n++; return n < 3 })
	if n != 3 {
		t.Errorf("%d calls after a false", n)
	}
	tab.Match("a", func(key string, e protocol.Entry) bool { // what removals do
		tab.Put(key, protocol.Entry{Term: e.Term + 1})
		return true
	})
	tab.Match("", func(key string, e protocol.Entry) bool {
		if e.Held() == strings.HasPrefix(key, "a") {
			t.Errorf("%s: %+v", key, e)
		}
		return true
	})
}

// TestTableConcurrent: readers never see a value under another's key, and the
// bounds hold after every Put.
func TestTableConcurrent(t *testing.T) {
	const maxKeys = 100
	tab := newTable(maxKeys, 1<<30, nil)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 2))
			for !stop.Load() {
				key := strconv.Itoa(r.IntN(2 * maxKeys))
				for _, e := range []protocol.Entry{first(tab.useCopy([]byte(key), 1)), first(tab.useCopyString(key, 1)), tab.Get(key)} {
					if e.Held() && string(e.Value) != key {
						t.Errorf("%s has the value %q", key, e.Value)
					}
				}
				if r.IntN(100) == 0 {
					tab.page("", 10, "1")
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(9, 9))
	for range 20_000 {
		key := strconv.Itoa(r.IntN(2 * maxKeys))
		tab.Put(key, held(key))
		if keys, _, _ := tab.usage(); keys > maxKeys {
			t.Fatalf("%d keys", keys)
		}
	}
	stop.Store(true)
	wg.Wait()
	total := 0
	for i := range tab.shards {
		s := &tab.shards[i]
		used := tab.used.Load() + 1
		for n := s.copies.next; n != &s.copies; n = n.next {
			if n.used >= used || s.nodes[n.key] != n {
				t.Fatalf("shard %d is not in the order of use", i)
			}
			used = n.used
			total++
		}
	}
	if total != maxKeys {
		t.Errorf("the lists have %d keys, want %d", total, maxKeys)
	}
}

func first(e protocol.Entry, _ bool) protocol.Entry { return e }

// TestTableOverhead measures what an entry costs besides key and value.
func TestTableOverhead(t *testing.T) {
	memory := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for _, n := range []int{70_000, 100_000, 150_000} {
		tab := newTable(1<<30, 1<<40, nil)
		before := memory()
		for i := range n {
			tab.Put(fmt.Sprintf("key/%012d", i), protocol.Entry{Term: 1, Expire: 1})
		}
		each := float64(memory()-before)/float64(n) - 16
		runtime.KeepAlive(tab)
		t.Logf("%d entries: %.0f bytes of overhead each", n, each)
		if each > entryOverhead {
			t.Errorf("%d entries cost %.0f bytes each besides key and value; %d are counted", n, each, entryOverhead)
		}
	}
}

func BenchmarkTableHit(b *testing.B) {
	tab := newTable(1<<20, 1<<40, nil)
	keys := make([][]byte, 100_000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key/%012d", i)
		tab.Put(string(keys[i]), held("value"))
	}
	for _, hot := range []int{1, 100, len(keys)} {
		b.Run(fmt.Sprintf("keys=%d", hot), func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				i := rand.IntN(hot)
				for pb.Next() {
					if i++; i >= hot {
						i = 0
					}
					if _, ok := tab.useCopy(keys[i], 1); !ok {
						b.Error("missed")
					}
				}
			})
		})
	}
}

func BenchmarkTablePut(b *testing.B) {
	tab := newTable(10_000, 1<<40, nil)
	e := held("value")
	i := 0
	for b.Loop() {
		tab.Put(strconv.Itoa(i), e) // each evicts one
		i++
	}
}

func BenchmarkTablePage(b *testing.B) {
	tab := newTable(1<<20, 1<<40, nil)
	for i := range 100_000 {
		tab.Put(fmt.Sprintf("key/%012d", i), held("value"))
	}
	for b.Loop() {
		tab.page("", 100, "")
	}
}

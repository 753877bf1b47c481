package monitortest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func resolveTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"resolve/learns, and knows again":           testLearn,
		"resolve/fixed, unknown, removed":           testUnlearned,
		"resolve/as many as it may":                 testFull,
		"resolve/names that cannot be":              testBadNames,
		"resolve/hostile text is only data":         testHostileNames,
		"resolve/twice in a call":                   testResolveTwice,
		"resolve/none, a thousand, too many":        testResolveMany,
		"resolve/ids are not used again":            testNewIDs,
		"D11 resolve/at once by many: none doubled": testResolveRace,
	}
}

func testLearn(b *bench) {
	fast := each("fast")
	fast.SenderClock = true
	b.configure(each("e"), fast)
	one := b.resolve("e", "a", "b")
	two, err := b.other().ResolveSources(b.ctx, []monitor.SourceRef{{Check: "fast", Source: "a"}, {Check: "e", Source: "b"}, {Check: "e", Source: "a"}})
	if err != nil {
		b.Fatal(err)
	}
	if one[0] == one[1] || two[0].ID == 0 || two[0].ID == one[0] || two[1].ID != one[1] || two[2].ID != one[0] {
		b.Errorf("ids %v, then %+v by another handle", one, two)
	}
	if !two[0].SenderClock || two[1].SenderClock {
		b.Errorf("SenderClock is not that of the event: %+v", two)
	}
	if s := b.source("e", "a"); s.Declared || s.State != monitor.Up || !s.Last.IsZero() || s.Beats != 0 {
		b.Errorf("a source that was learned is %+v", s)
	}
}

func testUnlearned(b *bench) {
	fixed := each("fixed")
	fixed.Fixed = true
	b.configure(each("e"), each("gone"), fixed)
	b.resolve("gone", "a")
	if _, err := b.Declare(b.ctx, []monitor.Declaration{{Check: "fixed", Source: "declared"}}); err != nil {
		b.Fatal(err)
	}
	b.configure(each("e"), fixed)
	got := b.resolved(
		monitor.SourceRef{Check: "fixed", Source: "stranger"}, monitor.SourceRef{Check: "unheard of", Source: "a"},
		monitor.SourceRef{Check: "gone", Source: "a"}, monitor.SourceRef{Check: "gone", Source: "b"},
		monitor.SourceRef{Check: "E", Source: "a"}, monitor.SourceRef{Check: "fixed", Source: "declared"},
	)
	for i, want := range []bool{false, false, false, false, false, true} {
		if (got[i].ID != 0) != want {
			b.Errorf("source %d of the list: %+v, want known %v", i, got[i], want)
		}
	}
	if all, err := b.Sources(b.ctx, monitor.SourceQuery{Check: "fixed"}); err != nil || len(all) != 1 {
		b.Errorf("sources of the fixed event: %+v, %v", all, err)
	}
}

// testFull: a check learns as many sources as it may, and those that it knows and those that are declared are known.
func testFull(b *bench) {
	few := each("few")
	few.MaxLearned = 3
	b.configure(few, each("e"))
	b.resolve("few", "a")
	b.resolve("few", "b")
	got := b.resolved(monitor.SourceRef{Check: "few", Source: "c"}, monitor.SourceRef{Check: "few", Source: "d"}, monitor.SourceRef{Check: "few", Source: "a"},
		monitor.SourceRef{Check: "e", Source: "d"}, monitor.SourceRef{Check: "unheard of", Source: "d"})
	for i, want := range []bool{true, false, true, true, false} {
		if (got[i].ID != 0) != want || got[i].Full != (i == 1) {
			b.Errorf("source %d of the list: %+v, want known %v", i, got[i], want)
		}
	}
	if _, err := b.Declare(b.ctx, []monitor.Declaration{{Check: "few", Source: "declared"}}); err != nil {
		b.Fatal(err)
	}
	got = b.resolved(monitor.SourceRef{Check: "few", Source: "declared"}, monitor.SourceRef{Check: "few", Source: "d"})
	if got[0].ID == 0 || got[1].ID != 0 || !got[1].Full {
		b.Errorf("after one was declared: %+v", got)
	}
	few.MaxLearned = 5
	b.configure(few, each("e"))
	if got = b.resolved(monitor.SourceRef{Check: "few", Source: "d"}); got[0].ID == 0 || got[0].Full {
		b.Errorf("when there is room: %+v", got)
	}
}

// testBadNames: one name that cannot be must not hold up those that came with it.
func testBadNames(b *bench) {
	b.configure(each("e"))
	bad := []string{"", "a\x00b", "\xff\xfe", strings.Repeat("x", monitor.MaxName+1), " a", "a\n", "a\u200bb\x07"}
	refs := []monitor.SourceRef{{Check: "e", Source: "good"}, {Check: "e\x00", Source: "a"}, {Check: "\xff", Source: "a"}, {}}
	for _, name := range bad {
		refs = append(refs, monitor.SourceRef{Check: "e", Source: name})
	}
	for i, r := range b.resolved(refs...) {
		if (r.ID != 0) != (i == 0) {
			b.Errorf("%q: %+v", refs[i], r)
		}
	}
}

// hostileNames are names that are good, if hard to keep apart or to quote.
func hostileNames() []string {
	return []string{
		"a", "A", "ä", "a\u0308", "'; DROP TABLE monitor_source; --", `"`, `\`, "%", "_", "$1", "{{.}}", "${HOME}", "NULL", "null",
		"0", "00", "1e3", "true", "[]", "{}", `{"a":1}`, "<script>", "a/b", "a//b", "/", ",", "a,b", "=", "?", "*", "日本語", "🦆",
		strings.Repeat("é", monitor.MaxName/2), "event/source", "a b",
	}
}

func testHostileNames(b *bench) {
	var events []monitor.Check
	for _, name := range hostileNames() {
		events = append(events, each(name))
	}
	b.configure(events...)
	var refs []monitor.SourceRef
	for _, event := range hostileNames() {
		for _, source := range hostileNames()[:12] {
			refs = append(refs, monitor.SourceRef{Check: event, Source: source})
		}
	}
	got, seen := b.resolved(refs...), map[int64]monitor.SourceRef{}
	for i, r := range got {
		if old, twice := seen[r.ID]; twice || r.ID == 0 {
			b.Fatalf("%q has id %d, as %q has", refs[i], r.ID, old)
		}
		seen[r.ID] = refs[i]
	}
	for i, r := range b.resolved(refs...) {
		if r.ID != got[i].ID {
			b.Errorf("%q: %d, then %d", refs[i], got[i].ID, r.ID)
		}
	}
	for _, ref := range refs[:40] {
		if s := b.source(ref.Check, ref.Source); s.Check != ref.Check || s.Source != ref.Source {
			b.Errorf("%q is shown as %q/%q", ref, s.Check, s.Source)
		}
	}
}

func testResolveTwice(b *bench) {
	b.configure(each("e"))
	got := b.resolved(monitor.SourceRef{Check: "e", Source: "b"}, monitor.SourceRef{Check: "e", Source: "a"}, monitor.SourceRef{Check: "e", Source: "b"})
	if got[0].ID == 0 || got[0] != got[2] || got[1].ID == got[0].ID || got[1].ID == 0 {
		b.Errorf("b, a, b: %+v", got)
	}
}

func testResolveMany(b *bench) {
	b.configure(each("e"))
	if got := b.resolved(); len(got) != 0 {
		b.Errorf("none: %+v", got)
	}
	names := make([]string, monitor.MaxSources)
	for i := range names {
		names[i] = fmt.Sprintf("s-%d", (i*7919)%len(names))
	}
	first := b.resolve("e", names...)
	slices.Reverse(names)
	again := b.resolve("e", names...)
	slices.Reverse(again)
	if !slices.Equal(first, again) {
		b.Error("a thousand sources have other ids the second time")
	}
	if _, err := b.ResolveSources(b.ctx, make([]monitor.SourceRef, monitor.MaxSources+1)); !errors.Is(err, lease.ErrInvalid) {
		b.Errorf("more than MaxSources: %v", err)
	}
}

func testNewIDs(b *bench) {
	ids := b.ready("a", "b", "c")
	b.configure(each("other"))
	b.forgetAll()
	b.configure(each("e"), each("other"))
	again := b.resolve("e", "a", "b", "c", "d")
	for _, id := range again {
		if slices.Contains(ids, id) {
			b.Errorf("id %d is used again: %v, then %v", id, ids, again)
		}
	}
	if out := b.stamp(monitor.HeartbeatUpdate{Source: ids[0]}); !slices.Equal(out.Unknown, ids[:1]) {
		b.Errorf("a beat of a forgotten source: %+v", out)
	}
}

// testResolveRace: the original counted sources in one transaction and numbered
// them in another.
func testResolveRace(b *bench) {
	b.configure(each("e"))
	const many, names = 8, 60
	handles := []monitor.Store{b.Store, b.other()}
	var mu sync.Mutex
	found := map[string]map[int64]bool{}
	var g sync.WaitGroup
	for i := range many {
		g.Go(func() {
			for round := range names / 4 {
				var refs []monitor.SourceRef
				for k := range 10 { // each meets the others in another order
					refs = append(refs, monitor.SourceRef{Check: "e", Source: fmt.Sprint((round*4 + k*(1+2*(i%2)) + 59*(i%3)) % names)})
				}
				got, err := handles[i%2].ResolveSources(b.ctx, refs)
				if err != nil {
					b.Errorf("Resolve: %v", err)
					return
				}
				mu.Lock()
				for k, r := range got {
					if found[refs[k].Source] == nil {
						found[refs[k].Source] = map[int64]bool{}
					}
					found[refs[k].Source][r.ID] = true
				}
				mu.Unlock()
			}
		})
	}
	g.Wait()
	owner := map[int64]string{}
	for name, ids := range found {
		for id := range ids {
			if len(ids) != 1 || id == 0 || owner[id] != "" {
				b.Errorf("source %s has ids %v (also of %q)", name, ids, owner[id])
			}
			owner[id] = name
		}
	}
	if all, err := b.Sources(b.ctx, monitor.SourceQuery{Check: "e"}); err != nil || len(all) != len(found) {
		b.Errorf("%d sources were learned, %d are there, %v", len(found), len(all), err)
	}
}

// forgetAll forgets the sources of removed events.
func (b *bench) forgetAll() {
	b.Helper()
	for range 100 {
		l, err := b.Sweep(b.ctx, wideGap, monitor.MaxSources)
		if err != nil {
			b.Fatalf("Sweep: %v", err)
		}
		var changes []monitor.SourceChange
		for _, c := range l.Candidates {
			changes = append(changes, b.change(c, monitor.Forget))
		}
		if len(changes) == 0 {
			return
		}
		b.apply(changes...)
	}
	b.Fatal("Sweep brings sources of removed events for ever")
}

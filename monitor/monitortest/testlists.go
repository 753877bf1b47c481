package monitortest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func listTests() map[string]func(*bench) {
	return map[string]func(*bench){
		"sources/in pages":           testSourcePages,
		"sources/filters":            testSourceFilters,
		"sources/none":               testNoSources,
		"alarms/in pages":            testAlarmPages,
		"alarms/raised at one time":  testAlarmTies,
		"alarms/filters":             testAlarmFilters,
		"alarms/hostile ids are ids": testHostileIDs,
	}
}

func (b *bench) listSources(q monitor.SourceQuery) (names []string) {
	b.Helper()
	got, err := b.Sources(b.ctx, q)
	if err != nil {
		b.Fatalf("Sources(%+v): %v", q, err)
	}
	for _, s := range got {
		names = append(names, s.Check+"/"+s.Source)
	}
	return names
}

func (b *bench) listAlarms(q monitor.AlarmQuery) (ids []string) {
	b.Helper()
	got, err := b.Alarms(b.ctx, q)
	if err != nil {
		b.Fatalf("Alarms(%+v): %v", q, err)
	}
	for _, a := range got {
		ids = append(ids, a.ID)
	}
	return ids
}

func testSourcePages(b *bench) {
	b.configure(each("b"), each("A"), each("a b"))
	var want []string
	for _, event := range []string{"A", "a b", "b"} { // in the order of bytes
		names := []string{"10", "9", "Z", "_", "a", "a/b", "ä"}
		for _, name := range names {
			want = append(want, event+"/"+name)
		}
		slices.Reverse(names)
		b.resolve(event, names...)
	}
	if got := b.listSources(monitor.SourceQuery{}); !slices.Equal(got, want) {
		b.Fatalf("all: %q, want %q", got, want)
	}
	for _, limit := range []int{1, 3, 20, 21, 1000} {
		var got []string
		q := monitor.SourceQuery{Limit: limit}
		for range len(want) + 1 {
			page, err := b.Sources(b.ctx, q)
			if err != nil || len(page) > limit {
				b.Fatalf("%d of %d: %v", len(page), limit, err)
			}
			if len(page) == 0 {
				break
			}
			for _, s := range page {
				got = append(got, s.Check+"/"+s.Source)
			}
			q.AfterCheck, q.AfterSource = page[len(page)-1].Check, page[len(page)-1].Source
		}
		if !slices.Equal(got, want) {
			b.Errorf("in pages of %d: %q, want %q", limit, got, want)
		}
	}
	if got := b.listSources(monitor.SourceQuery{Check: "a b", AfterCheck: "a b", AfterSource: "_", Limit: 2}); !slices.Equal(got, []string{"a b/a", "a b/a/b"}) {
		b.Errorf("a page of one event: %q", got)
	}
}

func testSourceFilters(b *bench) {
	ids := b.ready("up", "down", "paused", "retired")
	b.onset(ids[1])
	b.act(monitor.Action{Type: monitor.ActionPause, Check: "e", Source: "paused", Who: "ops"})
	b.apply(b.change(b.candidate(ids[3]), monitor.Retire))
	b.configure(each("e"), each("f"))
	declared := []monitor.Declaration{
		{Check: "f", Source: "x", Labels: map[string]string{"site": "7", "rack": "a"}}, {Check: "f", Source: "y", Labels: map[string]string{"site": "70"}},
		{Check: "f", Source: "z", Labels: map[string]string{"place": "7", "odd '\"\\": "'; --%"}},
	}
	if _, err := b.Declare(b.ctx, declared); err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		q    monitor.SourceQuery
		want []string
	}{
		{monitor.SourceQuery{State: monitor.Up}, []string{"e/up", "f/x", "f/y", "f/z"}},
		{monitor.SourceQuery{State: monitor.Down}, []string{"e/down"}},
		{monitor.SourceQuery{State: monitor.Paused}, []string{"e/paused"}},
		{monitor.SourceQuery{State: monitor.Retired}, []string{"e/retired"}},
		{monitor.SourceQuery{State: monitor.Up, Check: "f"}, []string{"f/x", "f/y", "f/z"}},
		{monitor.SourceQuery{State: monitor.Up, Check: "f", AfterCheck: "f", AfterSource: "x", Limit: 1}, []string{"f/y"}},
		{monitor.SourceQuery{Check: "f", Source: "y"}, []string{"f/y"}},
		{monitor.SourceQuery{Source: "y"}, []string{"f/y"}},
		{monitor.SourceQuery{Check: "e", Source: "y"}, nil},
		{monitor.SourceQuery{Check: "F"}, nil},
		{monitor.SourceQuery{Label: "site", Value: "7"}, []string{"f/x"}},
		{monitor.SourceQuery{Label: "site", Value: "7", Check: "e"}, nil},
		{monitor.SourceQuery{Label: "odd '\"\\", Value: "'; --%"}, []string{"f/z"}},
		{monitor.SourceQuery{Label: "site", Value: "%"}, nil},
		{monitor.SourceQuery{Label: "rack", Value: ""}, nil},
	} {
		if got := b.listSources(c.q); !slices.Equal(got, c.want) {
			b.Errorf("%+v: %q, want %q", c.q, got, c.want)
		}
	}
}

func testNoSources(b *bench) {
	for _, q := range []monitor.SourceQuery{{}, {Check: "'; --"}, {Source: "\x00"}, {Label: "\xff", Value: "\x00"}, {AfterCheck: "\x00\xff", AfterSource: "x"}} {
		if got, err := b.Sources(b.ctx, q); len(got) != 0 || err != nil && strings.Contains(err.Error(), "SQL") {
			b.Errorf("%+v: %+v, %v", q, got, err)
		}
	}
}

func testAlarmPages(b *bench) {
	var names []string
	for i := range 7 {
		names = append(names, fmt.Sprint("s", i))
	}
	ids := b.ready(names...)
	var want []string
	for _, id := range ids {
		want = append(want, b.onset(id))
		b.step(time.Minute)
	}
	slices.Reverse(want) // the newest first
	if got := b.listAlarms(monitor.AlarmQuery{}); !slices.Equal(got, want) {
		b.Fatalf("all: %q, want %q", got, want)
	}
	b.wantAlarmPages(want, 1, 3, 7, 100)
}

// wantAlarmPages reads all alarms in pages of these limits.
func (b *bench) wantAlarmPages(want []string, limits ...int) {
	b.Helper()
	for _, limit := range limits {
		var got []string
		q := monitor.AlarmQuery{Limit: limit}
		for range len(want) + 1 {
			page, err := b.Alarms(b.ctx, q)
			if err != nil || len(page) > limit {
				b.Fatalf("%d of %d: %v", len(page), limit, err)
			}
			if len(page) == 0 {
				break
			}
			for _, a := range page {
				got = append(got, a.ID)
			}
			q.Before, q.BeforeID = page[len(page)-1].Raised, page[len(page)-1].ID
		}
		if !slices.Equal(got, want) {
			b.Errorf("in pages of %d: %q, want %q", limit, got, want)
		}
	}
}

func testAlarmTies(b *bench) {
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprint("s", i))
	}
	b.ready(names...)
	var changes []monitor.SourceChange
	for _, c := range b.look().Candidates {
		changes = append(changes, b.change(c, monitor.Onset))
	}
	b.apply(changes...)
	all := b.listAlarms(monitor.AlarmQuery{})
	if len(all) != len(names) {
		b.Fatalf("%d alarms, want %d", len(all), len(names))
	}
	b.wantAlarmPages(all, 1, 7)
}

func testAlarmFilters(b *bench) {
	ids := b.ready("a", "b", "c")
	a, other := b.onset(ids[0]), b.onset(ids[1])
	held := b.hold("e/7", ids[2])
	group := lease.NewID()
	b.mustReport("e/7", group, held...)
	b.abate(ids[0])
	sorted := func(ids ...string) []string { return slices.Sorted(slices.Values(ids)) }
	for _, c := range []struct {
		q    monitor.AlarmQuery
		want []string
	}{
		{monitor.AlarmQuery{}, sorted(a, other, held[0], group)},
		{monitor.AlarmQuery{Check: "e"}, sorted(a, other, held[0], group)},
		{monitor.AlarmQuery{Check: "f"}, nil},
		{monitor.AlarmQuery{Check: "e", Source: "a"}, []string{a}},
		{monitor.AlarmQuery{Source: "b"}, []string{other}},
		{monitor.AlarmQuery{Standing: true}, sorted(other, held[0], group)},
		{monitor.AlarmQuery{Standing: true, Source: "a"}, nil},
		{monitor.AlarmQuery{ID: a}, []string{a}},
		{monitor.AlarmQuery{ID: a, Standing: true}, nil},
		{monitor.AlarmQuery{Before: b.now().Add(-limit)}, nil},
	} {
		if got := sorted(b.listAlarms(c.q)...); !slices.Equal(got, c.want) {
			b.Errorf("%+v: %q, want %q", c.q, got, c.want)
		}
	}
}

func testHostileIDs(b *bench) {
	for _, id := range append(hostileNames(), "\x00", "\xff") {
		if got, err := b.Alarms(b.ctx, monitor.AlarmQuery{ID: id}); len(got) != 0 || err != nil && strings.Contains(err.Error(), "syntax") {
			b.Errorf("%q: %+v, %v", id, got, err)
		}
	}
}

package web_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/web/webtest"
)

// testMany: a page shows one thing, and stays small with very many of them, of which a filter finds each.
func testMany(t *testing.T, b *webtest.Browser) {
	sizes := []int{150} // more than the state brings
	if proving {
		sizes = []int{1, 10_000}
	}
	for _, many := range sizes {
		t.Run(fmt.Sprint(many), func(t *testing.T) {
			s := newStage(t)
			s.fillWith(many)
			p := b.Page(t, 390, 900, "light")
			p.Open(s.url(""))
			live(p)
			p.Until(`document.querySelectorAll('#overview-held > li').length === 6`)
			check(t, p, "the overview")
			for _, list := range []struct{ page, list, filter string }{
				{"roles", "#roles-list", "#roles-filter"}, {"jobs", "#jobs-list", "#jobs-filter"}, {"shards", "#shards-list", "#shards-filter"},
				{"queues", "#queues-list", "#queues-filter"}, {"instances", "#instances-list", "#instances-filter"},
				{"monitor", "#checks-list", "#checks-filter"}, {"monitor", "#sources-list", "#sources-text"},
			} {
				p.Eval(fmt.Sprintf(`{ location.hash = '#/%s'; }`, list.page), nil)
				rows := fmt.Sprintf(`[...document.querySelectorAll('%s > li')]`, list.list)
				p.Until(fmt.Sprintf(`document.body.dataset.page === '%s' && %s.length >= %d && %s.length <= 101`, list.page, rows, min(many, 25), rows))
				if many > 1 {
					last := fmt.Sprintf("thing-%05d", many-1)
					p.Fill(list.filter, "G-"+last[len("thing-"):])
					p.Until(fmt.Sprintf(`%s.length > 0 && %s.every((r) => r.textContent.includes('%s'))`, rows, rows, last))
				}
				var all int
				p.Eval(`document.querySelectorAll('main *').length`, &all)
				if all > 12_000 {
					t.Errorf("%s has %d elements", list.page, all)
				}
				check(t, p, list.list)
				if many > 1 {
					p.Fill(list.filter, "")
				}
			}
			if many == 1 {
				return
			}
			// Without a filter, pages lead on and back.
			p.Eval(`{ location.hash = '#/roles'; }`, nil)
			p.Until(`document.querySelectorAll('#roles-list > li').length === 25 && document.querySelector('#roles-list').textContent.includes('thing-00000')`)
			p.Click("#roles-more", "")
			p.Until(`document.querySelector('#roles-list').textContent.includes('thing-00025') && document.querySelector('#roles-summary').textContent.includes('page 2')`)
			p.Click("#roles-back", "")
			p.Until(`document.querySelector('#roles-list').textContent.includes('thing-00000')`)
			p.Shot("many-roles")
			// The sources are of the last check, which the state leaves out, and which is paused.
			p.Eval(`{ location.hash = '#/monitor'; }`, nil)
			p.Until(`[...document.querySelectorAll('#sources-list .left')].some((e) => e.textContent === 'its check is paused')`)
			// A text is looked for in the newest events, and further back when somebody asks for that.
			p.Eval(`{ location.hash = '#/history/about/needle/'; }`, nil)
			p.Until(`document.querySelector('#history-empty').checkVisibility() && document.querySelector('#history-empty').textContent.startsWith('No such events back to ')`)
			p.Click("#history-older", "")
			p.Until(`document.querySelectorAll('#history-list > li').length === 1 && document.querySelector('#history-list').textContent.includes('needle/1')`)
			check(t, p, "the history of a text")
			for _, part := range []string{"queue", "batch"} { // batch in addresses of earlier versions
				p.Eval(`{ location.hash = '#/history/`+part+`/needle/1'; }`, nil)
				p.Until(`document.querySelectorAll('#history-list > li').length === 1 && document.querySelector('#history-list').textContent.includes('needle/1') && document.querySelector('#history-part').value === 'queue'`)
				p.Eval(`{ location.hash = '#/history'; }`, nil)
				p.Until(`document.querySelectorAll('#history-list > li').length > 1`)
			}
			// A link leads to one that is on none of the pages.
			p.Eval(`{ location.hash = '#/roles/thing-00140'; }`, nil)
			p.Until(`document.activeElement.classList.contains('sought') && document.activeElement.textContent.includes('thing-00140')`)
		})
	}
}

// testRates: how fast a count grows is measured from reading to reading, not from state to state.
func testRates(t *testing.T, b *webtest.Browser) {
	p := b.Page(t, 1440, 900, "light")
	p.Open(newStage(t).url("#/queues"))
	live(p)
	// A rate is of the last ten seconds, or since the reading before. It starts again with a count that has fallen, with a clock that
	// was set back, and after a silence.
	var rates []any
	p.Eval(`import('/dom.js').then(({ meter }) => {
		const rate = meter();
		return [[0, 0], [50, 1], [1000, 2], [1000, 20], [1000, 21], [7, 22], [84, 99], [99, 98], [99, 400]].map(([n, seconds]) => rate(n, 1000 * seconds));
	})`, &rates)
	if got := fmt.Sprint(rates); got != "[<nil> 50 500 0 0 <nil> 1 <nil> <nil>]" {
		t.Errorf("rates %s", got)
	}
	// States that come from one reading of the queues show one rate.
	var shown []string
	p.Eval(`import('/queues.js').then(({ update }) => [[0, 0], [0, 0], [100, 10], [100, 10], [220, 20]].map(([done, seconds]) => {
		update({ total: 1, at: new Date(1000 * seconds).toISOString(), list: [{ queue: 'metered', depth: 1, done, delayed: 0, blocked: 0, dead_letters: 0, in_flight: 0, pending: 0, holders: [] }] });
		return document.querySelectorAll('#queues-list .figures dd')[1].textContent;
	}))`, &shown)
	if got := fmt.Sprint(shown); got != "[– – 10 /s 10 /s 12 /s]" {
		t.Errorf("delivered %s", got)
	}
}

const mostOfMemory = 1000

// fillWith puts so many of everything there, and of queues, shards, sessions and checks at most mostOfMemory.
func (s *stage) fillWith(many int) {
	s.t.Helper()
	ctx := s.t.Context()
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	holder, checkOf := s.session("holder"), fmt.Sprintf("thing-%05d", many-1)
	var checks []monitor.Check
	var sources []monitor.SourceRef
	for n := range many {
		name := fmt.Sprintf("thing-%05d", n)
		s.hold(lease.ID{Space: elect.Space, Key: name}, holder)
		if n >= many-mostOfMemory { // the store in memory takes longer for each of these, the more there are
			must(s.store.QueueAdmin().CreateQueue(ctx, name))
			s.shard(name, 10*n, true)
			s.session(name)
			checks = append(checks, monitor.Check{Name: name, Interval: time.Hour, Paused: n == many-1})
		}
		_, err := s.store.Jobs().Change(ctx, name, job.Define(name, job.Definition{Schedule: "@yearly"}))
		must(err)
		sources = append(sources, monitor.SourceRef{Check: checkOf, Source: name})
	}
	_, err := s.table.Configure(ctx, monitor.Configuration{Checks: checks, Origin: "test"})
	must(err)
	for len(sources) > 0 {
		n := min(len(sources), monitor.MaxSources)
		_, err := s.table.ResolveSources(ctx, sources[:n])
		must(err)
		sources = sources[n:]
	}
	must(s.store.Append(ctx, history.Event{Part: "batch", Subject: "needle/1", Reason: "blocked"}))
	for range history.MaxRead {
		must(s.store.Append(ctx, history.Event{Part: "batch", Subject: "hay/1", Reason: "blocked"}))
	}
}

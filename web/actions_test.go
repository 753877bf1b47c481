package web_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/web/webtest"
)

// act confirms what is asked, signed by alice, and waits for the result.
func act(t *testing.T, p *webtest.Page, said string) {
	t.Helper()
	p.Until(`document.querySelector('#act').open`)
	p.Fill("#act-by", "alice")
	p.Eval(`{ document.querySelector('#said').hidden = true; }`, nil)
	p.Click("#act-ok", "")
	p.Until(fmt.Sprintf(`!document.querySelector('#said').hidden && document.querySelector('#said').textContent.includes(%q)`, said))
}

func testActions(t *testing.T, b *webtest.Browser) {
	s := newStage(t)
	s.fill()
	p := b.Page(t, 1440, 900, "light")
	p.Open(s.url("#/roles"))
	live(p)

	p.Click(`[aria-label="Ask the primary of billing to resign"]`, "")
	p.Shot("act-resign")
	act(t, p, "to give up billing")
	p.Eval(`{ location.hash = '#/history/role/billing'; }`, nil)
	p.Until(`document.querySelector('#history-list').textContent.includes('alice')`)

	p.Eval(`{ location.hash = '#/roles'; }`, nil)
	p.Click(`[aria-label="Forget reports"]`, "")
	act(t, p, "Forgot reports")

	p.Eval(`{ location.hash = '#/queues'; }`, nil)
	p.Click(`[aria-label="Retry the message that blocks account-7"]`, "")
	p.Until(`document.querySelector('#act-by').value === 'alice' && document.querySelector('#act-text').textContent.includes('may have it')`)
	p.Click("#act-ok", "")
	p.Until(`document.querySelector('#act-error').textContent.includes('i_know')`) // what the target may have is not sent again for one click
	p.Click("#act-field-i_know", "")
	act(t, p, "Retried message account-7-0")
	p.Click(`[aria-label="Skip the message that blocks account-8"]`, "")
	act(t, p, "Skipped message account-8-0")
	p.Eval(`{ location.hash = '#/queues/orders/account-9/account-9-2'; }`, nil)
	p.Click("#browse .link", "account-9-2")
	p.Click("#browse-body button", "Cancel…")
	act(t, p, "Cancelled message account-9-2")
	for id, want := range map[string]string{"account-7-0": "queued", "account-8-0": "skipped", "account-9-2": "cancelled"} {
		var batch apitype.Message
		if s.do("GET", "/v1/queues/orders/messages/"+id, "", &batch); string(batch.State) != want && !(want == "skipped" && !batch.Blocks) {
			t.Errorf("%s is %s, want %s", id, batch.State, want)
		}
	}
	p.Click("#browse-close", "")
	retrySkipped(p)
	actOnMonitor(t, p)
	removeThings(t, s, p)
	actOnShards(t, s, p)
	actOnJobs(t, s, p)

	p.Eval(`{ location.hash = '#/cache'; }`, nil)
	p.Click(`[aria-label="Remove report"]`, "")
	p.Until(`document.querySelector('#act').open && document.querySelector('#act-who').hidden`)
	p.Click("#act-ok", "")
	if got := <-s.peer.removed; !strings.HasSuffix(got, "report") {
		t.Errorf("removed %q", got)
	}
	var found []string
	p.Eval(flaws, &found)
	for _, text := range append(found, p.Trouble()...) {
		if !strings.HasPrefix(text, "Failed to load resource") { // requests that were refused, as they should be
			t.Errorf("after everything: %s", text)
		}
	}
}

// retrySkipped: what the target may have is asked about, also after it was skipped or cancelled, whatever the words of its trail.
func retrySkipped(p *webtest.Page) {
	for action, mayHave := range map[string]bool{"skip": true, "cancel": true, "": false} {
		p.Eval(fmt.Sprintf(`import('/act.js').then((page) => page.askToAct('retry',
			{ queue: 'orders', key: 'k', id: 'm', state: 'failed', blocks: false, trail: [{ state: 'pending' }, { state: 'failed', action: %q, detail: 'words' }] }))`, action), nil)
		p.Until(fmt.Sprintf(`document.querySelector('#act').open && document.querySelector('#act-text').textContent.includes('may have it') === %t`, mayHave))
		p.Click("#act-cancel", "")
	}
}

// removeThings removes a queue with its messages, a source and a check.
func removeThings(t *testing.T, s *stage, p *webtest.Page) {
	t.Helper()
	s.do("POST", "/v1/queues", `{"queue":"spare"}`, nil)
	s.do("POST", "/v1/queues/spare/messages?key=k&id=m", "x", nil)
	p.Eval(`{ location.hash = '#/queues'; }`, nil)
	// The window tells of what the page knew when it was opened.
	p.Until(`document.querySelector('.queue:has([aria-label="Remove spare"]) dd').textContent === '1'`)
	p.Click(`[aria-label="Remove spare"]`, "")
	p.Until(`document.querySelector('#act-text').textContent.includes('1 message')`)
	p.Fill("#act-field-messages", "1")
	act(t, p, "Removed spare")
	s.do("PUT", "/v1/checks/spare", `{"interval_ms":60000}`, nil)
	s.do("POST", "/v1/sources", `{"sources":[{"check":"spare","source":"unused"}]}`, nil)
	p.Eval(`{ location.hash = '#/monitor'; }`, nil)
	p.Click("#sources-list .link", "unused")
	p.Click("#browse-body button", "Remove…")
	act(t, p, "Removed unused")
	p.Click(`[aria-label="Remove spare"]`, "")
	act(t, p, "Removed spare")
}

func actOnMonitor(t *testing.T, p *webtest.Page) {
	t.Helper()
	p.Eval(`{ location.hash = '#/monitor'; }`, nil)
	p.Click(`[aria-label="Acknowledge the alarm of web-2"]`, "")
	act(t, p, "Acknowledged the alarm of web-2")
	p.Click(`[aria-label="Pause web"]`, "")
	p.Fill("#act-field-note", "new disks")
	act(t, p, "Paused web")
	p.Click(`[aria-label="Resume web"]`, "")
	act(t, p, "Resumed web")
	p.Click("#sources-list .link", "db-1")
	p.Click("#browse-body button", "Pause…")
	p.Shot("act-pause")
	act(t, p, "Paused db-1")
	p.Click("#browse-body button", "Retire…")
	act(t, p, "Retired db-1")
	p.Click("#browse-close", "")
	p.Eval(`{ location.hash = '#/history/monitor/web/db-1'; }`, nil)
	p.Until(`(([...document.querySelectorAll('#history-list > li')].filter((e) => e.textContent.includes('alice'))).length === 2)`) // retired, once someone judges it
}

func actOnShards(t *testing.T, s *stage, p *webtest.Page) {
	t.Helper()
	p.Eval(`{ location.hash = '#/shards'; }`, nil)
	p.Click(`[aria-label="Pause orders"]`, "")
	p.Fill("#act-field-reason", "new rack")
	act(t, p, "Paused orders")
	p.Click(`[aria-label="Resume orders"]`, "")
	act(t, p, "Resumed orders")

	// No agent runs: what is asked for stays a request, which is withdrawn.
	for verb, shard := range map[string]string{"Switch over": "orders", "Fail over": "payments"} {
		p.Click(fmt.Sprintf(`[aria-label="%s %s"]`, verb, shard), "")
		p.Until(`document.querySelector('#act').open`)
		p.Fill("#act-by", "alice")
		p.Click("#act-ok", "")
		p.Until(fmt.Sprintf(`document.querySelector('#shards-list').rows.get(%q).shard.request.by.includes('alice')`, shard))
		p.Click("#act-cancel", "Close")
		p.Click("#shards-list button", "Cancel the request")
		p.Until(`document.querySelector('#act').open`)
		p.Click("#act-ok", "Cancel it")
		p.Until(fmt.Sprintf(`!document.querySelector('#shards-list').rows.get(%q).shard.request`, shard))
		var view apitype.Shard
		if s.do("GET", "/v1/shards/"+shard, "", &view); view.Request != nil {
			t.Errorf("%s: still asked for: %+v", shard, view.Request)
		}
	}
}

func actOnJobs(t *testing.T, s *stage, p *webtest.Page) {
	t.Helper()
	p.Eval(`{ location.hash = '#/jobs'; }`, nil)
	p.Click(`[aria-label="Pause backup"]`, "")
	act(t, p, "Paused backup")
	p.Click(`[aria-label="Resume backup"]`, "")
	act(t, p, "Resumed backup")
	p.Click(`[aria-label="Trigger backup once, now"]`, "")
	act(t, p, "Triggered backup")
	var view apitype.Job
	if s.do("GET", "/v1/jobs/backup", "", &view); len(view.Open) != 1 || !strings.Contains(view.Open[0].Trigger, "alice") || view.PausedBy != "" {
		t.Errorf("%+v", view)
	}
	p.Fill("#jobs-filter", "REPORT")
	p.Until(`document.querySelectorAll('#jobs-list > li').length === 1`)
	p.Until(`/^alarm since .*: overdue, not sent/.test(document.querySelector('#jobs-list .raised').textContent)`)

	// What a run has printed, and the day and the month.
	p.Eval(`{ location.hash = '#/jobs/backup'; }`, nil)
	p.Until(`document.querySelectorAll('#browse-body .day rect').length > 20 && document.querySelectorAll('#browse-body .month > li').length === 31`)
	p.Until(`document.querySelectorAll('#browse-body .day .bad').length === 1 && document.querySelectorAll('#browse-body .month .bad').length === 1`)
	p.Shot("job-1440")
	p.Click("#browse-body tr.bad .link", "")
	p.Until(`document.querySelector('#browse-body').textContent.includes('disk is full') && document.querySelector('#browse-body').textContent.includes('web-1')`)
	p.Click("#browse-close", "")
}

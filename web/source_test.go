package web_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/web/webtest"
)

// testSource: the window of a source shows its report, its badge, and lines to paste that a shell reads as they are meant,
// whatever name a sender has given to the source.
func testSource(t *testing.T, b *webtest.Browser) {
	s := newStage(t)
	const name = `it's $(touch /tmp/x) & "50%"; (*)~`
	s.expect("nightly backup", name)
	s.down("nightly backup", name)
	report := monitor.Report{Kind: monitor.ReportFail, Body: []byte("disk <b>full</b>\n" + strings.Repeat("x", 400))}
	if err := s.table.KeepReport(t.Context(), monitor.SourceRef{Check: "nightly backup", Source: name}, report); err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{1440, 390} {
		p := b.Page(t, width, 900, "light")
		p.Open(s.url("#/monitor"))
		live(p)
		p.Click("#sources-list .link", name)
		p.Until(`document.querySelectorAll('#browse-body pre').length === 3 && document.querySelector('#browse-body .badge img').naturalWidth > 20`)
		for _, theme := range []string{"light", "dark"} {
			p.Theme(theme)
			check(t, p, fmt.Sprintf("a source at %d in %s", width, theme))
			p.Shot(fmt.Sprintf("source-%d-%s", width, theme))
		}
		var pre []string
		p.Eval(`[...document.querySelectorAll('#browse-body pre')].map((e) => e.textContent)`, &pre)
		if !strings.HasPrefix(pre[0], "disk <b>full</b>") {
			t.Errorf("report: %q", pre[0])
		}
		// cron makes a % of \%, and systemd of %%, and $ of $$. What is left is read by a shell whose curl prints the URL.
		url := s.url("v1/ping/nightly%20backup/it%27s%20%24%28touch%20%2Ftmp%2Fx%29%20%26%20%2250%25%22%3B%20%28%2A%29%7E/7")
		cron := strings.ReplaceAll(strings.TrimPrefix(pre[1], "30 2 * * * "), `\%`, "%")
		_, unit, _ := strings.Cut(pre[2], "ExecStopPost=-/bin/sh -c '")
		unit = strings.NewReplacer("%%", "%", "$$", "$").Replace(strings.TrimSuffix(unit, "'"))
		for _, script := range []string{"JOB() { return 7; }\n" + cron, "EXIT_STATUS=7\n" + strings.Replace(unit, "exec ", "", 1)} {
			out, err := exec.CommandContext(t.Context(), "sh", "-c", "curl() { for last; do :; done; echo \"$last\"; }\n"+script).CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != url {
				t.Errorf("%s\nprints %s, %v; want %s", script, got, err, url)
			}
		}
		if strings.Contains(unit, "'") {
			t.Errorf("systemd ends the script at a quote: %s", unit)
		}
		// The badge of the page opens without a token.
		var badge string
		p.Eval(`document.querySelector('#browse-body .badge code').textContent`, &badge)
		p.Eval(fmt.Sprintf(`fetch(%q).then((r) => r.text())`, badge), &badge)
		if !strings.HasPrefix(badge, "<svg") {
			t.Errorf("badge: %s", badge)
		}
	}
}

// testDots: a browser takes the steps "." and ".." out of a path, and a request for the job ".." would be one for all jobs.
func testDots(t *testing.T, b *webtest.Browser) {
	s := newStage(t)
	p := b.Page(t, 1440, 900, "light")
	p.Open(s.url(""))
	live(p)
	for path, refused := range map[string]bool{
		"/v1/jobs/..": true, "/v1/jobs/./pause?by=x": true, "/v1/jobs/%2E%2e": true, "/v1/history?limit=1": false, "/v1/history?subject=a/../b": false,
	} {
		var said string
		p.Eval(fmt.Sprintf(`import('./stream.js').then((m) => m.ask(%q)).then(() => '', (err) => err.message)`, path), &said)
		if strings.Contains(said, "command line") != refused {
			t.Errorf("%s: %q", path, said)
		}
	}
}

package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/monitor"
)

// linksOf are the links of a rig's store.
func linksOf(t *testing.T, g *monitorRig) monitor.Links {
	t.Helper()
	s, err := g.table.Settings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return monitor.Links{Base: "http://127.0.0.1", Secret: s.Secret}
}

// TestAcknowledgeByLink: whoever has the link of an alarm may acknowledge it, but not by looking.
func TestAcknowledgeByLink(t *testing.T) {
	g := newMonitorRig(t, every("web"))
	g.down("web", "gone <b>")
	alarms, err := g.table.Alarms(t.Context(), monitor.AlarmQuery{Standing: true})
	if err != nil || len(alarms) != 1 {
		t.Fatalf("%+v, %v", alarms, err)
	}
	path := strings.TrimPrefix(linksOf(t, g).Acknowledge(alarms[0].ID), "http://127.0.0.1")
	acknowledged := func() string {
		t.Helper()
		var a apitype.Alarm
		g.do("GET", "/v1/alarms/"+alarms[0].ID, "").into(&a)
		return a.Acknowledged
	}
	page := g.do("GET", path, "")
	page.want(200, "")
	if !strings.Contains(page.Body, "<button>") || strings.Contains(page.Body, "<b>") || !strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") || acknowledged() != "" {
		t.Errorf("%s, acknowledged by %q", page.Body, acknowledged())
	}
	for _, wrong := range []string{path + "x", path[:len(path)-1], strings.Replace(path, alarms[0].ID, "other", 1)} {
		for _, method := range []string{"GET", "POST"} {
			g.do(method, wrong, "").want(404, "no_route")
		}
	}
	r := request(t.Context(), "POST", path, "by=Ann+Example")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	send(t, g.s, r).want(403, "cross_origin")
	for _, name := range []string{"J%C3%BCrgen+%3Cb%3E", "Ann+Tokens"} { // the form again, with what is wrong
		r = request(t.Context(), "POST", path, "by="+name)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		a := send(t, g.s, r)
		if a.Status != 400 || !strings.Contains(a.Body, "<button>") || strings.Contains(a.Body, "<b>") || !strings.Contains(a.Body, "ASCII") && !strings.Contains(a.Body, "leave token") || acknowledged() != "" {
			t.Errorf("by=%s: %d %s, acknowledged by %q", name, a.Status, a.Body, acknowledged())
		}
	}
	r = request(t.Context(), "POST", path, "by=Ann+Example")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	a := send(t, g.s, r)
	a.want(200, "")
	if by := acknowledged(); !strings.HasPrefix(by, "Ann Example by link") || !strings.Contains(a.Body, "Ann Example by link") {
		t.Errorf("acknowledged by %q: %s", by, a.Body)
	}
	g.do("POST", path, "").want(200, "") // once more, from another mail: the first name stays
	if by := acknowledged(); !strings.HasPrefix(by, "Ann") {
		t.Errorf("acknowledged by %q", by)
	}
	g.beat("web", "gone <b>", monitor.SignalSuccess)
	g.pass(time.Second)
	if body := g.do("GET", path, "").Body; strings.Contains(body, "<button>") {
		t.Errorf("of an alarm that has ended: %s", body)
	}
}

// TestPublicBadge: a badge can be shown to anyone, without a token, and tells of no other source.
func TestPublicBadge(t *testing.T) {
	g := newIntakeRig(t)
	const token = "Bearer " + apiToken
	g.ask(token, "POST", "/v1/sources", `{"sources":[{"check":"web","source":"w/1"},{"check":"web","source":"w2"}]}`).want(201, "")
	var shown apitype.SourceAlarms
	g.ask(token, "GET", "/v1/sources/web/w%2F1", "").into(&shown)
	a := g.ask("", "GET", shown.Badge, "")
	a.want(200, "")
	if got := texts(t, a.Body); len(got) != 2 || got[0] != "w/1" || a.Header.Get("Content-Type") != "image/svg+xml" || a.Header.Get("Cross-Origin-Resource-Policy") != "cross-origin" {
		t.Errorf("%q, %v", got, a.Header)
	}
	g.ask("", "GET", strings.Replace(shown.Badge, "w%2F1", "w2", 1), "").want(http.StatusNotFound, "no_route")
	g.ask("", "GET", strings.TrimSuffix(shown.Badge, ".svg")+"x.svg", "").want(http.StatusNotFound, "no_route")
	g.ask("", "GET", "/v1/sources/web/w2/badge.svg", "").want(http.StatusUnauthorized, "unauthorized")
}

package api

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// texts reads the texts of a picture, which must be whole XML of harmless elements.
func texts(t *testing.T, picture string) (out []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(picture))
	inText := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%v in %s", err, picture)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inText = token.Name.Local == "text"
			if !strings.Contains(" svg rect g text ", " "+token.Name.Local+" ") {
				t.Errorf("an element %s in %s", token.Name.Local, picture)
			}
			for _, a := range token.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || strings.Contains(a.Name.Local, "href") {
					t.Errorf("an attribute %s in %s", a.Name.Local, picture)
				}
			}
		case xml.CharData:
			if inText {
				out = append(out, string(token))
			}
		case xml.EndElement:
			inText = false
		}
	}
}

func TestBadge(t *testing.T) {
	g := newMonitorRig(t, every("web"))
	badge := func(source string) answer {
		t.Helper()
		a := g.do("GET", sourcePath("web", source)+"/badge.svg", "")
		a.want(200, "")
		return a
	}
	g.do("POST", "/v1/sources", `{"sources":[{"event":"web","source":"declared"}]}`).want(201, "")
	g.beat("web", "up", monitor.SignalSuccess)
	g.beat("web", "paused", monitor.SignalSuccess)
	g.beat("web", "late", monitor.SignalSuccess)
	g.down("web", "failed", "gone")
	g.do("POST", "/v1/sources/web/paused/pause", "").want(200, "")
	g.do("POST", "/v1/sources/web/gone/retire", "").want(200, "")
	g.pass(2 * time.Second)
	g.beat("web", "up", monitor.SignalSuccess)
	g.clock.pass(1500 * time.Millisecond)
	for source, want := range map[string]string{"up": "up", "declared": "not seen yet", "paused": "paused", "late": "late", "failed": "failed", "gone": "retired"} {
		a := badge(source)
		if got := texts(t, a.Body); len(got) != 2 || got[0] != source || got[1] != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
		if h := a.Header; h.Get("Content-Type") != "image/svg+xml" || h.Get("X-Content-Type-Options") != "nosniff" ||
			!strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("Cache-Control") != "no-store" {
			t.Errorf("headers %v", h)
		}
	}
	g.do("GET", "/v1/sources/web/nobody/badge.svg", "").want(404, "no_source")
	if got := texts(t, string(drawBadge(monitor.SourceRecord{Source: "x", State: monitor.Up}))); got[1] != "not seen yet" {
		t.Errorf("before its first beat: %q", got)
	}
}

func TestBadgeOfHostileNames(t *testing.T) {
	for _, name := range append(hostile, "\x00\x1b[31m", "\xff\xfe", "]]>", strings.Repeat("é", 300), "</text><script>x</script>") {
		got := texts(t, string(drawBadge(monitor.SourceRecord{Source: name, State: monitor.Up, Last: time.Now()})))
		if len(got) != 2 || len([]rune(got[0])) > maxBadgeText {
			t.Errorf("%q: %q", name, got)
		}
	}
}

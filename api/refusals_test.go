package api

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/monitor/intake"
)

// TestRefusalsAreLogged: requests that are refused are in the log, each reason once a minute with how many there were and whom
// the latest came from; what was sent as a token is not.
func TestRefusalsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		g := newTokenRig(t, Config{Token: configToken1, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		read := g.token("dashboard", 0, access.Read)
		lines := func() []string { return strings.Split(strings.TrimSpace(out.String()), "\n") }
		for range 3 {
			g.do("wrong-horse-battery", "GET", "/v1/roles", "").want(401, "unauthorized")
			g.do(read, "POST", "/v1/roles/x/resign", "{}").want(403, "missing_scope")
		}
		if all := lines(); len(all) != 2 || !strings.Contains(all[0], "why=unauthorized count=1 last_address=127.0.0.1") || !strings.Contains(all[1], "why=missing_scope count=1") || !strings.Contains(all[1], "token=dashboard") {
			t.Errorf("the log has\n%s", out.String())
		}
		time.Sleep(refusalsEvery)
		g.do("wrong-horse-battery", "DELETE", "/v1/cache/a/key", "").want(401, "unauthorized")
		if all := lines(); len(all) != 3 || !strings.Contains(all[2], "why=unauthorized count=3") || !strings.Contains(all[2], `route="DELETE /v1/cache/{key}"`) {
			t.Errorf("after a minute the log has\n%s", out.String())
		}
		if strings.Contains(out.String(), "wrong-horse") || strings.Contains(out.String(), read) {
			t.Errorf("a token is in the log:\n%s", out.String())
		}
		g.s.stop()
	})
}

// TestWrongKeysOfHeartbeats: guesses of tokens at /v1/beats are limited by address, counted and logged, and those who share the
// address and have a right one are not.
func TestWrongKeysOfHeartbeats(t *testing.T) {
	in, err := intake.NewHTTP(intake.HTTPConfig{
		Flow: nowhere{}, Reports: struct{ intake.ReportStore }{}, Authorize: MayIngest, TooManyWrong: TooManyWrongKeys, HasSentTooMany: HasSentTooManyWrongKeys,
	})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		g := newTokenRig(t, Config{
			Token: configToken1, Monitor: &Monitor{HTTP: in}, Logger: slog.New(slog.NewTextHandler(&out, nil)), Limits: Limits{Act: Rate{PerSecond: 0.01, Burst: 3}},
		})
		post := func(token string) answer {
			return g.do(token, "POST", "/v1/beats", `{"event":"e","source":"s"}`)
		}
		for i, want := range []int{401, 401, 401, 429, 429} {
			if a := post([]string{"wrong-horse-battery", ""}[i%2]); a.Status != want {
				t.Errorf("wrong key %d is answered %d %s, want %d", i, a.Status, a.Body, want)
			}
		}
		if a := post(configToken1); a.Status == 401 || a.Status == 429 {
			t.Errorf("a right one is answered %d", a.Status)
		}
		if n := strings.Count(out.String(), "requests refused"); n != 2 || !strings.Contains(out.String(), "POST /v1/beats") {
			t.Errorf("the log has\n%s", out.String())
		}
		if body := g.do(configToken1, "GET", "/metrics", "").Body; !strings.Contains(body, `understudy_http_limited_total{scope="wrong token"} 2`) {
			t.Error("guesses are not counted")
		}
		// There is no store here: it is not asked.
		if a := g.do("", "GET", "/ping/d1665499-e827-441f-bf13-8f15e8f4c0b9", ""); a.Status != 429 {
			t.Errorf("then a UUID is answered %d %s, want 429", a.Status, a.Body)
		}
		g.s.stop()
	})
}

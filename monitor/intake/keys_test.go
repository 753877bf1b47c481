package intake

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/internal/secret"
	"github.com/understudy-ha/understudy/lease"
)

const (
	anyKey    = "any-key-0123456789"
	backupKey = "backup-key-0123456789"
	postKey   = "post-key-0123456789"
)

func keys() []PingKey {
	return []PingKey{
		{Name: "any", Key: anyKey},
		{Name: "backups", Key: backupKey, Checks: []string{"backup", "nightly-*-eu*"}},
		{Name: "post", Key: postKey, PostOnly: true},
	}
}

// guarded is an API with the token "token".
func guarded(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer token" }

func TestKeys(t *testing.T) {
	for _, c := range []struct {
		name   string
		open   bool // the API has no token
		method string
		path   string
		header string // Authorization
		status int
	}{
		{"none", false, "GET", "/v1/ping/e/a", "", 401},
		{"bearer", false, "GET", "/v1/ping/e/a", "Bearer " + anyKey, 200},
		{"bearer in other letters", false, "GET", "/v1/ping/e/a", "bearer  " + anyKey, 200},
		{"query", false, "GET", "/v1/ping/e/a?key=" + anyKey, "", 200},
		{"path", false, "GET", "/v1/ping/key/" + anyKey + "/e/a", "", 200},
		{"path, with an end", false, "POST", "/v1/ping/key/" + anyKey + "/e/a/7", "", 200},
		{"the API's token", false, "GET", "/v1/ping/e/a", "Bearer token", 200},
		{"wrong", false, "GET", "/v1/ping/e/a", "Bearer wrong", 401},
		{"wrong in the path", false, "GET", "/v1/ping/key/wrong/e/a", "Bearer token", 401},
		{"half of it", false, "GET", "/v1/ping/e/a?key=" + anyKey[:10], "", 401},
		{"its events", false, "GET", "/v1/ping/backup/a?key=" + backupKey, "", 200},
		{"by a pattern", false, "GET", "/v1/ping/nightly-db-eu7/a?key=" + backupKey, "", 200},
		{"other events", false, "GET", "/v1/ping/nightly-db-us/a?key=" + backupKey, "", 403},
		{"unknown is not told apart for those", false, "GET", "/v1/ping/x/a?key=" + backupKey, "", 403},
		{"GET", false, "GET", "/v1/ping/e/a?key=" + postKey, "", 405},
		{"HEAD of what previews links", false, "HEAD", "/v1/ping/key/" + postKey + "/e/a", "", 405},
		{"POST", false, "POST", "/v1/ping/key/" + postKey + "/e/a", "", 200},
		{"beats", false, "POST", "/v1/beats", "Bearer " + anyKey, 200},
		{"beats for others", false, "POST", "/v1/beats", "Bearer " + backupKey, 403},
		{"beats of nobody", false, "POST", "/v1/beats", "", 401},
		{"events", false, "POST", "/eventListener/v7", "Bearer " + anyKey, 202},
		{"events by basic authentication", false, "POST", "/eventListener/v7", "Basic YW5uOmFueS1rZXktMDEyMzQ1Njc4OQ==", 202},
		{"events of nobody", false, "POST", "/eventListener/v7", "", 401},
		{"open", true, "GET", "/v1/ping/e/a", "", 200},
		{"open, with a key", true, "GET", "/v1/ping/x/a?key=" + backupKey, "", 403},
		{"open, with a wrong one", true, "GET", "/v1/ping/e/a?key=wrong", "", 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := HTTPConfig{Keys: keys(), Authorize: guarded}
				if c.open {
					config.Authorize = nil
				}
				r := newRig(t, config)
				body := `{"event":"e","source":"a"}`
				var w *httptest.ResponseRecorder
				if c.header == "" {
					w = r.do(c.method, c.path, body)
				} else {
					w = r.do(c.method, c.path, body, "Authorization", c.header)
				}
				if w.Code != c.status {
					t.Fatalf("%d %s, want %d", w.Code, w.Body, c.status)
				}
				if good := c.status < 300; good != (len(r.flow.taken()) == 1) {
					t.Errorf("%d beats were taken", len(r.flow.taken()))
				}
				if strings.Contains(w.Body.String(), "0123456789") {
					t.Errorf("the answer shows a key: %s", w.Body)
				}
				if c.status == 405 && w.Header().Get("Allow") != "POST" || c.status == 401 && w.Header().Get("WWW-Authenticate") == "" {
					t.Errorf("headers: %v", w.Header())
				}
			})
		})
	}
}

// TestWrongKeysAreSlow: guesses wait and are bounded; whoever has a key does not wait.
func TestWrongKeysAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, HTTPConfig{Keys: keys(), Authorize: guarded})
		statuses := make(chan int, denySlots+1)
		begun := time.Now()
		for range denySlots {
			go func() { statuses <- r.do("GET", "/v1/ping/e/a?key=guess", "").Code }()
		}
		synctest.Wait()
		if w := r.do("GET", "/v1/ping/e/a?key=guess", ""); w.Code != 429 || w.Header().Get("Retry-After") == "" {
			t.Errorf("one more than is bearable: %d", w.Code)
		}
		if w := r.do("GET", "/v1/ping/e/a?key="+anyKey, ""); w.Code != 200 || time.Since(begun) != 0 {
			t.Errorf("the right key: %d after %v", w.Code, time.Since(begun))
		}
		for range denySlots {
			if status := <-statuses; status != 401 {
				t.Errorf("a guess: %d", status)
			}
		}
		if time.Since(begun) != denyAfter {
			t.Errorf("guesses took %v", time.Since(begun))
		}
	})
}

// TestD19Keys: no text form shows a key, no error either.
func TestD19Keys(t *testing.T) {
	for _, k := range keys() {
		if s := fmt.Sprintf("%v %+v %#v", k, []PingKey{k}, &k); strings.Contains(s, string(k.Key)) {
			t.Errorf("%s", s)
		}
	}
	for _, k := range []PingKey{
		{Key: anyKey}, {Name: "n"}, {Name: "n", Key: "secret"}, {Name: "n", Key: secret.Text(strings.Repeat("secret", 50))}, {Name: "n", Key: "secret/secret/secret"},
		{Name: "n", Key: "secret secret secret"}, {Name: "n", Key: "secret-ü-secret-secret"}, {Name: "n", Key: anyKey, Checks: []string{""}},
	} {
		err := k.Validate()
		if !errors.Is(err, lease.ErrInvalid) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%#v: %v", k, err)
		}
	}
	twice := HTTPConfig{Flow: &flow{}, Keys: []PingKey{{Name: "a", Key: anyKey}, {Name: "b", Key: anyKey}}}
	named := HTTPConfig{Flow: &flow{}, Keys: []PingKey{{Name: "a", Key: anyKey}, {Name: "a", Key: backupKey}}}
	for _, c := range []HTTPConfig{twice, named, {}, {Flow: &flow{}, Timeout: -1}} {
		if _, err := NewHTTP(c); !errors.Is(err, lease.ErrInvalid) || strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%v", err)
		}
	}
}

package main

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// TestRequestIsTakenBack: what becomes of a switchover that has not ended within --wait is what the store says of the request, also
// where the shard as the server shows it is older than that.
func TestRequestIsTakenBack(t *testing.T) {
	const plan = `"epoch":7,"kind":"switchover","from":"aaaa","to":"bbbb","steps":[{"phase":"pausing","took_ms":5}]`
	for name, x := range map[string]struct {
		status          int
		body            string // of the request, once it was canceled
		exit            int
		failed, printed string
	}{
		"no agent started it": {http.StatusNotFound, `{"code":"not_found","detail":"unknown request"}`, exitFailed, "no agent started the switchover", ""},
		"it goes on":          {http.StatusOK, `{"state":"running","plan":{"phase":"promoting",` + plan + `}}`, exitFailed, "goes on, in phase promoting", "epoch 7: aaaa"},
		"it is done":          {http.StatusOK, `{"state":"done","plan":{"phase":"following",` + plan + `}}`, exitOK, "", "done in 5ms: the primary of s is bbbb"},
		"it was rolled back":  {http.StatusOK, `{"state":"failed","error":"b is too slow","plan":{"phase":"pausing",` + plan + `}}`, exitFailed, "b is too slow", "epoch 7: aaaa"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				canceled := false
				out, err := askForSwitchover(t, func(r *http.Request) (int, string) {
					switch {
					case r.Method == http.MethodDelete:
						canceled = true
						return http.StatusNoContent, ""
					case strings.Contains(r.URL.Path, "/requests/") && canceled:
						return x.status, x.body
					case strings.Contains(r.URL.Path, "/requests/"):
						return http.StatusOK, `{"state":"waiting"}`
					}
					return http.StatusOK, `{"shard":"s"}`
				})
				if code := exitCode(err); code != x.exit || err != nil && !strings.Contains(err.Error(), x.failed) || !strings.Contains(out, x.printed) {
					t.Errorf("exit code %d: %v, after:\n%s", code, err, out)
				}
				if err != nil && strings.Contains(err.Error(), "withdrawn") != (x.status == http.StatusNotFound) {
					t.Errorf("of what is not so: %v", err)
				}
			})
		})
	}
}

// TestRequestThatAnotherOperatorWithdraws: it is not carried out, and no error says that it may be.
func TestRequestThatAnotherOperatorWithdraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := askForSwitchover(t, func(r *http.Request) (int, string) {
			if strings.Contains(r.URL.Path, "/requests/") {
				return http.StatusNotFound, `{"code":"not_found","detail":"unknown request: it was withdrawn"}`
			}
			return http.StatusOK, `{"shard":"s"}`
		})
		if exitCode(err) != exitAbsent || !strings.Contains(err.Error(), "it was withdrawn") || strings.Contains(err.Error(), "may still be carried out") {
			t.Errorf("exit code %d: %v", exitCode(err), err)
		}
	})
}

// askForSwitchover asks an API for one of shard s that may take 3 s, and returns what is printed. answers gives those to all but the
// request itself.
func askForSwitchover(t *testing.T, answers func(r *http.Request) (status int, body string)) (printed string, err error) {
	c := inBubble(t, func(r *http.Request) (int, string, error) {
		if r.Method == http.MethodPost {
			return http.StatusAccepted, `{"request":"id"}`, nil
		}
		status, body := answers(r)
		return status, body, nil
	})
	var out bytes.Buffer
	a := &app{stdout: &out, stderr: io.Discard, output: "table"}
	a.Log = slog.New(slog.DiscardHandler)
	err = a.askForPlan(t.Context(), c, "s", shard.Request{Kind: shard.Switchover, Timeout: time.Second}, planFlags{wait: 3 * time.Second})
	return out.String(), err
}

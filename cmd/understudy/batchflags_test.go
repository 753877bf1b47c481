package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/strict"
)

func TestFlagsSayWhatTheFileSays(t *testing.T) {
	flags := batchRunFlags{
		webhook: "http://x", resendSafe: true, recognises: true, statusURL: "http://x/{id}", tokenFile: "t", caFile: "c", secretFile: "s", name: "web-1",
		front: "127.0.0.1:9", dialect: "grid",
	}
	flags.FirstWindow, flags.SecondWindow, flags.SubmitTimeout = strict.Duration(time.Second), strict.Duration(time.Minute), strict.Duration(10*time.Second)
	if err := flags.complete([]string{"orders"}); err != nil {
		t.Fatal(err)
	}
	const text = `queues: [{queue: orders, first_window: 1s, second_window: 1m, submit_timeout: 10s, front: {listen: '127.0.0.1:9', dialect: grid},
  webhook: {url: 'http://x', ca_file: c, token_file: t, status_url: 'http://x/{id}', secret_file: s, resend_safe: true, recognises: true}}]`
	c := &settings.Server{}
	if err := settings.Parse([]byte(text), c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.Queues[0], flags.Queue); diff != "" {
		t.Errorf("the file (-) and the flags (+) differ:\n%s", diff)
	}
}

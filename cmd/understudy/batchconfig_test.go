package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
)

// TestTargetsOfTheFile: what the file says of a target is what the dispatcher
// hears of it.
func TestTargetsOfTheFile(t *testing.T) {
	for text, want := range map[string]dispatch.Semantics{
		"webhook: {url: 'http://x'}":                                                                     {Asks: true, Forgets: true},
		"webhook: {url: 'http://x', resend_safe: true}":                                                  {Asks: true, Forgets: true, Resend: true},
		"webhook: {url: 'http://x', compares_terms: true}":                                               {Asks: true, Forgets: true, Compares: true},
		"webhook: {url: 'http://x', recognises: true}":                                                   {Asks: true, Forgets: true, Resend: true, Recognises: true},
		"exec: {command: [cat], recognises: true}":                                                       {Resend: true, Recognises: true},
		"webhook: {url: 'http://x', status_url: 'http://x/{id}', remembers: true}":                       {Asks: true},
		"exec: {command: [cat]}":                                                                         {},
		"exec: {command: [cat], resend_safe: true, compares_terms: true}":                                {Resend: true, Compares: true},
		"sawtooth: {url: 'http://x'}":                                                                    {Resend: true, Recognises: true, Asks: true, Forgets: true},
		"scabbard: {url: 'http://x'}":                                                                    {Asks: true, Forgets: true},
		"webhook: {url: 'http://x', headers: {X-Team: a}}, keep: -1s, front: {listen: ':1', open: true}": {Asks: true, Forgets: true},
	} {
		c := &serveConfig{}
		if err := parseConfig([]byte("queues: [{queue: orders, "+text+"}]"), c); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		f := &findings{}
		if c.checkQueues(f); f.err() != nil {
			t.Fatalf("%s: %v", text, f.err())
		}
		to, err := c.Queues[0].target()
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got := to.Semantics()
		got.AskMany = 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

func TestFlagsSayWhatTheFileSays(t *testing.T) {
	flags := batchRunFlags{
		webhook: "http://x", resendSafe: true, recognises: true, statusURL: "http://x/{id}", tokenFile: "t", caFile: "c", secretFile: "s", name: "web-1",
		front: "127.0.0.1:9", dialect: "grid",
	}
	flags.FirstWindow, flags.SecondWindow, flags.SubmitTimeout = duration(time.Second), duration(time.Minute), duration(10*time.Second)
	if err := flags.complete([]string{"orders"}); err != nil {
		t.Fatal(err)
	}
	const text = `queues: [{queue: orders, first_window: 1s, second_window: 1m, submit_timeout: 10s, front: {listen: '127.0.0.1:9', dialect: grid},
  webhook: {url: 'http://x', ca_file: c, token_file: t, status_url: 'http://x/{id}', secret_file: s, resend_safe: true, recognises: true}}]`
	c := &serveConfig{}
	if err := parseConfig([]byte(text), c); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.Queues[0], flags.queueConfig, cmp.AllowUnexported(queueConfig{}, webhookConfig{})); diff != "" {
		t.Errorf("the file (-) and the flags (+) differ:\n%s", diff)
	}
}

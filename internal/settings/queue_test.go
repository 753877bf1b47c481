package settings

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/strict"
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
		c := &Server{}
		if err := Parse([]byte("queues: [{queue: orders, "+text+"}]"), c); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		f := &strict.Findings{}
		if c.checkQueues(f); f.Err() != nil {
			t.Fatalf("%s: %v", text, f.Err())
		}
		to, err := c.Queues[0].Target()
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

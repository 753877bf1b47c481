package settings

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/strictyaml"
)

// TestTargetsOfTheFile: what the file says of a target is what the dispatcher
// hears of it.
func TestTargetsOfTheFile(t *testing.T) {
	for text, want := range map[string]dispatch.Semantics{
		"webhook: {url: 'http://x'}":                                                                     {HasStatus: true, Forgets: true, Resend: true},
		"webhook: {url: 'http://x', at_most_once: true}":                                                 {HasStatus: true, Forgets: true},
		"webhook: {url: 'http://x', resend_safe: true}":                                                  {HasStatus: true, Forgets: true, Resend: true},
		"webhook: {url: 'http://x', resend_safe: false}":                                                 {HasStatus: true, Forgets: true},
		"webhook: {url: 'http://x', compares_terms: true}":                                               {HasStatus: true, Forgets: true, Resend: true},
		"webhook: {url: 'http://x', deduplicates: true}":                                                 {HasStatus: true, Forgets: true, Resend: true, Deduplicates: true},
		"exec: {command: [cat], recognises: true}":                                                       {Resend: true, Deduplicates: true}, // the old name
		"exec: {command: [cat], deduplicates: true}":                                                     {Resend: true, Deduplicates: true},
		"webhook: {url: 'http://x', status_url: 'http://x/{id}', remembers: true}":                       {HasStatus: true, Resend: true},
		"webhook: {url: 'http://x', status_url: 'http://x/{id}', not_found_is_final: true}":              {HasStatus: true, Resend: true},
		"exec: {command: [cat]}":                                                                         {Resend: true},
		"exec: {command: [cat], at_most_once: true, compares_terms: true}":                               {},
		"sawtooth: {url: 'http://x'}":                                                                    {Resend: true, Deduplicates: true, HasStatus: true, Forgets: true, Decides: 2 * time.Minute},
		"scabbard: {url: 'http://x'}":                                                                    {HasStatus: true, Forgets: true, Decides: 2 * time.Minute},
		"webhook: {url: 'http://x', headers: {X-Team: a}}, keep: -1s, front: {listen: ':1', open: true}": {HasStatus: true, Forgets: true, Resend: true},
	} {
		c := &Server{}
		if err := Parse([]byte("queues: [{queue: orders, "+text+"}]"), c); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		strictyaml.ApplyDefaults(c)
		f := &strictyaml.Findings{}
		if c.checkQueues(f); f.Err() != nil {
			t.Fatalf("%s: %v", text, f.Err())
		}
		to, err := c.Queues[0].Target()
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got := to.Semantics()
		got.StatusLimit = 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

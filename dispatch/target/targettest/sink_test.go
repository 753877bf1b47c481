package targettest_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/dispatch/target/targettest"
)

// TestSinkJudges sends what each kind of sink must catch, or be safe from.
func TestSinkJudges(t *testing.T) {
	type step struct {
		id        string
		seq, term int64
		want      dispatch.Outcome
	}
	for name, c := range map[string]struct {
		sink  *targettest.Sink
		steps []step
		wrong string // "" when nothing is
	}{
		"in order": {&targettest.Sink{}, []step{{"a", 1, 5, dispatch.Done}, {"b", 2, 5, dispatch.Done}, {"d", 9, 6, dispatch.Done}}, ""},
		"twice":    {&targettest.Sink{}, []step{{"a", 1, 5, dispatch.Done}, {"a", 1, 6, dispatch.Done}}, "carried out 2 times"},
		"twice, to one that recognises": {&targettest.Sink{Deduplicates: true},
			[]step{{"a", 1, 5, dispatch.Done}, {"b", 2, 6, dispatch.Done}, {"a", 1, 5, dispatch.Done}}, ""},
		"overtaken": {&targettest.Sink{Deduplicates: true}, []step{{"b", 2, 6, dispatch.Done}, {"a", 1, 5, dispatch.Done}}, "carried out after 2"},
		"overtaken, at one that compares": {&targettest.Sink{Compares: true},
			[]step{{"b", 2, 6, dispatch.Done}, {"a", 1, 5, dispatch.Busy}, {"c", 3, 6, dispatch.Done}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(c.sink)
			defer s.Close()
			hook, err := target.NewWebhook(target.WebhookConfig{HTTPConfig: target.HTTPConfig{URL: s.URL}})
			if err != nil {
				t.Fatal(err)
			}
			for _, st := range c.steps {
				got := hook.Submit(t.Context(), dispatch.Assignment{
					Message: dispatch.Message{Queue: "q", Key: "k", ID: st.id, ContentType: "text/plain"},
					Seq:     st.seq, Term: st.term, Attempt: 1,
				})
				if got.Outcome != st.want {
					t.Errorf("%s: %+v, want %s", st.id, got, st.want)
				}
			}
			wrong := strings.Join(c.sink.Judge(), "\n")
			if (wrong == "") != (c.wrong == "") || !strings.Contains(wrong, c.wrong) {
				t.Errorf("judged %q, want %q", wrong, c.wrong)
			}
			if missing := c.sink.Missing([]string{c.steps[0].id, "never"}); len(missing) != 1 || missing[0] != "never" {
				t.Errorf("missing %v", missing)
			}
		})
	}
}

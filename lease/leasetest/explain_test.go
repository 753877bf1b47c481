package leasetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// A counter whose third reading is wrong: that one is pointed at, and what comes after it.
func TestExplainPointsAtTheFirst(t *testing.T) {
	counter := porcupine.NondeterministicModel{
		Init: func() []any { return []any{0} },
		Step: func(st, _, out any) []any {
			if out != st.(int)+1 {
				return nil
			}
			return []any{out}
		},
	}
	history := func(answers ...int) (out []porcupine.Operation) {
		for i, n := range answers {
			out = append(out, porcupine.Operation{Input: "count", Output: n, Call: int64(2 * i), Return: int64(2*i + 1)})
		}
		slices.Reverse(out) // in whatever order they were written down
		return out
	}
	if problem := Explain("it", counter, history(1, 2, 3, 4)); problem != "" {
		t.Errorf("a right history: %s", problem)
	}
	problem := Explain("it", counter, history(1, 2, 9, 4))
	var marked []string
	for line := range strings.Lines(problem) {
		if strings.HasPrefix(line, "?") {
			_, answer, _ := strings.Cut(line, "→ ")
			marked = append(marked, strings.TrimSpace(answer))
		}
	}
	if !strings.Contains(problem, "at most 2 can be") || !slices.Equal(marked, []string{"9", "4"}) {
		t.Errorf("marked are %q in\n%s", marked, problem)
	}
}

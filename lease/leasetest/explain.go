package leasetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// judging is how long the search for an order may take, on a busy machine too.
const judging = 2 * time.Minute

// Explain looks for an order of single steps of the model that explains a history of concurrent
// operations, timed in nanoseconds. It returns "" if there is one, and otherwise what stands around the
// first operation that the longest order found leaves out. of names the history; the model has one partition.
func Explain(of string, model porcupine.NondeterministicModel, history []porcupine.Operation) string {
	history = slices.SortedStableFunc(slices.Values(history), func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	model.DescribeOperation = func(in, out any) string { return fmt.Sprintf("%v → %v", in, out) }
	result, info := porcupine.CheckOperationsVerbose(model.ToModel(), history, judging)
	switch result {
	case porcupine.Ok:
		return ""
	case porcupine.Unknown:
		return fmt.Sprintf("%s: the history of %d operations could not be judged in time", of, len(history))
	}
	var longest []int // the places of the operations in it
	for _, partition := range info.PartialLinearizations() {
		for _, explained := range partition {
			if len(explained) > len(longest) {
				longest = explained
			}
		}
	}
	marks := slices.Repeat([]string{"?"}, len(history))
	for _, place := range longest {
		marks[place] = " "
	}
	first := slices.Index(marks, "?")
	var out strings.Builder
	fmt.Fprintf(&out, "%s: no order of single steps explains the %d operations; at most %d can be, without those marked ?:\n", of, len(history), len(longest))
	for i := max(0, first-16); i < min(len(history), first+8); i++ {
		op := history[i]
		fmt.Fprintf(&out, "%s %8.3f–%8.3f ms  client %d  %v → %v\n", marks[i], float64(op.Call)/1e6, float64(op.Return)/1e6, op.ClientId, op.Input, op.Output)
	}
	return out.String()
}

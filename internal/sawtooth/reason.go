package sawtooth

import (
	"slices"
	"strings"
	"unicode"
)

// Reason is why a transaction made its batch invalid.
type Reason struct {
	Transaction string // its id; "" when that is not known
	Message     string
}

// idShown is how many digits of a transaction's id stand in a text: enough to tell
// the transactions of a batch apart, few enough to read.
const idShown = 16

const reasonMark = "transaction "

// ReasonText puts reasons into one text for people, from which [ReasonsOf] reads
// them again: each once, and of transactions that fell with their batch none, unless there is no other.
func ReasonText(reasons []Reason) string {
	if at := slices.IndexFunc(reasons, func(r Reason) bool { return !r.fellWithBatch() }); at >= 0 {
		reasons = slices.DeleteFunc(slices.Clone(reasons), Reason.fellWithBatch)
	} else {
		reasons = reasons[:min(1, len(reasons))]
	}
	parts := make([]string, 0, len(reasons))
	for _, r := range reasons {
		message := clean(r.Message)
		if r.Transaction != "" {
			message = reasonMark + r.Transaction[:min(idShown, len(r.Transaction))] + ": " + message
		}
		if !slices.Contains(parts, message) {
			parts = append(parts, message)
		}
	}
	return strings.Join(parts, "; ")
}

// fellWithBatch reports that this transaction did not fail: another one of its batch did. Scabbard names them all, the
// good ones first.
func (r Reason) fellWithBatch() bool {
	return strings.HasPrefix(r.Message, "containing batch (") && strings.HasSuffix(r.Message, "is invalid")
}

func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// ReasonsOf reads back what [ReasonText] wrote about a batch with these
// transactions. A text of another origin is the reason of the first of them.
func ReasonsOf(text string, transactions []string) []Reason {
	var out []Reason
	for _, id := range transactions {
		if len(id) < idShown {
			continue
		}
		mark := reasonMark + id[:idShown] + ": "
		if _, message, ok := strings.Cut(text, mark); ok {
			if end := strings.Index(message, "; "+reasonMark); end >= 0 {
				message = message[:end]
			}
			out = append(out, Reason{Transaction: id, Message: message})
		}
	}
	if len(out) == 0 && len(transactions) > 0 {
		out = append(out, Reason{Transaction: transactions[0], Message: text})
	}
	return out
}

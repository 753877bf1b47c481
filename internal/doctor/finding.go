package doctor

import (
	"fmt"
	"strings"

	"github.com/understudy-ha/understudy/internal/attention"
)

// Finding is one line of a doctor's report.
type Finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"` // ok, warn or bad
	Says    string `json:"says"`
	// Do is what an operator can do about it, and See where that is explained.
	Do  string `json:"do,omitempty"`
	See string `json:"see,omitempty"`
}

func well(check, format string, args ...any) Finding {
	return Finding{Check: check, Verdict: "ok", Says: fmt.Sprintf(format, args...)}
}

// warn and bad say what is the matter; withAdvice adds what to do.
func warn(check, format string, args ...any) Finding {
	return Finding{Check: check, Verdict: "warn", Says: fmt.Sprintf(format, args...)}
}

func bad(check, format string, args ...any) Finding {
	return Finding{Check: check, Verdict: "bad", Says: fmt.Sprintf(format, args...)}
}

func (f Finding) withAdvice(see, format string, args ...any) Finding {
	f.Do, f.See = fmt.Sprintf(format, args...), see
	return f
}

// findings are a part's needs as the doctor reports them.
func findings(needs []attention.Need) (out []Finding) {
	for _, n := range needs {
		says := n.What
		if about := strings.TrimSpace(n.Subject + " " + n.Item); about != "" {
			says = about + ": " + says
		}
		out = append(out, Finding{Check: n.Part, Verdict: n.Severity, Says: says, Do: n.Do, See: n.See})
	}
	return out
}

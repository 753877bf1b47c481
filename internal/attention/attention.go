package attention

import (
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
)

// Severities, in the order of their names.
const (
	Bad  = "bad"
	Warn = "warn"
)

// Need is something that needs attention.
type Need struct {
	apitype.Need
	// Do is what an operator can do about it, and See where that is explained.
	Do, See string
	// Unheld is why the subject is not held, in short; empty: it is held.
	Unheld string
	// Minor needs are shown by the doctor alone: nothing is wrong yet, or it passes without an operator.
	Minor bool
}

func need(severity, part, subject, format string, args ...any) Need {
	return Need{Need: apitype.Need{Part: part, Subject: subject, Severity: severity, What: fmt.Sprintf(format, args...)}}
}

func (n Need) withAdvice(see, format string, args ...any) Need {
	n.Do, n.See = fmt.Sprintf(format, args...), see
	return n
}

func (n Need) unheld(why string) Need {
	n.Unheld = why
	return n
}

// of is about a thing of the subject.
func (n Need) of(item, id string) Need {
	n.Item, n.ID = item, id
	return n
}

func (n Need) minor() Need {
	n.Minor = true
	return n
}

// inWords is a duration as the page writes them.
func inWords(d time.Duration) string {
	switch s := int64(max(0, d) / time.Second); {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min", s/60)
	case s < 48*3600:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	default:
		return fmt.Sprintf("%d days", s/86400)
	}
}

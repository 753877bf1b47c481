package sink

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/untrusted"
	"github.com/understudy-ha/understudy/monitor"
)

// clean makes one line of whatever a name holds.
func clean(s string) string { return untrusted.Words(s) }

// who is the source or the group.
func who(m monitor.AlarmMessage) string {
	if m.Source != "" {
		return clean(m.Source)
	}
	return fmt.Sprintf("%d sources with %s=%s", count(m), clean(m.GroupBy), clean(m.Group))
}

func count(m monitor.AlarmMessage) int { return max(m.Count, len(m.Members)) }

// title says in one line what has happened.
func title(m monitor.AlarmMessage) string {
	one := m.Source != ""
	verb := func(single, many string) string {
		if one {
			return single
		}
		return many
	}
	var what string
	if m.Status == monitor.Onset {
		switch m.Reason {
		case monitor.Silent:
			what = verb("is", "are") + " silent"
		case monitor.Failed:
			what = verb("has", "have") + " failed"
		case monitor.Overrun:
			what = verb("runs", "run") + " for too long"
		default:
			what = verb("is", "are") + " down: " + clean(string(m.Reason))
		}
	} else {
		switch m.End {
		case monitor.NoTransition, monitor.Abated:
			what = verb("is", "are") + " back"
			if m.Group != "" {
				what = "are not down any more" // of some of them the check may have changed, and no heartbeat came
			}
		case monitor.Retire:
			what = verb("was", "were") + " retired"
		case monitor.Forget:
			what = verb("is", "are") + " not watched any more"
		case monitor.EndByConfiguration:
			what = verb("is", "are") + " not down by the changed check"
		default:
			what = verb("is", "are") + " not down any more: " + clean(string(m.End))
		}
	}
	if m.What != "" {
		what = clean(m.What)
	}
	out := fmt.Sprintf("%s: %s %s (%s)", m.Status, who(m), what, clean(m.Event))
	if m.Reminder > 0 {
		out += ", reminder " + strconv.Itoa(m.Reminder)
	}
	return out
}

// fact is one thing to be told about an alarm.
type fact struct{ name, text string }

// maxNamed is how many members of a group are named to people.
const maxNamed = 20

// facts are what is known of an alarm, but for what is empty. No text has a line feed.
func facts(m monitor.AlarmMessage) []fact {
	all := []fact{{"Event", m.Event}, {"Source", m.Source}}
	if m.Source == "" {
		all = append(all, fact{"Group", m.GroupBy + "=" + m.Group}, fact{"Members", members(m)})
	}
	all = append(all,
		fact{"Reason", string(m.Reason)}, fact{"Severity", m.Severity}, fact{"Limit", m.Limit},
		fact{"Last beat", moment(m.LastBeat)}, fact{"Began", moment(&m.Started)}, fact{"Ended", moment(m.Ended)},
		fact{"Lasted", lasted(m)}, fact{"Tags", strings.Join(m.Tags, ", ")},
	)
	for _, name := range slices.Sorted(maps.Keys(m.Labels)) {
		all = append(all, fact{name, m.Labels[name]})
	}
	all = append(all, fact{"Request id", m.RequestID}, fact{"Acknowledge", m.Acknowledge})
	out := all[:0]
	for _, f := range all {
		if f = (fact{clean(f.name), clean(f.text)}); f.text != "" {
			out = append(out, f)
		}
	}
	return out
}

func members(m monitor.AlarmMessage) string {
	var names []string
	length := 0
	for _, name := range m.Members {
		name = clean(name)
		if length += len(name) + 2; len(names) == maxNamed || length > 400 { // what clean leaves
			break
		}
		names = append(names, name)
	}
	s := strings.Join(names, ", ")
	if more := count(m) - len(names); more > 0 {
		s = strings.TrimPrefix(s+" and "+strconv.Itoa(more)+" more", " and ")
	}
	return s
}

func moment(t *time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

func lasted(m monitor.AlarmMessage) string {
	if m.Ended == nil || m.Started.IsZero() {
		return ""
	}
	return max(0, m.Ended.Sub(m.Started)).Round(time.Second).String()
}

// text is all of it, in lines.
func text(m monitor.AlarmMessage) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", title(m))
	for _, f := range facts(m) {
		fmt.Fprintf(&b, "%-12s %s\n", f.name+":", f.text)
	}
	return b.String()
}

// began is when the outage began, for receivers that must have a time.
func began(m monitor.AlarmMessage, now time.Time) time.Time {
	return cmp.Or(m.Started, m.Raised, now)
}

// ended is when an outage was over.
func ended(m monitor.AlarmMessage, now time.Time) time.Time {
	if m.Ended == nil || m.Ended.IsZero() {
		return now
	}
	return *m.Ended
}

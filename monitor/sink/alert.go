package sink

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// alert is one of API v2.
type alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
}

// alerts are what an Alertmanager is told. An alert without an end would be resolved
// by resolve_timeout, which is minutes.
//
// An end that its clock has not reached would count for nothing beside the far one
// that it has been told. So the alert is ended first at its beginning, which is past
// for any clock and replaces what is there, and then moved to its true end.
func alerts(m monitor.AlarmMessage, lasts time.Duration, now time.Time) []alert {
	a := alert{Labels: alertLabels(m), Annotations: annotations(m), StartsAt: began(m, now).UTC().Truncate(time.Millisecond)}
	if m.Status == monitor.Onset {
		from := now.UTC().Truncate(time.Millisecond) // it may have waited for long
		if a.StartsAt.After(from) {
			from = a.StartsAt
		}
		a.EndsAt = from.Add(lasts)
		return []alert{a}
	}
	a.EndsAt = a.StartsAt
	truly := a
	if end := ended(m, now).UTC().Truncate(time.Millisecond); end.After(truly.EndsAt) {
		truly.EndsAt = end
		return []alert{a, truly}
	}
	return []alert{a}
}

// alertLabels are the same for an ONSET and its ABATED, as long as event and source have the
// same labels and severity: Alertmanager knows an alert by them. Those of a job are of its run, and its end has others: they are annotations.
func alertLabels(m monitor.AlarmMessage) map[string]string {
	out := map[string]string{}
	put := func(name, value string) {
		if value != "" { // Alertmanager drops empty ones
			out[name] = value
		}
	}
	put("alertname", m.Event)
	put("source", m.Source)
	put("severity", m.Severity)
	if m.Source == "" {
		put("group", m.Group)
		put("group_by", m.GroupBy)
	}
	if m.What == "" {
		addLabels(out, m.Labels)
	}
	return out
}

// addLabels adds labels under names that Alertmanager takes and that are free.
func addLabels(out, labels map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if labels[name] == "" {
			continue
		}
		label := labelName(name)
		for _, taken := out[label]; taken || label == "alertname" || label == "source"; _, taken = out[label] {
			label = "label_" + label
		}
		out[label] = labels[name]
	}
}

// labelName makes a name that Prometheus takes: letters, digits and '_', not
// beginning with a digit, nor with "__", which it keeps for itself.
func labelName(s string) string {
	out := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, s)
	if out == "" || out[0] >= '0' && out[0] <= '9' || strings.HasPrefix(out, "__") {
		out = "label_" + out
	}
	return out
}

func annotations(m monitor.AlarmMessage) map[string]string {
	out := map[string]string{"summary": title(m), "description": text(m), "request_id": m.RequestID, "reason": string(m.Reason)}
	if m.End != monitor.NoTransition {
		out["end"] = string(m.End)
	}
	if m.What != "" {
		addLabels(out, m.Labels)
	}
	return out
}

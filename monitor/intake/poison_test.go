package intake

import "strings"

// poison is a message that the original drops, dies of, or believes wrongly.
type poison struct {
	name, message string
	cause         Cause
}

func poisons() []poison {
	without := func(part string) string { return oneLine(strings.Replace(ves, part, "", 1)) }
	with := func(old, is string) string { return oneLine(strings.Replace(ves, old, is, 1)) }
	const micros = `"lastEpochMicrosec":1795223000000000,`
	return []poison{
		{"an event that is not configured", with("Heartbeat_edgeRouter", "x-unheard-of"), NotKnown},
		{"no event name", without(`"eventName":"Heartbeat_edgeRouter",`), NoEvent},
		{"no source name", without(`"sourceName":"edge-17",`), NoSource},
		{"no time", without(micros), NoTime},
		{"no sequence", without(`"sequence":17,`), NoSequence},
		{"a time that is a word", with(micros, `"lastEpochMicrosec":"now",`), BadTime},
		{"a time that is an object", with(micros, `"lastEpochMicrosec":{},`), BadTime},
		{"a sequence that is an object", with(`"sequence":17`, `"sequence":{}`), BadNumber},
		{"a source without a name", with(`"edge-17",`, `"",`), BadName},
		{"a source with a line break", with(`"edge-17",`, `"edge\n17",`), BadName},
		{"a source that is a number", with(`"edge-17",`, `17,`), BadName},
		{"a source with a name that never ends", with(`"edge-17",`, `"`+strings.Repeat("edge", 500)+`",`), BadName},
		{"no header", `{"event":{}}`, NoEvent},
		{"an object of other things", `{"some":"thing"}`, NoEvent},
		{"an array", `[{"event":1}]`, Kind},
		{"a number", `12`, Kind},
		{"no JSON", `{"event":`, Syntax},
		{"a text of the days before JSON", `<event/>`, Syntax},
	}
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "") }

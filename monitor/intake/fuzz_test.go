package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// reader reads beats as the decoder does, by encoding/json and the letter of the
// package's promises.
type reader struct {
	found
	items  int
	within bool
}

func (r *reader) flaw(c Cause) {
	var d decoder
	d.items = r.items
	d.flaw(c, "", nil)
	r.Flaws = append(r.Flaws, d.found().Flaws...)
}

func (r *reader) read(raw json.RawMessage) {
	raw = bytes.TrimSpace(raw)
	var list []json.RawMessage
	if raw[0] == '[' {
		_ = json.Unmarshal(raw, &list)
		for _, item := range list {
			r.item(item)
		}
		return
	}
	r.item(raw)
}

func object(raw json.RawMessage) map[string]json.RawMessage {
	m := map[string]json.RawMessage{}
	if len(raw) > 0 && raw[0] == '{' {
		_ = json.Unmarshal(raw, &m)
	}
	return m
}

func (r *reader) item(raw json.RawMessage) {
	if raw[0] != '{' {
		r.flaw(Kind)
		r.items++
		return
	}
	m := object(raw)
	if list := m["eventList"]; len(list) > 0 && list[0] == '[' && !r.within {
		r.within = true
		r.read(list)
		r.within = false
		return
	}
	var b monitor.Heartbeat
	var cause Cause
	switch {
	case len(m["event"]) > 0 && m["event"][0] == '{':
		b, cause = vesOf(object(object(m["event"])["commonEventHeader"]))
	case len(m["commonEventHeader"]) > 0 && m["commonEventHeader"][0] == '{':
		b, cause = vesOf(object(m["commonEventHeader"]))
	default:
		b, cause = shortOf(m)
	}
	if cause != "" {
		r.flaw(cause)
	} else {
		r.Beats = append(r.Beats, b)
		r.Places = append(r.Places, r.items)
	}
	r.items++
}

func has(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func named(raw json.RawMessage, to *string) bool {
	return json.Unmarshal(raw, to) == nil && lease.ValidateText("", *to, 1, monitor.MaxName) == nil
}

// plainly is a value without escapes.
func plainly(raw json.RawMessage) []byte {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return []byte(`"` + s + `"`)
	}
	return raw
}

func vesOf(h map[string]json.RawMessage) (b monitor.Heartbeat, cause Cause) {
	for _, f := range []struct {
		name  string
		cause Cause
	}{{"eventName", NoEvent}, {"sourceName", NoSource}, {"lastEpochMicrosec", NoTime}, {"sequence", NoSequence}} {
		if !has(h[f.name]) {
			return b, f.cause
		}
	}
	if !named(h["eventName"], &b.Check) || !named(h["sourceName"], &b.Source) {
		return b, BadName
	}
	var ok bool
	if b.Sent, ok = parseTime(h["lastEpochMicrosec"]); !ok {
		return b, BadTime
	}
	if b.Seq, ok = whole(plainly(h["sequence"])); !ok {
		return b, BadNumber
	}
	var domain string
	switch err := json.Unmarshal(plainly(h["domain"]), &domain); {
	case err != nil || !has(h["domain"]):
		return b, NoDomain
	case domain != "heartbeat":
		return b, OtherDomain
	}
	return b, ""
}

func shortOf(m map[string]json.RawMessage) (b monitor.Heartbeat, cause Cause) {
	if !has(m["event"]) {
		return b, NoEvent
	}
	if !has(m["source"]) {
		return b, NoSource
	}
	if !named(m["event"], &b.Check) || !named(m["source"], &b.Source) {
		return b, BadName
	}
	ok := true
	if has(m["sent"]) {
		if b.Sent, ok = parseTime(m["sent"]); !ok {
			return b, BadTime
		}
	}
	if has(m["seq"]) {
		if b.Seq, ok = whole(plainly(m["seq"])); !ok {
			return b, BadNumber
		}
	}
	if has(m["code"]) {
		code, ok := whole(plainly(m["code"]))
		if !ok || code < 0 || code > 255 {
			return b, BadNumber
		}
		if b.Code = int(code); code > 0 {
			b.Signal = monitor.SignalFail
		}
	}
	if has(m["signal"]) {
		var s string
		if json.Unmarshal(m["signal"], &s) != nil {
			return b, BadSignal
		}
		signals := map[string]monitor.Signal{"ok": monitor.SignalSuccess, "start": monitor.SignalStart, "fail": monitor.SignalFail}
		if b.Signal, ok = signals[s]; !ok {
			return b, BadSignal
		}
	}
	return b, ""
}

// judge compares what the decoder makes of a body with what the reader does.
func judge(t *testing.T, body []byte) {
	var d decoder
	err := d.decode(body)
	if err == nil && len(d.beats)+len(d.flaws) != d.items || len(d.beats) != len(d.places) {
		t.Fatalf("%q: %d beats, %d places and %d flaws of %d items", body, len(d.beats), len(d.places), len(d.flaws), d.items)
	}
	for _, b := range d.beats {
		if err := (monitor.Declaration{Check: b.Check, Source: b.Source}).Validate(); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if _, err := b.Sent.MarshalJSON(); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
	}
	trimmed := bytes.TrimSpace(body)
	switch {
	case err != nil && (strings.Contains(err.Error(), "too deep") || errors.Is(err, errMany)):
		return
	case !json.Valid(body):
		if err == nil && len(trimmed) > 0 && trimmed[0] == '[' {
			t.Fatalf("%q is no JSON, and was taken", body)
		}
		return
	case err != nil:
		t.Fatalf("%q: %v", body, err)
	case !utf8.Valid(body):
		return // encoding/json repairs it; here it is refused as a name
	}
	var r reader
	r.read(trimmed)
	if diff := cmp.Diff(r.found, d.found()); diff != "" {
		t.Fatalf("%q (-want +got):\n%s", body, diff)
	}
}

func FuzzBeats(f *testing.F) {
	for _, s := range []string{
		`{"event":"e","source":"a"}`, `[{"event":"e","source":"\u00e9\ud83d\ude00","signal":"fail","code":"3","sent":"2026-01-02T03:04:05Z","seq":1e3}]`,
		`[{"event":{},"event":"e","source":"a","code":256},7,null,{"signal":"x"}]`, "{\"event\":\"e\",\"source\":\"a\"}\n{\n{\"event\":\"e\",\"source\":\"b\"}",
		`{"event":"e","source":"a","sent":1795223000,"seq":"-0"}`, `[`, `{}x`, `[{"a":[{"b":"]"}]},-0.5e+7]`, `["\ud800","\x"]`,
		`[1,]`, `[{"a":1,}]`, `[01]`, `[1.]`, `[-]`, `[1e]`, `["\u12g4"]`, `[tru]`, `[{"a" 1}]`, `[{1:2}]`, `[1 2]`, "[\"\t\"]", `[]]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(judge)
}

func FuzzVES(f *testing.F) {
	for _, s := range []string{
		ves, `{"eventList":[` + ves + `,{"commonEventHeader":{"domain":"heartbeat","eventName":"e","sourceName":"a","lastEpochMicrosec":"1795255200000","sequence":1.0}}]}`,
		`{"eventList":[{"eventList":[{}]}],"event":{"commonEventHeader":[]}}`, `{"commonEventHeader":{"domain":"heartbeat","eventName":"e"},"commonEventHeader":1,"event":"x"}`,
		`{"event":{"commonEventHeader":{"domain":"heartbeat","eventName":"e","sourceName":"a","lastEpochMicrosec":1,"sequence":1}},"event":{}}`,
		`{"commonEventHeader":{"domain":"heartbeat","eventName":"e","sourceName":"a","lastEpochMicrosec":1,"sequence":1},"commonEventHeader":{"domain":"heartbeat","eventName":"f"}}`,
		`{"event":{"commonEventHeader":{"domain":"heartbeat","eventName":"e","sourceName":"a","lastEpochMicrosec":1e15,"sequence":"7"},"commonEventHeader":{"domain":"heartbeat","eventName":"f"}}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		judge(t, body)
		// The same in a text, as a router gives it.
		if quoted, err := json.Marshal(string(body)); err == nil && utf8.Valid(body) {
			var text, plain decoder
			text.message(quoted)
			plain.message(body)
			if first := bytes.TrimSpace(body); len(first) > 0 && first[0] != '"' {
				if diff := cmp.Diff(plain.found(), text.found()); diff != "" {
					t.Fatalf("%q as a text (-plain +text):\n%s", body, diff)
				}
			}
		}
	})
}

package intake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/monitor"
)

const ves = `{"event":{"commonEventHeader":{"version":"4.1","vesEventListenerVersion":"7.2.1","domain":"heartbeat","eventId":"hb-000017",
 "eventName":"Heartbeat_edgeRouter","eventType":"platform","sourceName":"edge-17","sourceId":"edge-17-uuid","reportingEntityName":"edge-17-oam",
 "priority":"Normal","sequence":17,"startEpochMicrosec":1795223000000000,"lastEpochMicrosec":1795223000000000,"timeZoneOffset":"UTC+00:00",
 "nfNamingCode":"EDGE","nfcNamingCode":"RTR"},"heartbeatFields":{"heartbeatFieldsVersion":"3.0","heartbeatInterval":30}}}`

var edge = monitor.Heartbeat{Check: "Heartbeat_edgeRouter", Source: "edge-17", Sent: time.UnixMicro(1795223000000000).UTC(), Seq: 17}

// found is what a decoder found, in a form that can be compared.
type found struct {
	Beats  []monitor.Heartbeat
	Places []int
	Flaws  []string
}

func (d *decoder) found() found {
	var f found
	f.Beats = append(f.Beats, d.beats...)
	f.Places = append(f.Places, d.places...)
	for _, w := range d.flaws {
		f.Flaws = append(f.Flaws, fmt.Sprintf("%d %s", w.index, w.cause))
	}
	return f
}

func TestDecode(t *testing.T) {
	a, b := monitor.Heartbeat{Check: "e", Source: "a"}, monitor.Heartbeat{Check: "e", Source: "b"}
	beat := func(change func(*monitor.Heartbeat)) found {
		b := a
		change(&b)
		return found{Beats: []monitor.Heartbeat{b}, Places: []int{0}}
	}
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	var none *syntaxError
	for _, c := range []struct {
		name, body string
		want       found
		err        any
	}{
		{name: "short", body: ` {"event":"e","source":"a"} `, want: beat(func(*monitor.Heartbeat) {})},
		{name: "all of it", body: `{"x":{"event":[{}]},"event":"e","source":"a","signal":"fail","code":3,"sent":"2026-11-21T11:00:00+01:00","seq":"9"}`,
			want: beat(func(b *monitor.Heartbeat) { b.Signal, b.Code, b.Sent, b.Seq = monitor.SignalFail, 3, at, 9 })},
		{name: "escaped", body: `{"\u0065vent":"\u0065","source":"a\u00e9\"\\\/","signal":"\u006fk"}`, want: beat(func(b *monitor.Heartbeat) { b.Source = `aé"\/` })},
		{name: "a code fails", body: `{"event":"e","source":"a","code":255}`, want: beat(func(b *monitor.Heartbeat) { b.Signal, b.Code = monitor.SignalFail, 255 })},
		{name: "a code as a float", body: `{"event":"e","source":"a","code":3.0}`, want: beat(func(b *monitor.Heartbeat) { b.Signal, b.Code = monitor.SignalFail, 3 })},
		{name: "a signal says otherwise", body: `{"event":"e","source":"a","code":"2","signal":"ok"}`, want: beat(func(b *monitor.Heartbeat) { b.Code = 2 })},
		{name: "start", body: `{"event":"e","source":"a","signal":"start"}`, want: beat(func(b *monitor.Heartbeat) { b.Signal = monitor.SignalStart })},
		{name: "nulls", body: `{"event":"e","source":"a","signal":null,"code":null,"sent":null,"seq":null}`, want: beat(func(*monitor.Heartbeat) {})},
		{name: "the last counts", body: `{"event":{"commonEventHeader":{}},"event":"x","event":"e","source":1,"source":"a"}`, want: beat(func(*monitor.Heartbeat) {})},
		{name: "VES", body: ves, want: found{Beats: []monitor.Heartbeat{edge}, Places: []int{0}}},
		{name: "bare VES", body: `{"commonEventHeader":{"domain":"heartbeat","eventName":"e","sourceName":"a","lastEpochMicrosec":"1795255200000","sequence":1.0}}`,
			want: beat(func(b *monitor.Heartbeat) { b.Sent, b.Seq = at, 1 })},
		{name: "VES batch", body: `{"eventList":[` + `{"commonEventHeader":{"domain":"heartbeat","eventName":"e","sourceName":"a","lastEpochMicrosec":0,"sequence":0}}, 7,` + ves + `]}`,
			want: found{Beats: []monitor.Heartbeat{a, edge}, Places: []int{0, 2}, Flaws: []string{"1 kind"}}},
		{name: "an array", body: `[{"event":"e","source":"a"},{},[],"x",{"event":"e","source":"b"}]`,
			want: found{Beats: []monitor.Heartbeat{a, b}, Places: []int{0, 4}, Flaws: []string{"1 no_event", "2 kind", "3 kind"}}},
		{name: "nothing", body: `[]`},
		{name: "lines", body: "{\"event\":\"e\",\"source\":\"a\"}\n\nbroken {\n[1]\n{\"event\":\"e\",\n \"source\":\"b\"}\n{\"event\"",
			want: found{Beats: []monitor.Heartbeat{a, b}, Places: []int{0, 2}, Flaws: []string{"1 syntax", "3 syntax"}}},
		{name: "empty", body: " \n", err: &none},
		{name: "no JSON", body: "event=e", err: &none},
		{name: "broken array", body: `[{"event":"e","source":"a"},{]`, err: &none},
		{name: "more than an array", body: `[{"event":"e","source":"a"}]{}`, err: &none},
		{name: "too deep", body: strings.Repeat("[", 1000) + strings.Repeat("]", 1000), err: &none},
		{name: "too many", body: "[" + strings.Repeat("{},", maxItems) + "{}]", err: errMany},
		{name: "too many lines", body: strings.Repeat("{\n", maxItems+1), err: errMany},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d decoder
			err := d.decode([]byte(c.body))
			switch want := c.err.(type) {
			case nil:
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, d.found()); diff != "" {
					t.Error(diff)
				}
			case error:
				if !errors.Is(err, want) {
					t.Errorf("error %v, want %v", err, want)
				}
			default:
				if !errors.As(err, want) {
					t.Errorf("error %v", err)
				}
			}
		})
	}
}

// TestFlaws: whatever an event lacks has a cause of its own.
func TestFlaws(t *testing.T) {
	header := func(change string) string {
		h := map[string]any{"domain": "heartbeat", "eventName": "e", "sourceName": "a", "lastEpochMicrosec": 1795223000000000, "sequence": 1}
		var with map[string]any
		if err := json.Unmarshal([]byte(change), &with); err != nil {
			t.Fatal(err)
		}
		maps.Copy(h, with)
		body, _ := json.Marshal(map[string]any{"event": map[string]any{"commonEventHeader": h}})
		return string(body)
	}
	long := strings.Repeat("x", monitor.MaxName+1)
	for body, want := range map[string]Cause{
		`7`: Kind, `"text"`: Kind, `null`: Kind, `{"eventList":3}`: NoEvent, `{}`: NoEvent,
		`{"event":{}}`: NoEvent, `{"event":{"commonEventHeader":[]}}`: NoEvent, `{"commonEventHeader":{}}`: NoEvent,
		header(`{"eventName":null}`): NoEvent, header(`{"sourceName":null}`): NoSource,
		header(`{"lastEpochMicrosec":null}`): NoTime, header(`{"sequence":null}`): NoSequence,
		header(`{"eventName":7}`): BadName, header(`{"sourceName":{}}`): BadName, header(`{"sourceName":""}`): BadName,
		header(`{"lastEpochMicrosec":"soon"}`): BadTime, header(`{"lastEpochMicrosec":true}`): BadTime, header(`{"lastEpochMicrosec":{}}`): BadTime, header(`{"lastEpochMicrosec":""}`): BadTime,
		header(`{"sequence":"many"}`): BadNumber, header(`{"sequence":[1]}`): BadNumber,
		`{"event":"","source":"a"}`: BadName, `{"source":"a"}`: NoEvent, `{"event":"e"}`: NoSource, `{"Event":"e","Source":"a"}`: NoEvent,
		`{"event":"e\n","source":"a"}`: Syntax, `{"event":"e","source":"a\n"}`: BadName, `{"event":"e","source":"a\u0000"}`: BadName,
		`{"event":"e","source":" a"}`: BadName, `{"event":"e","source":"` + long + `"}`: BadName, "{\"event\":\"e\",\"source\":\"\xff\"}": BadName,
		`{"event":"e","source":"` + strings.Repeat(`\u00e9`, monitor.MaxName) + `"}`: BadName,
		`{"event":"e","source":"` + strings.Repeat(`x`, 7*monitor.MaxName) + `"}`:    BadName,
		`{"event":"e","source":"a","signal":"dead"}`:                                 BadSignal, `{"event":"e","source":"a","signal":1}`: BadSignal,
		`{"event":"e","source":"a","code":256}`: BadNumber, `{"event":"e","source":"a","code":-1}`: BadNumber, `{"event":"e","source":"a","code":"x"}`: BadNumber,
		`{"event":"e","source":"a","code":1.5}`: BadNumber, `{"event":"e","source":"a","code":1e300}`: BadNumber, `{"event":"e","source":"a","code":1e999}`: BadNumber,
		`{"event":"e","source":"a","code":99999999999999999999}`: BadNumber, `{"event":"e","source":"a","code":"-0.5"}`: BadNumber,
		`{"event":"e","source":"a","seq":false}`: BadNumber, `{"event":"e","source":"a","sent":"yesterday"}`: BadTime, `{"event":"e","source":"a","sent":[]}`: BadTime,
	} {
		var d decoder
		if want == Syntax {
			body = strings.Replace(body, `\n`, "\n", 1)
			if d.decode([]byte(body)) == nil {
				t.Errorf("%s was taken", body)
			}
			continue
		}
		if err := d.decode([]byte(body)); err != nil || len(d.beats) != 0 || len(d.flaws) != 1 {
			t.Errorf("%.100s: %v, %+v", body, err, d.found())
		} else if f := d.flaws[0]; f.cause != want || f.detail == "" || len(f.detail) > 2*monitor.MaxName+200 {
			t.Errorf("%.100s: %s: %s, want %s", body, f.cause, f.detail, want)
		}
	}
}

// TestD10 Times of every size; none that is wrong costs a beat.
func TestD10SendersTime(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for raw, want := range map[string]time.Time{
		`1795255200`: at, `1795255200000`: at, `1795255200000000`: at, `1795255200000000000`: at,
		`"1795255200000"`: at, `1.7952552E9`: at, `1795255200.000`: at, `1.7952552e+15`: at, `1795255200.25`: at.Add(250 * time.Millisecond),
		`1795255200000123`: at.Add(123 * time.Microsecond), `"2026-11-21T10:00:00.000123456Z"`: at.Add(123 * time.Microsecond), `"2026-11-21T00:00:00-10:00"`: at,
		`12000000`: time.Date(1970, 5, 19, 21, 20, 0, 0, time.UTC), // a clock that began again
		`0`:        {}, `-5`: {}, `-0`: {}, `1e400`: {}, `99999999999999999999999`: {}, `1e18`: time.Date(2001, 9, 9, 1, 46, 40, 0, time.UTC), `-1e17`: {}, `"0001-01-01T00:00:00Z"`: {},
		`9223372036854775807`: time.Date(2262, 4, 11, 23, 47, 16, 854775000, time.UTC),
	} {
		got, ok := parseTime([]byte(raw))
		if !ok || !got.Equal(want) || got.IsZero() != want.IsZero() {
			t.Errorf("%s: %v, %t; want %v", raw, got, ok, want)
		}
		if _, err := got.MarshalJSON(); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestMessage(t *testing.T) {
	quoted, _ := json.Marshal(ves)
	list, _ := json.Marshal(`[` + ves + `,{"event":"e"}]`)
	var d decoder
	for _, raw := range [][]byte{
		quoted, []byte(ves), list, []byte(`"{\"event\":\"mrstatus\",\"source\":\"mrstatus\"}"`),
		[]byte(`"no JSON"`), []byte(`""`), []byte(`"[{\"event\":\"e\",\"source\":\"a\"},"`), []byte(`7`), []byte(`{broken}`), []byte(`"\q"`), []byte(`nul`), []byte(`"a"b`), quoted,
	} {
		d.message(raw)
	}
	want := found{
		Beats: []monitor.Heartbeat{edge, edge, edge, {Check: "mrstatus", Source: "mrstatus"}, edge}, Places: []int{0, 1, 2, 4, 13},
		Flaws: []string{"3 no_source", "5 syntax", "6 syntax", "7 syntax", "8 kind", "9 syntax", "10 syntax", "11 syntax", "12 syntax"},
	}
	if diff := cmp.Diff(want, d.found()); diff != "" {
		t.Error(diff)
	}
	d.reset()
	if diff := cmp.Diff(found{}, d.found()); diff != "" {
		t.Error(diff)
	}
}

func array(n int, of func(i int) string) []byte {
	var b bytes.Buffer
	for i := range n {
		b.WriteByte("[,"[min(i, 1)])
		b.WriteString(of(i))
	}
	b.WriteByte(']')
	return b.Bytes()
}

func BenchmarkDecode(b *testing.B) {
	for name, of := range map[string]func(int) string{
		"short": func(i int) string {
			return fmt.Sprintf(`{"event":"Heartbeat_edgeRouter","source":"edge-%06d"}`, i)
		},
		"full": func(i int) string {
			return fmt.Sprintf(`{"event":"Heartbeat_edgeRouter","source":"edge-%06d","signal":"ok","sent":1795223000000,"seq":%d}`, i, i)
		},
		"ves": func(i int) string { return strings.Replace(ves, "edge-17", fmt.Sprintf("edge-%06d", i), 1) },
	} {
		b.Run(name, func(b *testing.B) {
			body := array(500, of)
			var d decoder
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				d.reset()
				if err := d.decode(body); err != nil || len(d.beats) != 500 {
					b.Fatal(err, d.flaws)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/beat")
		})
	}
	b.Run("ves by encoding/json", func(b *testing.B) {
		body := array(500, func(int) string { return ves })
		var to []struct {
			Event struct {
				CommonEventHeader struct {
					EventName, SourceName       string
					LastEpochMicrosec, Sequence int64
				}
			}
		}
		for b.Loop() {
			if err := json.Unmarshal(body, &to); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/beat")
	})
}

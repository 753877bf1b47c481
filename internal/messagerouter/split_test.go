package messagerouter

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzRouterBody: what encoding/json takes for an array is divided as it divides
// it; of anything else, every item that is given is a part of the body.
func FuzzRouterBody(f *testing.F) {
	for _, s := range []string{
		``, ` `, `[]`, `[ ] x`, `["a",{"b":[1,"]"]}]`, `["\\","\"",1,null]`, `{"mrstatus":3001}`, `[{]}`, `["a"`, `[1,2`, `[,]`, "[\"a\"\n,\n\"b\"\n]\n", `{"a":1}x`, `[""""]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		_ = refusal(body)
		items, err := split(body)
		at := 0
		for _, item := range items {
			i := bytes.Index(body[at:], item)
			if i < 0 || len(item) == 0 {
				t.Fatalf("%q is no part of %q after byte %d", item, body, at)
			}
			at += i + len(item)
		}
		var want []json.RawMessage
		if firstByte(body) != '[' || json.Unmarshal(body, &want) != nil {
			return
		}
		if err != nil || len(items) != len(want) {
			t.Fatalf("%q: %d items and %v, want %d", body, len(items), err, len(want))
		}
		for i := range want {
			if !bytes.Equal(items[i], want[i]) {
				t.Fatalf("%q: item %d is %q, want %q", body, i, items[i], want[i])
			}
		}
	})
}

func BenchmarkSplit(b *testing.B) {
	one, _ := json.Marshal(`{"event":{"commonEventHeader":{"version":"4.1","domain":"heartbeat","eventName":"Heartbeat_edgeRouter","sourceName":"edge-17","sequence":17,"lastEpochMicrosec":1795223000000000}}}`)
	body := append([]byte{'['}, bytes.Repeat(append(one, ','), 1000)...)
	body[len(body)-1] = ']'
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if items, err := split(body); err != nil || len(items) != 1000 {
			b.Fatal(len(items), err)
		}
	}
}

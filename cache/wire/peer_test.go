package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/cache/protocol"
)

const (
	p1 = "tcp://10.0.0.1:6000"
	p2 = "tcp://10.0.0.2:6000"
	p3 = "tcp://10.0.0.3:6000"
	t0 = 1479145000000
)

// frames reads "2a | P1 | ()": hexadecimal, names of peers and empty frames.
func frames(t testing.TB, text string) [][]byte {
	t.Helper()
	names := map[string]string{"P1": p1, "P2": p2, "P3": p3, "()": ""}
	var out [][]byte
	for part := range strings.SplitSeq(text, "|") {
		part = strings.TrimSpace(part)
		if name, ok := names[part]; ok {
			out = append(out, []byte(name))
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(part, " ", ""))
		if err != nil {
			t.Fatalf("%q: %v", part, err)
		}
		out = append(out, b)
	}
	return out
}

func show(frames [][]byte) string {
	var parts []string
	for _, f := range frames {
		parts = append(parts, hex.EncodeToString(f))
	}
	return strings.Join(parts, " | ")
}

func update(term, expire, made int64, value string) protocol.Entry {
	return protocol.Entry{Term: term, Expire: expire, Made: made, Value: []byte(value), Digest: protocol.Digest([]byte(value))}
}

// vectors are what the original sends.
var vectors = []struct {
	to     string
	m      protocol.Message
	frames string
}{
	{"", protocol.Question{Key: "foo"}, "2a | P1 | 51 | 666f6f | 00"},
	{p2, protocol.Question{Key: "foo", Term: 258}, "P2 | P1 | 51 | 666f6f | 0201"},
	{p2, protocol.EntryReq{Key: "foo"}, "P2 | P1 | 45 | 666f6f"},
	{"", protocol.Announce{Key: "foo", Term: 1}, "2a | P1 | 21 | 666f6f | 01 | 00"},
	{"", protocol.Announce{Key: "foo", Term: 1, Expire: t0}, "2a | P1 | 21 | 666f6f | 01 | 408ce9635801"},
	{"", protocol.Update{Key: "foo", Entry: update(1, t0+3600000, 0, "bar")}, "2a | P1 | 3d | 666f6f | 01 | c07a20645801 | 626172"},
	{"", protocol.Update{Key: "foo", Entry: update(0, t0+3600000, 0, "")}, "2a | P1 | 3d | 666f6f | 00 | c07a20645801 | ()"},
	{p2, protocol.Answer{Key: "q1", Term: 3, Yes: true}, "P2 | P1 | 41 | 7131 | 03 | 00 | 01"},
	{p3, protocol.Answer{Key: "q1", Term: 3}, "P3 | P1 | 41 | 7131 | 03 | 00 | ()"},
	{p2, protocol.Answer{Key: "foo", Term: 2, Expire: t0 + 3600000}, "P2 | P1 | 41 | 666f6f | 02 | c07a20645801 | ()"},
	{p2, protocol.Update{Key: "foo", Entry: update(2, t0+3600000, 0, "bar")}, "P2 | P1 | 3d | 666f6f | 02 | c07a20645801 | 626172"},
	// Of a running cluster of both kinds: the original has taken over a term of the wall clock.
	{p2, protocol.Answer{Key: "kb", Term: 1795293038793, Expire: 1795293037287, Yes: true}, "P2 | P1 | 41 | 6b62 | c9c8cdffa101 | e7c2cdffa101 | 01"},
	{"", protocol.Question{Key: "ka", Term: 2}, "2a | P1 | 51 | 6b61 | 02"},
	{"", protocol.Announce{Key: "ka", Term: 2, Expire: 1795293037114}, "2a | P1 | 21 | 6b61 | 02 | 3ac2cdffa101"},
	{p2, protocol.Update{Key: "ka", Entry: update(1795293043319, 1795293041785, 0, "v3 of ka by o0")},
		"P2 | P1 | 3d | 6b61 | 77dacdffa101 | 79d4cdffa101 | 7633206f66206b61206279206f30"},
	{"", protocol.Ping{}, "2a | P1 | 2e"},
	{p2, protocol.Pong{}, "P2 | P1 | 2d"},
}

// extensions are what the original ignores: they stand here so that they stay as
// they are.
var extensions = []struct {
	to     string
	m      protocol.Message
	frames string
}{
	{"", protocol.Question{Key: "foo", Term: 1, ListNumber: 7}, "2a | P1 | 51 | 666f6f | 01 | 07"},
	{"", protocol.Question{Key: "foo", Term: 1, MinExpire: 9}, "2a | P1 | 51 | 666f6f | 01 | 00 | 09"},
	{"", protocol.Question{Key: "foo", Term: 1, ListNumber: 7, MinExpire: 9}, "2a | P1 | 51 | 666f6f | 01 | 07 | 09"},
	{"", protocol.Announce{Key: "foo", Term: 1, Stamp: 5}, "2a | P1 | 21 | 666f6f | 01 | 00 | 05"},
	{"", protocol.Announce{Key: "foo", Term: 1, Stamp: 5, ListNumber: 7}, "2a | P1 | 21 | 666f6f | 01 | 00 | 05 | 07"},
	{"", protocol.Announce{Key: "foo", Term: 1, ListNumber: 7}, "2a | P1 | 21 | 666f6f | 01 | 00 | 00 | 07"},
	{"", protocol.Update{Key: "foo", Entry: update(1, t0, 4, "bar")}, "2a | P1 | 3d | 666f6f | 01 | 408ce9635801 | 626172 | 04"},
	{"", protocol.Hello{Incarnation: math.MaxUint64, Echo: 2, ListNumber: 3, Members: 4, Wall: 5, Busy: true, HasStorage: true},
		"2a | P1 | 68 | ffffffffffffffff | 0000000000000002 | 03 | 0000000000000004 | 05 | 03"},
	{p2, protocol.Hello{Incarnation: 1, HasStorage: true}, "P2 | P1 | 68 | 0000000000000001 | 0000000000000000 | 00 | 0000000000000000 | 00 | 02"},
	{p2, protocol.Hello{Incarnation: 1, Busy: true}, "P2 | P1 | 68 | 0000000000000001 | 0000000000000000 | 00 | 0000000000000000 | 00 | 01"},
	{p2, protocol.Ack{Key: "foo", Term: 1, Stamp: 2}, "P2 | P1 | 6b | 666f6f | 01 | 02"},
	{"", protocol.Release{Key: "foo", Term: 1}, "2a | P1 | 72 | 666f6f | 01"},
	{"", protocol.Release{Key: "foo", Term: 1, Used: true}, "2a | P1 | 72 | 666f6f | 01 | 01"},
	{"", protocol.Failed{Key: "foo", Term: 1, Wait: 1000, Count: 2, Text: "no"}, "2a | P1 | 66 | 666f6f | 01 | e803 | 02 | 6e6f"},
	{"", protocol.Remove{Removal: protocol.Removal{Scope: protocol.OneKey, Name: "foo", Term: 1}}, "2a | P1 | 78 | 6b | 666f6f | 01"},
	{p2, protocol.Removed{Removal: protocol.Removal{Scope: protocol.PrefixKey, Term: 1}}, "P2 | P1 | 58 | 70 | () | 01"},
	{p2, protocol.FetchReq{Key: "foo"}, "P2 | P1 | 46 | 666f6f"},
	{p2, protocol.MembersList{Members: []protocol.Member{{URL: p1, API: p2}}}, "P2 | P1 | 6d | 67 | 0000000000000000 | 00 | 00 | 01 | 00 | P1 | P2"},
}

func TestVectors(t *testing.T) {
	for _, v := range slices.Concat(vectors, extensions) {
		want := frames(t, v.frames)
		got := Codec{Self: p1}.Encode(nil, v.to, p1, v.m)
		if show(got) != show(want) {
			t.Errorf("%+v encodes to\n%s, want\n%s", v.m, show(got), show(want))
		}
		from, m, err := Codec{Self: v.to}.Decode(want)
		if err != nil || from != p1 {
			t.Errorf("%s: from %q, %v", v.frames, from, err)
		}
		if diff := cmp.Diff(v.m, m); diff != "" {
			t.Errorf("%s: %s", v.frames, diff)
		}
	}
}

// TestEveryFieldTravels catches a field that was added to a message and forgotten
// here.
func TestEveryFieldTravels(t *testing.T) {
	seen := map[reflect.Type]bool{}
	for _, v := range slices.Concat(vectors, extensions) {
		typ := reflect.TypeOf(v.m)
		if seen[typ] {
			continue
		}
		seen[typ] = true
		filled := reflect.New(typ).Elem()
		fill(t, filled)
		want := filled.Interface().(protocol.Message)
		switch m := want.(type) {
		case protocol.Update:
			m.Entry.Digest, m.Entry.Used = protocol.Digest(m.Entry.Value), 0
			want = m
		case protocol.Remove:
			m.Removal.Scope = protocol.OneKey
			want = m
		case protocol.Removed:
			m.Removal.Scope = protocol.PrefixKey
			want = m
		}
		_, got, err := Codec{}.Decode(Codec{}.Encode(nil, "", p1, want))
		if err != nil {
			t.Errorf("%T: %v", want, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%T: %s", want, diff)
		}
	}
	if len(seen) != 15 {
		t.Errorf("%d types of messages, want 15", len(seen))
	}
}

func fill(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(t, field)
		}
	case reflect.String:
		v.SetString("tcp://host:1")
	case reflect.Int64:
		v.SetInt(300)
	case reflect.Uint64, reflect.Uint8:
		v.SetUint(7)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	default:
		t.Fatalf("no value for %s", v.Type())
	}
}

func TestUint(t *testing.T) {
	for n, want := range map[int64]string{
		0: "00", 1: "01", 127: "7f", 128: "80", 255: "ff", 256: "0001", 257: "0101", 258: "0201", 65535: "ffff", 65536: "000001",
		16777215: "ffffff", 16777216: "00000001", 4294967295: "ffffffff", 4294967296: "0000000001", 1099511627776: "000000000001",
		1479145000000: "408ce9635801", 1479148600000: "c07a20645801", 1479145005000: "c89fe9635801",
		281474976710655: "ffffffffffff", 281474976710656: "00000000000001", 9007199254740991: "ffffffffffff1f",
	} {
		if got := hex.EncodeToString(appendUint(nil, n)); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
		b, _ := hex.DecodeString(want)
		if got, err := parseUint(b); got != n || err != nil {
			t.Errorf("%s is %d, %v, want %d", want, got, err, n)
		}
	}
	for text, want := range map[string]int64{"0000": 0, "2a000000": 42, "ffffffffffff1f000000": protocol.MaxWireNumber, "01" + strings.Repeat("00", 40): 1} {
		b, _ := hex.DecodeString(text)
		if got, err := parseUint(b); got != want || err != nil {
			t.Errorf("%s is %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "00000000000020", "ffffffffffffffff", "0000000000000001", "000000000000000001", strings.Repeat("00", 40) + "01"} {
		b, _ := hex.DecodeString(text)
		if got, err := parseUint(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s is %d, %v, want an error", text, got, err)
		}
	}
	if got := appendUint(nil, -1); !bytes.Equal(got, []byte{0}) {
		t.Errorf("-1 is %x", got)
	}
	if got := appendUint(nil, math.MaxInt64); hex.EncodeToString(got) != "ffffffffffff1f" {
		t.Errorf("the largest is %x", got)
	}
}

func TestRefused(t *testing.T) {
	long := func(n int) string { return strings.Repeat("61", n) }
	for _, c := range []struct {
		why, frames string
		want        error
	}{
		{"no frames", "()", ErrMalformed},
		{"no type", "2a | P1", ErrMalformed},
		{"an empty type", "2a | P1 | ()", ErrMalformed},
		{"a type of two bytes", "2a | P1 | 5151 | 666f6f | 00", ErrMalformed},
		{"an unknown type", "2a | P1 | 7a", ErrUnknown},
		{"no target", "() | P1 | 2e", ErrTarget},
		{"the target of another", "P3 | P1 | 2e", ErrTarget},
		{"a target that begins with ours", hex.EncodeToString([]byte(p2+"9")) + " | P1 | 2e", ErrTarget},
		{"a target that begins with a star", "2a2a | P1 | 2e", ErrTarget},
		{"no sender", "2a | () | 2e", ErrMalformed},
		{"a long sender", "2a | " + long(256) + " | 2e", ErrMalformed},
		{"QUESTION without key", "2a | P1 | 51", ErrMalformed},
		{"QUESTION with an empty key", "2a | P1 | 51 | () | 00", ErrMalformed},
		{"QUESTION with a long key", "2a | P1 | 51 | " + long(9) + " | 00", ErrMalformed},
		{"QUESTION without term", "2a | P1 | 51 | 666f6f", ErrMalformed},
		{"QUESTION with a large term", "2a | P1 | 51 | 666f6f | ffffffffffffffff", ErrMalformed},
		{"QUESTION with a large config", "2a | P1 | 51 | 666f6f | 00 | ffffffffffffffff", ErrMalformed},
		{"QUESTION with a large since", "2a | P1 | 51 | 666f6f | 00 | 00 | ffffffffffffffff", ErrMalformed},
		{"ANSWER without expire", "2a | P1 | 41 | 666f6f | 00", ErrMalformed},
		{"ANSWER with an empty term", "2a | P1 | 41 | 666f6f | () | 00 | 01", ErrMalformed},
		{"ANSWER without vote", "2a | P1 | 41 | 666f6f | 00 | 00", ErrMalformed},
		{"ENTRYREQ without key", "2a | P1 | 45", ErrMalformed},
		{"ANNOUNCE without expire", "2a | P1 | 21 | 666f6f | 00", ErrMalformed},
		{"ANNOUNCE with an empty expire", "2a | P1 | 21 | 666f6f | 00 | ()", ErrMalformed},
		{"UPDATE without value", "2a | P1 | 3d | 666f6f | 00 | 01", ErrMalformed},
		{"UPDATE without copy", "2a | P1 | 3d | 666f6f | 00 | 00 | 626172", ErrMalformed},
		{"UPDATE with a long value", "2a | P1 | 3d | 666f6f | 00 | 01 | " + long(17), ErrMalformed},
		{"HELLO without flags", "2a | P1 | 68 | 0000000000000001 | 0000000000000000 | 00 | 0000000000000000 | 00", ErrMalformed},
		{"HELLO of incarnation 0", "2a | P1 | 68 | 0000000000000000 | 0000000000000000 | 00 | 0000000000000000 | 00 | 00", ErrMalformed},
		{"HELLO with a short mark", "2a | P1 | 68 | 00000000000001 | 0000000000000000 | 00 | 0000000000000000 | 00 | 00", ErrMalformed},
		{"ACK without stamp", "2a | P1 | 6b | 666f6f | 00", ErrMalformed},
		{"RELEASE without term", "2a | P1 | 72 | 666f6f", ErrMalformed},
		{"FAILED with a long text", "2a | P1 | 66 | 666f6f | 00 | 00 | 00 | " + long(1025), ErrMalformed},
		{"REMOVE without scope", "2a | P1 | 78", ErrMalformed},
		{"REMOVE with a strange scope", "2a | P1 | 78 | 7a | 666f6f | 01", ErrMalformed},
		{"REMOVE of the empty key", "2a | P1 | 78 | 6b | () | 01", ErrMalformed},
		{"MEMBERS of another step", "2a | P1 | 6d | 70 | 0000000000000000 | 01 | 00 | 03 | 00", ErrUnknown},
		{"MEMBERS with half a member", "2a | P1 | 6d | 67 | 0000000000000000 | 01 | 00 | 03 | P1", ErrMalformed},
		{"MEMBERS with a strange address", "2a | P1 | 6d | 67 | 0000000000000000 | 01 | 00 | 03 | P1 | 666f6f", ErrMalformed},
		{"MEMBERS with 16 members", "2a | P1 | 6d | 67 | 0000000000000000 | 01 | 00 | 03" + strings.Repeat(" | P1 | P2", 16), ErrMalformed},
	} {
		_, m, err := Codec{Self: p2, MaxKey: 8, MaxValue: 16}.Decode(frames(t, c.frames))
		if !errors.Is(err, c.want) || m != nil {
			t.Errorf("%s: %+v, %v, want %v", c.why, m, err, c.want)
		}
	}
	for _, none := range [][][]byte{nil, {}, {nil, nil, nil}} {
		if _, _, err := (Codec{}).Decode(none); err == nil {
			t.Errorf("%v was accepted", none)
		}
	}
}

// TestAccepted has what is unusual and no fault.
func TestAccepted(t *testing.T) {
	for _, c := range []struct {
		why, frames string
		want        protocol.Message
	}{
		{"an empty term in a QUESTION is 0", "2a | P1 | 51 | 666f6f | ()", protocol.Question{Key: "foo"}},
		{"empty extra frames are 0", "2a | P1 | 51 | 666f6f | 01 | () | 05", protocol.Question{Key: "foo", Term: 1, MinExpire: 5}},
		{"zeros at the end", "2a | P1 | 51 | 666f6f | 01000000000000000000", protocol.Question{Key: "foo", Term: 1}},
		{"frames that are not known yet", "2a | P1 | 2e | 01 | 02", protocol.Ping{}},
		{"a vote of another byte", "2a | P1 | 41 | 666f6f | 00 | 00 | 0200", protocol.Answer{Key: "foo", Yes: true}},
		{"a vote of a zero byte", "2a | P1 | 41 | 666f6f | 00 | 00 | 0001", protocol.Answer{Key: "foo"}},
		{"a text that is none", "2a | P1 | 66 | 666f6f | 00 | 00 | 00 | ff", protocol.Failed{Key: "foo", Text: "?"}},
	} {
		_, m, err := Codec{Self: p2}.Decode(frames(t, c.frames))
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
		}
		if diff := cmp.Diff(c.want, m); diff != "" {
			t.Errorf("%s: %s", c.why, diff)
		}
	}
}

// TestEveryCut cuts every message after each frame: what is left is refused or means
// what a message without extras means, and nothing panics.
func TestEveryCut(t *testing.T) {
	for _, v := range slices.Concat(vectors, extensions) {
		whole := frames(t, v.frames)
		for n := range whole {
			_, _, err := Codec{Self: v.to}.Decode(whole[:n])
			optional := false
			switch v.m.(type) {
			case protocol.Question:
				optional = n >= 5
			case protocol.Announce:
				optional = n >= 6
			case protocol.Update:
				optional = n >= 7
			case protocol.Release:
				optional = n >= 5
			case protocol.MembersList:
				optional = n == 9
			}
			if (err == nil) != optional {
				t.Errorf("%s, cut to %d frames: %v", v.frames, n, err)
			}
		}
	}
}

func TestDecodeCopies(t *testing.T) {
	in := frames(t, "P2 | P1 | 3d | 666f6f | 01 | c07a20645801 | 626172")
	from, m, err := Codec{Self: p2}.Decode(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range in {
		for i := range f {
			f[i] = 'z'
		}
	}
	if diff := cmp.Diff(protocol.Message(protocol.Update{Key: "foo", Entry: update(1, t0+3600000, 0, "bar")}), m); diff != "" || from != p1 {
		t.Errorf("what was decoded changed with the frames: %q, %s", from, diff)
	}
}

func TestMAC(t *testing.T) {
	open, a, b := Codec{Self: p2}, Codec{Self: p2, Secret: []byte("sixteen bytes: a")}, Codec{Self: p2, Secret: []byte("sixteen bytes: b")}
	for _, v := range slices.Concat(vectors, extensions) {
		to := ""
		if v.to != "" {
			to = p2
		}
		signed, plain := a.Encode(nil, to, p1, v.m), open.Encode(nil, to, p1, v.m)
		if _, m, err := a.Decode(signed); err != nil || !cmp.Equal(m, v.m) {
			t.Errorf("%T: %v", v.m, err)
		}
		for why, err := range map[string]error{
			"another secret": third(b.Decode(signed)),
			"no secret":      third(open.Decode(signed)),
			"no MAC":         third(a.Decode(plain)),
		} {
			if !errors.Is(err, ErrAuth) {
				t.Errorf("%T, %s: %v", v.m, why, err)
			}
		}
		for i, f := range signed {
			for at := range f {
				f[at] ^= 0x40
				if err := third(a.Decode(signed)); err == nil {
					t.Errorf("%T: accepted with frame %d changed at %d", v.m, i, at)
				}
				f[at] ^= 0x40
			}
		}
		if err := third(a.Decode(append(slices.Clone(signed), nil))); !errors.Is(err, ErrAuth) {
			t.Errorf("%T: accepted with one more frame: %v", v.m, err)
		}
	}
}

func third(_ string, _ protocol.Message, err error) error { return err }

// TestMACBorders moves bytes between frames: the MAC must change, although the
// bytes one after the other are the same. A sum without the lengths must be caught.
func TestMACBorders(t *testing.T) {
	same := [][][]byte{
		frames(t, "2a | P1 | 6b | 6162 | 6364"),
		frames(t, "2a | P1 | 6b | 616263 | 64"),
		frames(t, "2a | P1 | 6b | 61626364"),
		frames(t, "2a | P1 | 6b | 61626364 | ()"),
		frames(t, "2a50 | P1 | 6b | 61626364"),
		frames(t, "2a | P1 | 61 | 6b | 626364"),
		frames(t, "2a | P1 | 6b | 00000000000000016162 | 63"),
	}
	c := Codec{Secret: []byte("sixteen bytes: a")}
	seen, naive := map[string]int{}, map[string]int{}
	for i, m := range same {
		sum := string(c.sum(nil, m))
		if other, ok := seen[sum]; ok {
			t.Errorf("messages %d and %d have the same MAC", i, other)
		}
		seen[sum] = i
		naive[string(bytes.Join(m, nil))]++
	}
	if len(naive) == len(same) {
		t.Error("these messages would not catch a MAC without lengths")
	}
}

func TestEncodeAppends(t *testing.T) {
	c := Codec{Secret: []byte("sixteen bytes: a")}
	got := c.Encode([][]byte{[]byte("before")}, "", p1, protocol.Ping{})
	if len(got) != 4 || string(got[0]) != "before" {
		t.Fatalf("%q", got)
	}
	if err := third(c.Decode(got[1:])); err != nil {
		t.Error(err)
	}
}

func TestTextIsCut(t *testing.T) {
	text := strings.Repeat("ä", 1000)
	_, m, err := Codec{}.Decode(Codec{}.Encode(nil, "", p1, protocol.Failed{Key: "k", Text: text}))
	if err != nil || m.(protocol.Failed).Text != text[:maxText] {
		t.Errorf("%v, %v", m, err)
	}
	text = "a" + text
	_, m, err = Codec{}.Decode(Codec{}.Encode(nil, "", p1, protocol.Failed{Key: "k", Text: text}))
	if err != nil || m.(protocol.Failed).Text != text[:maxText-1] {
		t.Errorf("%v, %v", m, err)
	}
}

func FuzzPeer(f *testing.F) {
	for _, v := range slices.Concat(vectors, extensions) {
		f.Add(pack(frames(f, v.frames)), false)
		f.Add(pack(Codec{Secret: []byte("secret")}.Encode(nil, v.to, p1, v.m)), true)
	}
	f.Fuzz(func(t *testing.T, packed []byte, secret bool) {
		c := Codec{Self: p2, MaxKey: 64, MaxValue: 256}
		if secret {
			c.Secret = []byte("secret")
		}
		from, m, err := c.Decode(unpack(packed))
		if err != nil {
			if m != nil {
				t.Fatalf("%v with %v", m, err)
			}
			return
		}
		from2, again, err := c.Decode(c.Encode(nil, c.Self, from, m))
		if err != nil || from2 != from || !cmp.Equal(m, again) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}

// pack makes one string of frames for the fuzzer: each with its length, up to 255
// bytes, before it.
func pack(frames [][]byte) []byte {
	var out []byte
	for _, f := range frames {
		out = append(append(out, byte(len(f))), f...)
	}
	return out
}

func unpack(b []byte) [][]byte {
	var out [][]byte
	for len(b) > 0 {
		n := min(int(b[0]), len(b)-1)
		out = append(out, b[1:1+n])
		b = b[1+n:]
	}
	return out
}

func BenchmarkPeer(b *testing.B) {
	for _, secret := range []string{"", "sixteen bytes: a"} {
		c := Codec{Self: p2}
		if secret != "" {
			c.Secret = []byte(secret)
		}
		b.Run(fmt.Sprintf("secret=%t", secret != ""), func(b *testing.B) {
			b.ReportAllocs()
			var dst [][]byte
			for b.Loop() {
				dst = c.Encode(dst[:0], p2, p1, protocol.Question{Key: "some/key", Term: t0, ListNumber: 1})
				if _, _, err := c.Decode(dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

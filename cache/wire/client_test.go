package wire

import (
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var servers = []string{"tcp://10.0.0.1:6001", "tcp://10.0.0.2:6001", "tcp://10.0.0.3:6001"}

const serversHex = "93 b3 7463703a2f2f31302e302e302e313a36303031 b3 7463703a2f2f31302e302e302e323a36303031 b3 7463703a2f2f31302e302e302e333a36303031"

func TestRequestVectors(t *testing.T) {
	for _, v := range []struct {
		r      Request
		frames string
	}{
		{Request{ID: []byte("1"), Op: OpGet, Expire: t0 + 5000, Key: []byte("foo")}, "31 | 3f | c89fe9635801 | 666f6f"},
		{Request{ID: []byte("2"), Op: OpGet, Expire: t0 + 5000, Key: []byte("foo"), After: t0}, "32 | 3f | c89fe9635801 | 666f6f | 408ce9635801"},
		{Request{ID: []byte("4"), Op: OpGet, Expire: t0 + 5000, Key: []byte("foo"), Extended: true, Patience: 5000},
			"34 | 3f | c89fe9635801 | 666f6f | 00 | 01 | 8813"},
		{Request{ID: []byte("5"), Op: OpGet, Expire: t0 + 5000, Key: []byte("foo"), After: t0, Extended: true, Refresh: true, Patience: 1},
			"35 | 3f | c89fe9635801 | 666f6f | 408ce9635801 | 03 | 01"},
		{Request{ID: []byte("3"), Op: OpDiscover, Expire: t0 + 5000}, "33 | 2a | c89fe9635801"},
		{Request{ID: []byte("6"), Op: OpDiscover, Expire: t0 + 5000, Extended: true, Patience: 2}, "36 | 2a | c89fe9635801 | () | () | 01 | 02"},
	} {
		want := frames(t, v.frames)
		if got := new(Encoder).Request(&v.r); v.r.Op == OpGet && show(got) != show(want) {
			t.Errorf("%+v encodes to\n%s, want\n%s", v.r, show(got), show(want))
		}
		var got Request
		if err := got.Decode(want); err != nil {
			t.Errorf("%s: %v", v.frames, err)
		}
		if diff := cmp.Diff(v.r, got); diff != "" {
			t.Errorf("%s: %s", v.frames, diff)
		}
	}
}

func TestReplyVectors(t *testing.T) {
	one := []byte("1")
	for _, v := range []struct {
		r        Reply
		extended bool
		frames   string
	}{
		{Reply{ID: []byte("2")}, false, "32"},
		{Reply{ID: []byte("2"), Kind: ReplySeeOther}, false, "32 | 23"},
		{Reply{ID: []byte("2"), Kind: ReplyValue, Value: []byte("bar"), Expire: t0 + 3600000}, false, "32 | 3d | 626172 | c07a20645801"},
		{Reply{ID: one, Kind: ReplyValue, Value: []byte{}, Expire: 1, Made: 2, Term: 3}, true, "31 | 3d | () | 01 | 02 | 03"},
		{Reply{ID: one, Kind: ReplyValue, Value: []byte{}, Expire: 1, Term: 3}, true, "31 | 3d | () | 01 | 00 | 03"},
		{Reply{ID: one, Kind: ReplyError, Code: CodeFailed, Retry: 1500 * time.Millisecond, Text: "no"}, true, "31 | 21 | 6661696c6564 | dc05 | 6e6f"},
		{Reply{ID: one, Kind: ReplyError, Code: CodeNotFound}, true, "31 | 21 | 6e6f742d666f756e64 | 00 | ()"},
	} {
		want := frames(t, v.frames)
		if got := new(Encoder).Reply(&v.r, v.extended); show(got) != show(want) {
			t.Errorf("%+v encodes to\n%s, want\n%s", v.r, show(got), show(want))
		}
		var got Reply
		if err := got.Decode(want); err != nil {
			t.Errorf("%s: %v", v.frames, err)
		}
		if diff := cmp.Diff(v.r, got); diff != "" {
			t.Errorf("%s: %s", v.frames, diff)
		}
	}
}

// TestOriginalClient has what a client that does not know the extension is sent.
func TestOriginalClient(t *testing.T) {
	for _, v := range []struct {
		r    Reply
		want string
	}{
		{Reply{ID: []byte("1"), Kind: ReplyServers, Servers: servers}, "31 | 2a | " + serversHex},
		{Reply{ID: []byte("1"), Kind: ReplyServers, Servers: []string{}}, "31 | 2a | 90"},
		{Reply{ID: []byte("1"), Kind: ReplyValue, Value: []byte("bar"), Expire: 1, Made: 2, Term: 3}, "31 | 3d | 626172 | 01"},
	} {
		if got := new(Encoder).Reply(&v.r, false); show(got) != show(frames(t, v.want)) {
			t.Errorf("%+v encodes to %s, want %s", v.r, show(got), v.want)
		}
	}
}

func TestBadRequests(t *testing.T) {
	for _, c := range []struct {
		why, frames string
		want        error
		id          string
		extended    bool
	}{
		{"one frame", "31", ErrMalformed, "", false},
		{"no expiry", "31 | 3f", ErrMalformed, "", false},
		{"no id", "() | 3f | 01 | 666f6f", ErrMalformed, "", false},
		{"a long id", strings.Repeat("31", 65) + " | 3f | 01 | 666f6f", ErrMalformed, "", false},
		{"no operation", "31 | () | 01 | 666f6f", ErrMalformed, "1", false},
		{"an operation of two bytes", "31 | 3f3f | 01 | 666f6f", ErrMalformed, "1", false},
		{"an unknown operation", "31 | 7a | 01 | 666f6f", ErrUnknown, "1", false},
		{"an empty expiry", "31 | 3f | () | 666f6f", ErrMalformed, "1", false},
		{"the expiry that kills the original", "31 | 3f | ffffffffffffffff | 666f6f", ErrMalformed, "1", false},
		{"the same in a DISCOVER", "31 | 2a | ffffffffffffffff", ErrMalformed, "1", false},
		{"no key", "31 | 3f | 01", ErrMalformed, "1", false},
		{"an empty key", "31 | 3f | 01 | ()", ErrMalformed, "1", false},
		{"a large after", "31 | 3f | 01 | 666f6f | ffffffffffffffff", ErrMalformed, "1", false},
		{"large flags", "31 | 3f | 01 | 666f6f | 00 | ffffffffffffffff", ErrMalformed, "1", false},
		{"a large patience", "31 | 3f | 01 | 666f6f | 00 | 01 | ffffffffffffffff", ErrMalformed, "1", true},
		{"an empty key, told", "31 | 3f | 01 | () | 00 | 01 | 01", ErrMalformed, "1", true},
		{"an unknown operation, told", "31 | 7a | 01 | () | 00 | 01 | 01", ErrUnknown, "1", true},
	} {
		var r Request
		err := r.Decode(frames(t, c.frames))
		if !errors.Is(err, c.want) || string(r.ID) != c.id || r.Extended != c.extended {
			t.Errorf("%s: %v, id %q, extended %t", c.why, err, r.ID, r.Extended)
		}
	}
	var r Request
	if err := r.Decode(nil); !errors.Is(err, ErrMalformed) {
		t.Errorf("no frames: %v", err)
	}
	for why, text := range map[string]string{
		"an empty after":    "31 | 3f | 01 | 666f6f | ()",
		"flags of others":   "31 | 3f | 01 | 666f6f | 00 | 04 | ffffffffffffffff",
		"unknown frames":    "31 | 3f | 01 | 666f6f | 00 | 00 | 00 | 01",
		"an extra DISCOVER": "31 | 2a | 01 | 666f6f",
		"no patience":       "31 | 3f | 01 | 666f6f | () | 01",
	} {
		if err := r.Decode(frames(t, text)); err != nil || r.Patience != 0 {
			t.Errorf("%s: %+v, %v", why, r, err)
		}
	}
}

func TestBadReplies(t *testing.T) {
	for why, text := range map[string]string{
		"no id":               "()",
		"a long id":           strings.Repeat("31", 65),
		"a type of two bytes": "31 | 3d3d | 626172 | 01",
		"an empty type":       "31 | ()",
		"no value":            "31 | 3d",
		"no expiry":           "31 | 3d | 626172",
		"an empty expiry":     "31 | 3d | 626172 | ()",
		"a large expiry":      "31 | 3d | 626172 | ffffffffffffffff",
		"a large made":        "31 | 3d | 626172 | 01 | ffffffffffffffff",
		"a large term":        "31 | 3d | 626172 | 01 | 01 | ffffffffffffffff",
		"no code":             "31 | 21",
		"an empty code":       "31 | 21 | () | 00 | ()",
		"an empty retry":      "31 | 21 | 61 | () | ()",
		"no text":             "31 | 21 | 61 | 00",
		"a long text":         "31 | 21 | 61 | 00 | " + strings.Repeat("61", 1025),
	} {
		var r Reply
		if err := r.Decode(frames(t, text)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", why, r, err)
		}
	}
	var r Reply
	for _, text := range []string{"31 | 7a", "31 | 2a | " + serversHex} {
		if err := r.Decode(frames(t, text)); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := r.Decode(nil); !errors.Is(err, ErrMalformed) {
		t.Errorf("no frames: %v", err)
	}
	if err := r.Decode(frames(t, "31 | 21 | 61 | ffffffffffff1f | ()")); err != nil || r.Retry != maxRetry {
		t.Errorf("a retry in a thousand years: %v, %v", r.Retry, err)
	}
}

func TestServers(t *testing.T) {
	forty := "tcp://" + strings.Repeat("h", 29) + ":6001"
	for want, list := range map[string][]string{
		"91d928" + hex.EncodeToString([]byte(forty)): {forty},
		"dc0010" + strings.Repeat("a161", 16):        slices.Repeat([]string{"a"}, 16),
		"dc0400" + strings.Repeat("a161", 1024):      slices.Repeat([]string{"a"}, maxServers+1),
		"92a0a161":                                   {"", "a"},
	} {
		if got := hex.EncodeToString(appendStrings(nil, list)); got != want {
			t.Errorf("%d servers: %s, want %s", len(list), got, want)
		}
	}
}

func TestWait(t *testing.T) {
	for _, c := range []struct {
		r    Request
		want time.Duration
	}{
		{Request{Expire: t0 + 5000}, 5 * time.Second},
		{Request{Expire: t0}, 0},
		{Request{Expire: 1}, 0},
		{Request{Expire: 1, Patience: 300}, 300 * time.Millisecond}, // its clock does not matter
		{Request{Expire: math.MaxInt64}, time.Hour},
		{Request{Patience: math.MaxInt64}, time.Hour},
	} {
		if got := c.r.Wait(t0); got != c.want {
			t.Errorf("%+v waits for %v, want %v", c.r, got, c.want)
		}
	}
}

func TestIDs(t *testing.T) {
	var all []string
	for n := range uint32(39) {
		all = append(all, string(AppendID(nil, n+1)))
	}
	if got, want := strings.Join(all, " "), "1 2 3 4 5 6 7 8 9 a b c d e f g h i j k l m n o p q r s t u v w x y z 10 11 12 13"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, n := range []uint32{0, 1, 35, 36, 1 << 31, math.MaxUint32} {
		if got, ok := ParseID(AppendID(nil, n)); got != n || !ok {
			t.Errorf("%d became %d, %t", n, got, ok)
		}
	}
	for _, bad := range []string{"", "01", "00", "A", "-1", "+1", "1_0", "zzzzzzzz", "zzzzzzz", "1z141z4", " 1"} {
		if n, ok := ParseID([]byte(bad)); ok {
			t.Errorf("%q is %d", bad, n)
		}
	}
}

// TestHotPath keeps a GET and its VALUE from taking memory.
func TestHotPath(t *testing.T) {
	var client, server Encoder
	key, value, id := []byte("some/key"), make([]byte, 100), []byte("1z141z3")
	got := testing.AllocsPerRun(100, func() {
		var q Request
		if err := q.Decode(client.Request(&Request{ID: id, Op: OpGet, Expire: t0, Key: key, Extended: true, Patience: 5000})); err != nil {
			t.Fatal(err)
		}
		var r Reply
		if err := r.Decode(server.Reply(&Reply{ID: q.ID, Kind: ReplyValue, Value: value, Expire: t0, Made: t0, Term: t0}, q.Extended)); err != nil {
			t.Fatal(err)
		}
	})
	if got > 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestEncoderLetsGo(t *testing.T) {
	var e Encoder
	e.Reply(&Reply{ID: []byte("1"), Kind: ReplyValue, Value: make([]byte, 100), Expire: 1}, false)
	e.Reply(&Reply{ID: []byte("1")}, false)
	for i, f := range e.b.frames[:4] {
		if i > 0 && f != nil {
			t.Errorf("frame %d is still held", i)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add(pack(frames(f, "31 | 3f | c89fe9635801 | 666f6f")))
	f.Add(pack(frames(f, "35 | 3f | c89fe9635801 | 666f6f | 408ce9635801 | 03 | 01")))
	f.Add(pack(frames(f, "33 | 2a | c89fe9635801")))
	f.Add(pack(frames(f, "36 | 2a | c89fe9635801 | () | () | 01 | 02")))
	f.Fuzz(func(t *testing.T, packed []byte) {
		var a, b Request
		if a.Decode(unpack(packed)) != nil || a.Op != OpGet {
			return
		}
		if err := b.Decode(new(Encoder).Request(&a)); err != nil || !cmp.Equal(a, b, cmpopts.EquateEmpty()) {
			t.Fatalf("%+v became %+v, %v", a, b, err)
		}
	})
}

func FuzzReply(f *testing.F) {
	for _, text := range []string{"32", "32 | 23", "32 | 3d | 626172 | c07a20645801",
		"31 | 3d | () | 01 | 02 | 03", "31 | 21 | 6661696c6564 | dc05 | 6e6f"} {
		f.Add(pack(frames(f, text)))
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		var a, b Reply
		if a.Decode(unpack(packed)) != nil {
			return
		}
		if err := b.Decode(new(Encoder).Reply(&a, true)); err != nil || !cmp.Equal(a, b, cmpopts.EquateEmpty()) {
			t.Fatalf("%+v became %+v, %v", a, b, err)
		}
	})
}

func BenchmarkClient(b *testing.B) {
	var client, server Encoder
	key, value, id := []byte("some/key"), make([]byte, 100), []byte("1z141z3")
	b.ReportAllocs()
	for b.Loop() {
		var q Request
		if err := q.Decode(client.Request(&Request{ID: id, Op: OpGet, Expire: t0, Key: key, Extended: true, Patience: 5000})); err != nil {
			b.Fatal(err)
		}
		var r Reply
		if err := r.Decode(server.Reply(&Reply{ID: q.ID, Kind: ReplyValue, Value: value, Expire: t0, Made: t0, Term: t0}, true)); err != nil {
			b.Fatal(err)
		}
	}
}

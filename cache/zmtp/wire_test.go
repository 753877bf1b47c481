package zmtp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

// unhex reads bytes as the specification's captures are written; "text" is itself.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	var out []byte
	for i, part := range strings.Split(s, `"`) {
		if i%2 == 1 {
			out = append(out, part...)
			continue
		}
		b, err := hex.DecodeString(strings.Join(strings.Fields(part), ""))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

// Captured from libzmq 4.3.4.
const (
	greeting31  = `ff 00000000000000 01 7f 03 01 "NULL" 00000000000000000000000000000000 00 ` + filler
	greeting30  = `ff 00000000000000 01 7f 03 00 "NULL" 00000000000000000000000000000000 00 ` + filler
	filler      = `00000000000000000000000000000000000000000000000000000000000000`
	readyPUB    = `04 19 05 "READY" 0b "Socket-Type" 00000003 "PUB"`
	readySUB    = `04 19 05 "READY" 0b "Socket-Type" 00000003 "SUB"`
	readyROUTER = `04 29 05 "READY" 0b "Socket-Type" 00000006 "ROUTER" 08 "Identity" 00000000`
	readyDEALER = `04 29 05 "READY" 0b "Socket-Type" 00000006 "DEALER" 08 "Identity" 00000000`
)

func equal(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	if w := unhex(t, want); !bytes.Equal(got, w) {
		t.Errorf("%s:\n got % x\nwant % x", what, got, w)
	}
}

func TestBytes(t *testing.T) {
	equal(t, "greeting", greeting("NULL", false), greeting31)
	if g := greeting("CURVE", true); len(g) != 64 || g[32] != 1 || string(g[12:18]) != "CURVE\x00" {
		t.Errorf("greeting of a CURVE server: % x", g)
	}
	for kind, want := range map[Kind]string{PUB: readyPUB, SUB: readySUB, ROUTER: readyROUTER, DEALER: readyDEALER} {
		h := null{}.begin(false, kind)
		ready := h.first()
		equal(t, "READY of "+string(kind), appendFrame(nil, flagCommand, ready), want)
	}
	url := "tcp://10.0.0.1:600000"[:19] + "ab" // 21 bytes, like the captured one
	equal(t, "SUBSCRIBE", subscribe(nil, []byte("*"), 1, nil), `04 0b 09 "SUBSCRIBE" 2a`)
	equal(t, "SUBSCRIBE", subscribe(nil, []byte(url), 1, nil), `04 1f 09 "SUBSCRIBE`+url+`"`)
	equal(t, "subscription to 3.0", subscribe(nil, []byte("*"), 0, nil), `00 02 01 2a`)
	equal(t, "subscription to 3.0", subscribe(nil, []byte(url), 0, nil), `00 16 01 "`+url+`"`)

	get := Message{[]byte("1"), []byte("?"), unhex(t, "cdbeb6fba101"), []byte("wire")}
	equal(t, "GET", appendMessage(nil, get, nil), `0101 31 0101 3f 0106 cdbeb6fba101 0004 77697265`)
	long := make([]byte, 300)
	if got := appendMessage(nil, Message{long, long}, nil); !bytes.HasPrefix(got, unhex(t, "03 000000000000012c")) ||
		!bytes.HasPrefix(got[309:], unhex(t, "02 000000000000012c")) {
		t.Errorf("long frames: % x, % x", got[:9], got[309:318])
	}
	if got := appendMessage(nil, Message{long[:255]}, nil); !bytes.HasPrefix(got, []byte{0, 255}) {
		t.Errorf("255 bytes: % x", got[:9])
	}
}

// parseAll feeds an assembler in pieces of the given size.
func parseAll(a *assembler, in []byte, piece int) (messages []Message, commands []string, err error) {
	src := &pieces{in, piece}
	for {
		for {
			it, ok, err := a.next()
			if err != nil {
				return messages, commands, err
			}
			if !ok {
				break
			}
			if it.command != nil {
				commands = append(commands, string(it.command))
			} else {
				messages = append(messages, clone(it.message))
			}
		}
		if len(src.b) == 0 {
			return messages, commands, nil
		}
		if _, err := a.fill(src); err != nil {
			return messages, commands, err
		}
	}
}

type pieces struct {
	b []byte
	n int
}

func (p *pieces) Read(to []byte) (int, error) {
	n := copy(to, p.b[:min(p.n, len(p.b))])
	p.b = p.b[n:]
	return n, nil
}

func TestAssemble(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789"), 20_000)
	want := []Message{text("a"), text("b", "", "c"), {big, big[:1], big}, text(""), {big[:255], big[:256]}}
	for _, sealed := range []bool{false, true} {
		var key [32]byte
		out, in := newSealer(true, &key, 1, 1), newSealer(false, &key, 1, 1)
		if !sealed {
			out, in = nil, nil
		}
		var wire []byte
		for _, m := range want {
			for i, f := range m {
				flags := byte(flagMore)
				if i == len(m)-1 {
					flags = 0
				}
				wire = appendPart(wire, flags, f, out)
				// A libzmq that sends a PING does not wait for the end of a message.
				wire = appendPart(wire, flagCommand, appendCommand(nil, "PING", []byte{0, 0}), out)
			}
		}
		for _, piece := range []int{1, 7, 4096, 1 << 30} {
			if piece == 1 && testing.Short() {
				continue
			}
			a := &assembler{maxBytes: 1 << 20, maxFrames: 4}
			if sealed {
				a.opener = new(*in)
			}
			got, commands, err := parseAll(a, wire, piece)
			if err != nil || len(got) != len(want) || len(commands) != 10 {
				t.Fatalf("sealed %t, pieces of %d: %d messages, %d commands, %v", sealed, piece, len(got), len(commands), err)
			}
			for i := range want {
				same(t, want[i], got[i])
			}
			if len(a.plain) > 0 {
				t.Errorf("%d bytes of text are left behind", len(a.plain))
			}
		}
	}
}

func TestLimits(t *testing.T) {
	ping := appendFrame(nil, flagCommand, appendCommand(nil, "PING", make([]byte, 1000)))
	for name, c := range map[string]struct {
		wire []byte
		want error
	}{
		"longest":              {appendMessage(nil, Message{make([]byte, 1000)}, nil), nil},
		"too long":             {appendMessage(nil, Message{make([]byte, 1001)}, nil), ErrTooLarge},
		"together longest":     {appendMessage(nil, Message{make([]byte, 500), make([]byte, 500)}, nil), nil},
		"together too long":    {appendMessage(nil, Message{make([]byte, 500), make([]byte, 501)}, nil), ErrTooLarge},
		"most frames":          {appendMessage(nil, make(Message, 4), nil), nil},
		"too many frames":      {appendMessage(nil, make(Message, 5), nil), ErrTooLarge},
		"huge, announced only": {unhex(t, "02 7fffffffffffffff"), ErrTooLarge},
		"negative":             {unhex(t, "02 ffffffffffffffff"), ErrTooLarge},
		"huge command":         {unhex(t, "06 0000000000010001"), ErrTooLarge},
		"command with more":    {unhex(t, "05 00"), ErrProtocol},
		"reserved flag":        {unhex(t, "08 00"), ErrProtocol},
		"endless commands":     {append(unhex(t, "01 00"), bytes.Repeat(ping, 1000)...), ErrTooLarge},
	} {
		a := &assembler{maxBytes: 1000, maxFrames: 4}
		if _, _, err := parseAll(a, c.wire, 4096); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if len(a.buf) > 1<<20 {
			t.Errorf("%s: took %d bytes of memory", name, len(a.buf))
		}
	}
}

func TestBufferShrinks(t *testing.T) {
	a := &assembler{maxBytes: 64 << 20, maxFrames: 4}
	if _, _, err := parseAll(a, appendMessage(nil, Message{make([]byte, 5<<20)}, nil), 1<<20); err != nil {
		t.Fatal(err)
	}
	if _, _, err := parseAll(a, appendMessage(nil, text("small"), nil), 1<<20); err != nil {
		t.Fatal(err)
	}
	if len(a.buf) > keptBuffer {
		t.Errorf("%d bytes are kept", len(a.buf))
	}
}

func TestGreetings(t *testing.T) {
	for name, c := range map[string]struct {
		greeting string
		minor    int
		want     error
	}{
		"3.1":           {greeting31, 1, nil},
		"3.0":           {greeting30, 0, nil},
		"4.0":           {strings.Replace(greeting30, "03 00", "04 00", 1), 1, nil},
		"padding":       {strings.Replace(greeting31, "ff 00", "ff 55", 1), 1, nil},
		"ZMTP 2":        {`ff 00000000000000 01 7f 01 05`, 0, ErrVersion},
		"ZMTP 1":        {`01 00`, 0, ErrVersion},
		"ZMTP 1, named": {`ff 0000000000000006 00 "abcde"`, 0, ErrVersion},
		"HTTP":          {`"GET / HTTP/1.1"`, 0, ErrVersion},
		"PLAIN":         {strings.Replace(greeting31, `"NULL" 00`, `"PLAIN"`, 1), 0, ErrMechanism},
	} {
		g := unhex(t, c.greeting)
		err := checkGreeting(g)
		minor := 0
		if err == nil {
			minor, err = readGreeting(g, "NULL")
		}
		if !errors.Is(err, c.want) || minor != c.minor {
			t.Errorf("%s: minor %d, %v; want %d, %v", name, minor, err, c.minor, c.want)
		}
	}
}

func TestMetadata(t *testing.T) {
	good := unhex(t, `0b "socket-TYPE" 00000003 "REQ" 05 "X-foo" 00000001 00 08 "identity" 00000002 "me"`)
	kind, err := parseMetadata(good)
	if err != nil || kind != "REQ" {
		t.Errorf("%q, %v", kind, err)
	}
	for i := 1; i < len(good); i++ {
		if _, err := parseMetadata(good[:i]); err == nil && i != 19 && i != 30 {
			t.Errorf("cut at %d: accepted", i)
		}
	}
	for _, bad := range []string{`00 00000000`, `01 "a" ffffffff`, `01 "a" 7fffffff 00`} {
		if _, err := parseMetadata(unhex(t, bad)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := refusal(unhex(t, `03 "no!"`)); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "no!") {
		t.Error(err)
	}
	if err := refusal([]byte{9, 'x'}); !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		in, want string
		listen   bool
	}{
		{"tcp://127.0.0.1:6000", "127.0.0.1:6000", false},
		{"tcp://[::1]:6000", "[::1]:6000", false},
		{"tcp://host:1", "host:1", true},
		{"tcp://*:6000", ":6000", true},
		{"tcp://*:*", ":0", true},
		{"tcp://127.0.0.1:0", "127.0.0.1:0", true},
		{"tcp://*:6000", "", false}, {"tcp://host:0", "", false}, {"tcp://host:*", "", false},
		{"tcp://host", "", true}, {"ipc:///tmp/x", "", true}, {"tcp://:6000", "", true},
		{"tcp://h\x00:1", "", false}, {"tcp://" + strings.Repeat("h", 300) + ":80", "", false},
		{"tcp://::1:6000", "", true}, {"tcp://host:65536", "", true}, {"host:1", "", true},
	} {
		got, err := ParseAddr(c.in, c.listen)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s (listen %t): %q, %v", c.in, c.listen, got, err)
		}
	}
}

func TestSubscriptions(t *testing.T) {
	var s subscriptions
	on := func(p string, want bool) {
		t.Helper()
		if got, err := s.add([]byte(p)); got != want || err != nil {
			t.Errorf("add %q: %t, %v", p, got, err)
		}
	}
	off := func(p string, want bool) {
		t.Helper()
		if got := s.remove([]byte(p)); got != want {
			t.Errorf("remove %q: %t", p, got)
		}
	}
	match := func(topic string, want bool) {
		t.Helper()
		if got := s.match([]byte(topic)); got != want {
			t.Errorf("match %q: %t", topic, got)
		}
	}
	match("", false)
	on("ab", true)
	on("ab", false) // counts as two
	match("abc", true)
	match("ab", true)
	match("a", false)
	off("ab", false)
	match("ab", true)
	off("ab", true)
	match("ab", false)
	off("ab", false) // was not there
	on("", true)
	match("", true)
	match("anything", true)
	for i := range maxSubscriptions - 1 {
		on(string([]byte{byte(i), byte(i >> 8), 1}), true)
	}
	if _, err := s.add([]byte("one more")); !errors.Is(err, ErrTooLarge) {
		t.Errorf("one too many: %v", err)
	}
	s = subscriptions{}
	if _, err := s.add(make([]byte, maxPrefixes+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too long: %v", err)
	}
}

func TestConfig(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no kind":            {},
		"unknown kind":       {Kind: "REQ"},
		"DEALER subscribes":  {Kind: DEALER, Subscribe: [][]byte{nil}},
		"too many":           {Kind: SUB, Subscribe: make([][]byte, maxSubscriptions+1)},
		"too long":           {Kind: SUB, Subscribe: [][]byte{make([]byte, maxPrefixes+1)}},
		"negative queue":     {Kind: PUB, Queue: -1},
		"negative time":      {Kind: PUB, WriteTimeout: -1},
		"back-off backwards": {Kind: PUB, ReconnectMin: 3e9},
	} {
		if err := cfg.Validate(); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Dial("127.0.0.1:1", Config{Kind: SUB}); !errors.Is(err, ErrConfig) {
		t.Errorf("an address that is none: %v", err)
	}
	if _, err := Dial("tcp://127.0.0.1:1", Config{Kind: PUB}); !errors.Is(err, ErrConfig) {
		t.Errorf("a PUB dials: %v", err)
	}
}

func TestPause(t *testing.T) {
	cfg, err := Config{Kind: SUB, ReconnectMin: 100, ReconnectMax: 1000}.resolve(false)
	if err != nil {
		t.Fatal(err)
	}
	if wait, failures := pause(cfg, 100, 7); wait != 0 || failures != 0 {
		t.Errorf("after a connection: wait %d, %d failures", wait, failures)
	}
	if wait, failures := pause(cfg, 99, 0); wait < 50 || wait > 100 || failures != 1 {
		t.Errorf("after a short one: wait %d, %d failures", wait, failures)
	}
	if wait, failures := pause(cfg, 0, 7); wait < 500 || wait > 1000 || failures != 8 {
		t.Errorf("after a failure: wait %d, %d failures", wait, failures)
	}
}

package zmtp

import (
	"bytes"
	"errors"
	"net"
	"slices"
	"testing"
)

// FuzzFrames: whatever comes, however it is cut, gives the same messages, within the
// bounds, and what was understood is written again as it was.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0, 1, 'x', 1, 0, 0, 0}, 1)
	f.Add(unhex(f, `0101 31 0101 3f 0106 cdbeb6fba101 0004 77697265`), 3)
	f.Add(unhex(f, `0101 "a" 04 07 04 "PING" 0000 0001 "b"`), 2)
	f.Add(unhex(f, `03 0000000000000100`), 5)
	f.Add(unhex(f, `02 ffffffffffffffff`), 9)
	f.Fuzz(func(t *testing.T, in []byte, piece int) {
		const maxBytes, maxFrames = 600, 5
		whole := &assembler{maxBytes: maxBytes, maxFrames: maxFrames}
		messages, commands, err := parseAll(whole, in, len(in)+1)
		parts := &assembler{maxBytes: maxBytes, maxFrames: maxFrames}
		messages2, commands2, err2 := parseAll(parts, in, max(1, piece%50))
		if len(messages) != len(messages2) || !slices.Equal(commands, commands2) || (err == nil) != (err2 == nil) {
			t.Fatalf("%d and %d messages, %q and %q, %v and %v", len(messages), len(messages2), commands, commands2, err, err2)
		}
		var wire []byte
		for i, m := range messages {
			same(t, m, messages2[i])
			n := 0
			for _, f := range m {
				n += len(f)
			}
			if n > maxBytes || len(m) > maxFrames || len(m) == 0 {
				t.Fatalf("%d bytes in %d frames", n, len(m))
			}
			wire = appendMessage(wire, m, nil)
		}
		again, _, err := parseAll(&assembler{maxBytes: maxBytes, maxFrames: maxFrames}, wire, 7)
		if err != nil || len(again) != len(messages) {
			t.Fatalf("written again: %d of %d messages, %v", len(again), len(messages), err)
		}
	})
}

// FuzzHandshake: a greeting and a command of NULL, to both sides.
func FuzzHandshake(f *testing.F) {
	f.Add(unhex(f, greeting31), unhex(f, readyDEALER)[2:])
	f.Add(unhex(f, greeting30), unhex(f, readySUB)[2:])
	f.Add([]byte{1, 0}, errorCommand("no"))
	f.Add([]byte("GET / HTTP/1.1\r\n"), []byte{5, 'R', 'E', 'A', 'D', 'Y', 1, 'a', 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, g, command []byte) {
		err := checkGreeting(g)
		for i := range g {
			if e := checkGreeting(g[:i]); e != nil && err == nil {
				t.Fatalf("%d bytes are refused, all are not: %v", i, e)
			}
		}
		if len(g) == greetingSize {
			if minor, err := readGreeting(g, "NULL"); err == nil && (minor < 0 || minor > 1 || !bytes.HasPrefix(g[12:], []byte("NULL\x00"))) {
				t.Fatalf("minor %d of % x", minor, g)
			}
		}
		for _, server := range []bool{true, false} {
			h := null{}.begin(server, ROUTER)
			answer, done, err := h.next(command)
			if done != (err == nil) || err != nil && answer != nil {
				t.Fatalf("done %t, answer %q, %v", done, answer, err)
			}
			if done && !ROUTER.accepts(h.result().kind) {
				t.Fatalf("accepted a %q", h.result().kind)
			}
		}
	})
}

// FuzzCurve: commands that nobody with a key has made never end a handshake, and
// bytes never open as a message.
func FuzzCurve(f *testing.F) {
	server, client := pair()
	server.Allow = func([32]byte) bool { return true }
	s, c := machines(f, server, client)
	var recorded [][]byte
	if err := drive(s, c, func(_ int, b []byte) []byte { recorded = append(recorded, bytes.Clone(b)); return b }); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("\x05HELLO"), []byte("\x08INITIATE"))
	f.Add(recorded[0], recorded[2])
	f.Add(recorded[1], recorded[3])
	f.Add(errorCommand("400"), []byte("\x07MESSAGE"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		s, c := machines(t, server, client)
		c.first()
		for _, h := range []handshake{s, c} {
			for _, command := range [][]byte{first, second} {
				if _, done, err := h.next(command); done && err == nil {
					t.Fatal("a handshake without keys")
				} else if err != nil {
					break
				}
			}
		}
		var key [32]byte
		if got, err := newSealer(true, &key, 1, 1).open(nil, second); err == nil {
			t.Fatalf("opened to % x", got)
		}
	})
}

// FuzzConn: whatever a peer sends after its handshake, a connection continues or ends
// with an error that says whose fault it was, and keeps within its bounds.
func FuzzConn(f *testing.F) {
	f.Add(unhex(f, `04 0b 09 "SUBSCRIBE*" 00 02 00 2a 04 07 04 "PING" 0001`), false)
	f.Add(unhex(f, `04 1b 04 "PING" ffff "0123456789abcdefXXXX" 0101 "a" 04 08 06 "CANCEL*" 0000`), true)
	f.Add(unhex(f, `00 01 01 00 01 00 00 01 00 04 09 05 "ERROR" 02 "no"`), false)
	f.Fuzz(func(t *testing.T, in []byte, router bool) {
		kind := PUB
		if router {
			kind = ROUTER
		}
		on := map[string]bool{}
		cfg, err := Config{Kind: kind, MaxMessage: 1000, Queue: 2000, Handler: Handler{
			Message: func(c *Conn, m Message) { c.Send(m) },
			Subscribed: func(_ *Conn, p []byte, now bool) {
				if on[string(p)] == now {
					t.Fatalf("%q was told twice", p)
				}
				on[string(p)] = now
			},
		}}.resolve(true)
		if err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		defer far.Close()
		c := newConn(cfg, near, "")
		c.minor = 1
		c.watch.start(c)
		defer c.fail(ErrClosed)
		defer c.watch.stop()
		for src := bytes.NewReader(in); ; {
			if err := c.deliverAll(); err != nil {
				for _, known := range []error{ErrProtocol, ErrTooLarge, ErrRefused, ErrSilent, ErrClosed} {
					if errors.Is(err, known) {
						return
					}
				}
				t.Fatalf("ended with %v", err)
			}
			if _, err := c.in.fill(src); err != nil {
				break
			}
		}
		for p, now := range on {
			if c.subs.match([]byte(p)) != now && now {
				t.Fatalf("%q does not match", p)
			}
		}
		if len(c.queue) > cfg.Queue+100 {
			t.Fatalf("%d bytes wait", len(c.queue))
		}
	})
}

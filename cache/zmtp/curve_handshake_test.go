package zmtp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/crypto/nacl/box"
)

// machines are the two sides of a handshake, without a network.
func machines(t testing.TB, server, client Curve) (s, c handshake) {
	t.Helper()
	rs, err := server.resolve(true)
	if err != nil {
		t.Fatal(err)
	}
	rc, err := client.resolve(false)
	if err != nil {
		t.Fatal(err)
	}
	return rs.begin(true, ROUTER), rc.begin(false, DEALER)
}

// drive carries commands between the sides, through change, and returns the first error.
func drive(server, client handshake, change func(step int, command []byte) []byte) error {
	command, err := client.first(), error(nil)
	sides := []handshake{server, client}
	for step := 0; ; step++ {
		if change != nil {
			command = change(step, command)
		}
		var done bool
		if command, done, err = sides[step%2].next(command); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		if done && command == nil {
			return nil
		}
	}
}

var stepNames = []string{"HELLO", "WELCOME", "INITIATE", "READY"}

func TestCurveCommands(t *testing.T) {
	server, client := pair()
	s, c := machines(t, server, client)
	var sizes []int
	err := drive(s, c, func(step int, command []byte) []byte {
		name, _, _ := parseCommand(command)
		if name != stepNames[step] {
			t.Errorf("step %d is %s, want %s", step, name, stepNames[step])
		}
		sizes = append(sizes, len(command))
		for _, key := range [][32]byte{client.public, client.Secret, server.Secret} {
			if bytes.Contains(command, key[:]) {
				t.Errorf("%s shows a long-term key", name)
			}
		}
		return command
	})
	if err != nil {
		t.Fatal(err)
	}
	// 257 and 30 with the metadata of the two.
	if want := []int{200, 168, 257 + 22 + 13, 30 + 22 + 13}; !slices.Equal(sizes, want) {
		t.Errorf("sizes %v, want %v", sizes, want)
	}
	if rs := s.result(); *rs.key != client.public || rs.kind != DEALER {
		t.Errorf("the server found out %+v", rs)
	}
	if rc := c.result(); *rc.key != client.ServerKey || rc.kind != ROUTER {
		t.Errorf("the client found out %+v", rc)
	}
}

// A single bit of any command that is changed on the way ends the handshake. Every third
// byte is tried: each costs two sides' handshakes.
func TestCurveChangedBytes(t *testing.T) {
	server, client := pair()
	s, c := machines(t, server, client)
	var sizes []int
	if err := drive(s, c, func(_ int, b []byte) []byte { sizes = append(sizes, len(b)); return b }); err != nil {
		t.Fatal(err)
	}
	for step, size := range sizes {
		for i := step % 3; i < size; i += 3 {
			s, c := machines(t, server, client)
			err := drive(s, c, func(at int, b []byte) []byte {
				if at == step {
					b = bytes.Clone(b)
					b[i] ^= 1 << (i % 8)
				}
				return b
			})
			if err == nil {
				t.Errorf("%s with byte %d changed was accepted", stepNames[step], i)
			}
		}
		for _, cut := range []int{0, 1, 5, 9, size / 2, size - 1} {
			s, c := machines(t, server, client)
			if err := drive(s, c, func(at int, b []byte) []byte {
				if at == step {
					b = b[:cut]
				}
				return b
			}); err == nil {
				t.Errorf("%s of %d bytes was accepted", stepNames[step], cut)
			}
		}
	}
}

// What was recorded on one connection opens nothing on another.
func TestCurveRecordedHandshake(t *testing.T) {
	server, client := pair()
	s, c := machines(t, server, client)
	var recorded [][]byte
	if err := drive(s, c, func(_ int, b []byte) []byte { recorded = append(recorded, bytes.Clone(b)); return b }); err != nil {
		t.Fatal(err)
	}
	s, _ = machines(t, server, client)
	if _, _, err := s.next(recorded[0]); err != nil {
		t.Fatalf("HELLO is worth nothing and may be repeated: %v", err)
	}
	if _, done, err := s.next(recorded[2]); done || !errors.Is(err, ErrAccess) {
		t.Errorf("a recorded INITIATE: done %t, %v", done, err)
	}
	// A server that would not tie the cookie to the connection is the broken variant.
	broken, _ := machines(t, server, client)
	first, c := machines(t, server, client)
	hello := c.first()
	welcome, _, _ := first.next(hello)
	initiate, _, err := c.next(welcome)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := broken.next(hello); err != nil {
		t.Fatal(err)
	}
	broken.(*curveServer).cookie = first.(*curveServer).cookie
	if _, done, err := broken.next(initiate); !done || err != nil {
		t.Errorf("with the same cookie key the recording opens: done %t, %v", done, err)
	}
}

// The public key of someone who is allowed is not enough.
func TestCurveStolenPublicKey(t *testing.T) {
	server, client := pair()
	s, c := machines(t, server, client)
	c.(*curveClient).Curve.Secret = NewCurveKey().Secret
	if err := drive(s, c, nil); !errors.Is(err, ErrAccess) {
		t.Errorf("%v, want ErrAccess", err)
	}
	// A vouch for another server is not enough either.
	s, c = machines(t, server, client)
	other := NewCurveKey().Public
	s.(*curveServer).Curve.public = other
	if err := drive(s, c, nil); !errors.Is(err, ErrAccess) {
		t.Errorf("vouched for another server: %v, want ErrAccess", err)
	}
}

func TestCurveNonces(t *testing.T) {
	server, client := pair()
	s, c := machines(t, server, client)
	hello := c.first()
	// The same HELLO with a nonce that INITIATE's is not above.
	h := c.(*curveClient)
	var zeros [64]byte
	nonce := shortNonce("CurveZMQHELLO---", 2)
	high := append(bytes.Clone(hello[:112]), nonce[16:]...)
	high = box.Seal(high, zeros[:], nonce, &h.ServerKey, &h.key.Secret)
	welcome, _, err := s.next(high)
	if err != nil {
		t.Fatal(err)
	}
	initiate, _, err := c.next(welcome)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.next(initiate); !errors.Is(err, ErrProtocol) {
		t.Errorf("INITIATE with HELLO's nonce: %v, want ErrProtocol", err)
	}
}

func TestSealer(t *testing.T) {
	var key [32]byte
	key[0] = 1
	fresh := func() (out, in *sealer) { return newSealer(true, &key, 1, 5), newSealer(false, &key, 5, 1) }
	out, in := fresh()
	var boxes [][]byte
	for i := range 4 {
		b := out.seal(nil, flagMore, []byte{byte(i)})
		if n := binary.BigEndian.Uint64(b[8:]); n != uint64(2+i) || len(b) != sealOverhead+1 {
			t.Errorf("box %d has nonce %d and %d bytes", i, n, len(b))
		}
		boxes = append(boxes, b)
	}
	accepted := func(in *sealer, b []byte) bool {
		got, err := in.open(nil, b)
		if err == nil && (len(got) != 2 || got[0] != flagMore) {
			t.Errorf("opened to % x", got)
		}
		if err != nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("%v is not an ErrProtocol", err)
		}
		return err == nil
	}
	for i, c := range []struct {
		box  int
		want bool
	}{{0, true}, {0, false}, {2, true}, {1, false}, {2, false}, {3, true}} {
		if got := accepted(in, boxes[c.box]); got != c.want {
			t.Errorf("%d: box %d accepted: %t", i, c.box, got)
		}
	}
	// The broken variant: one that forgets what it has got accepts a repetition.
	in.got = 1
	if !accepted(in, boxes[0]) {
		t.Error("the box is good but for its nonce")
	}
	for i := range boxes[0] {
		_, in := fresh()
		b := bytes.Clone(boxes[0])
		b[i] ^= 0x10
		if accepted(in, b) {
			t.Errorf("byte %d changed, and accepted", i)
		}
	}
	for i := range len(boxes[0]) {
		_, in := fresh()
		if accepted(in, boxes[0][:i]) {
			t.Errorf("cut at %d, and accepted", i)
		}
	}
	// What a side has sealed is not accepted as what the other has.
	out, _ = fresh()
	mirror := newSealer(true, &key, 1, 1)
	if accepted(mirror, out.seal(nil, flagMore, []byte{1})) {
		t.Error("a reflected box was accepted")
	}
	// A box that fails does not use up its nonce.
	_, in = fresh()
	b := bytes.Clone(boxes[1])
	b[20] ^= 1
	if accepted(in, b) || !accepted(in, boxes[0]) {
		t.Error("a forged box moved the nonce")
	}
	b = out.seal(nil, flagCommand, []byte("x"))
	_, in = fresh()
	if got, err := in.open(nil, b); err != nil || got[0] != flagCommand {
		t.Errorf("command: % x, %v", got, err)
	}
}

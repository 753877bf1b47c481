package zmtp

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

const greetingSize = 64

// Flags of a frame.
const (
	flagMore    = 0x01
	flagLong    = 0x02
	flagCommand = 0x04
)

// greeting is the first thing that a side sends.
func greeting(mechanism string, server bool) []byte {
	g := make([]byte, greetingSize)
	g[0], g[9] = 0xff, 0x7f
	g[8] = 1 // padding; older peers read it as the length of an identity
	g[10], g[11] = 3, 1
	copy(g[12:32], mechanism)
	if server {
		g[32] = 1
	}
	return g
}

// checkGreeting looks at the first bytes of the other side's greeting, as many as have come:
// a peer of an older version waits before it sends the rest.
func checkGreeting(b []byte) error {
	switch {
	case len(b) > 0 && b[0] != 0xff:
		return fmt.Errorf("%w: the first byte is %#02x: ZMTP 1, or not ZeroMQ at all", ErrVersion, b[0])
	case len(b) > 9 && b[9]&1 == 0:
		return fmt.Errorf("%w: the peer speaks ZMTP 1; it needs libzmq 4.0 or newer", ErrVersion)
	case len(b) > 10 && b[10] < 3:
		return fmt.Errorf("%w: the peer speaks ZMTP %d; it needs libzmq 4.0 or newer", ErrVersion, max(2, b[10]))
	}
	return nil
}

// readGreeting takes a whole greeting and returns the lower version of the two sides'
// 3.0 and 3.1. The mechanism must be ours; the field as-server is not checked, for libzmq
// does not fill it in.
func readGreeting(g []byte, mechanism string) (minor int, err error) {
	if err := checkGreeting(g); err != nil {
		return 0, err
	}
	theirs := strings.TrimRight(string(g[12:32]), "\x00")
	if theirs != mechanism {
		return 0, fmt.Errorf("%w: the peer uses %q, this side %q", ErrMechanism, theirs, mechanism)
	}
	if g[10] == 3 && g[11] == 0 {
		return 0, nil
	}
	return 1, nil
}

// appendHeader appends the flags and the size of a frame.
func appendHeader(dst []byte, flags byte, size int) []byte {
	if size <= math.MaxUint8 {
		return append(dst, flags, byte(size))
	}
	dst = append(dst, flags|flagLong)
	return binary.BigEndian.AppendUint64(dst, uint64(size))
}

func appendFrame(dst []byte, flags byte, body []byte) []byte {
	return append(appendHeader(dst, flags, len(body)), body...)
}

// frame is one frame as it came: body is part of the bytes that were parsed.
type frame struct {
	flags byte // without flagLong
	body  []byte
}

// parseFrame reads the frame at the start of b, which has at most messageMax bytes, or
// commandMax if it is a command, and returns the bytes it took. These are 0 while more
// of the frame must come; whether it is too large is known from its header.
func parseFrame(b []byte, messageMax, commandMax int) (f frame, n int, err error) {
	if len(b) == 0 {
		return f, 0, nil
	}
	flags := b[0]
	if flags&^(flagMore|flagLong|flagCommand) != 0 {
		return f, 0, fmt.Errorf("%w: a frame has the flags %#02x; bits 3 to 7 must be zero", ErrProtocol, flags)
	}
	limit := messageMax
	if flags&flagCommand != 0 {
		if flags&flagMore != 0 {
			return f, 0, fmt.Errorf("%w: a command says that more frames follow", ErrProtocol)
		}
		limit = commandMax
	}
	header, size := 2, uint64(0)
	if flags&flagLong != 0 {
		header = 9
	}
	if len(b) < header {
		return f, 0, nil
	}
	if size = uint64(b[1]); header == 9 {
		size = binary.BigEndian.Uint64(b[1:])
	}
	if size > uint64(max(limit, 0)) {
		return f, 0, fmt.Errorf("%w: a frame of %d bytes; %d are allowed here", ErrTooLarge, size, max(limit, 0))
	}
	n = header + int(size)
	if len(b) < n {
		return f, 0, nil
	}
	return frame{flags &^ flagLong, b[header:n:n]}, n, nil
}

// appendCommand appends the body of a command.
func appendCommand(dst []byte, name string, data ...[]byte) []byte {
	dst = append(append(dst, byte(len(name))), name...)
	for _, d := range data {
		dst = append(dst, d...)
	}
	return dst
}

// parseCommand takes the body of a command apart.
func parseCommand(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || body[0] == 0 || len(body) <= int(body[0]) {
		return "", nil, fmt.Errorf("%w: a command of %d bytes without a name", ErrProtocol, len(body))
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:], nil
}

// refusal is what an ERROR command means.
func refusal(data []byte) error {
	if len(data) == 0 || len(data) <= int(data[0]) {
		return fmt.Errorf("%w, without a reason", ErrRefused)
	}
	return fmt.Errorf("%w: %q", ErrRefused, data[1:1+int(data[0])])
}

// errorCommand is the body of an ERROR command; reason has at most 255 bytes.
func errorCommand(reason string) []byte {
	return appendCommand(nil, "ERROR", []byte{byte(len(reason))}, []byte(reason))
}

func appendProperty(dst []byte, name string, value []byte) []byte {
	dst = append(append(dst, byte(len(name))), name...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

// appendMetadata appends what this side says about itself: its kind, and, where routers
// look for one, an empty identity.
func appendMetadata(dst []byte, kind Kind) []byte {
	dst = appendProperty(dst, "Socket-Type", []byte(kind))
	if kind == ROUTER || kind == DEALER {
		dst = appendProperty(dst, "Identity", nil)
	}
	return dst
}

// parseMetadata returns the kind that the other side says it is. Properties that mean
// nothing here are skipped.
func parseMetadata(b []byte) (kind Kind, err error) {
	for len(b) > 0 {
		n := int(b[0])
		if n == 0 || len(b) < 1+n+4 {
			return "", fmt.Errorf("%w: a property of the metadata is cut off or has no name", ErrProtocol)
		}
		name, rest := string(b[1:1+n]), b[1+n+4:]
		size := binary.BigEndian.Uint32(b[1+n:])
		if uint64(size) > uint64(len(rest)) {
			return "", fmt.Errorf("%w: the property %q says %d bytes and has %d", ErrProtocol, name, size, len(rest))
		}
		value := rest[:size]
		switch strings.ToLower(name) {
		case "socket-type":
			kind = Kind(value)
		case "identity":
			if len(value) > 255 {
				return "", fmt.Errorf("%w: an identity of %d bytes; 255 are allowed", ErrProtocol, len(value))
			}
		}
		b = rest[size:]
	}
	return kind, nil
}

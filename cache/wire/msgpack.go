package wire

import (
	"encoding/binary"
	"fmt"
)

// maxServers bounds a list of servers, and maxURL each of them.
const maxServers = 1024

// The parts of MessagePack that a list of servers needs.
const (
	fixArray = 0x90
	array16  = 0xdc
	array32  = 0xdd
	fixStr   = 0xa0
	str8     = 0xd9
	str16    = 0xda
	str32    = 0xdb
)

// appendStrings appends an array of strings in the shortest form.
func appendStrings(dst []byte, list []string) []byte {
	list = list[:min(len(list), maxServers)]
	if n := len(list); n < 16 {
		dst = append(dst, fixArray|byte(n))
	} else {
		dst = binary.BigEndian.AppendUint16(append(dst, array16), uint16(n))
	}
	for _, s := range list {
		s = s[:min(len(s), maxURL)]
		if n := len(s); n < 32 {
			dst = append(dst, fixStr|byte(n))
		} else {
			dst = append(dst, str8, byte(n))
		}
		dst = append(dst, s...)
	}
	return dst
}

func badList(why string, args ...any) error {
	return badReply("list (frame 2)", fmt.Sprintf(why, args...))
}

// parseStrings reads an array of strings in any form, and nothing after it.
func parseStrings(b []byte) ([]string, error) {
	n, b, err := parseHead(b, fixArray, 15, 0, array16, array32)
	if err != nil {
		return nil, badList("an array is needed: %v", err)
	}
	if n > maxServers || int(n) > len(b) {
		return nil, badList("it says that it has %d servers in %d bytes; at most %d servers are allowed", n, len(b), maxServers)
	}
	list := make([]string, 0, n)
	for range n {
		var size uint32
		if size, b, err = parseHead(b, fixStr, 31, str8, str16, str32); err != nil {
			return nil, badList("server %d is no text: %v", len(list), err)
		}
		if size > maxURL || int(size) > len(b) {
			return nil, badList("server %d says that it has %d bytes; %d are left, at most %d are allowed", len(list), size, len(b), maxURL)
		}
		list, b = append(list, string(b[:size])), b[size:]
	}
	if len(b) > 0 {
		return nil, badList("%d bytes follow after its end", len(b))
	}
	return list, nil
}

// parseHead reads a type and a length: the length in the low bits of the type up to
// most, or in 1, 2 or 4 bytes after the types one, two and four.
func parseHead(b []byte, fix, most, one, two, four byte) (n uint32, rest []byte, err error) {
	if len(b) == 0 {
		return 0, nil, fmt.Errorf("it ends too early")
	}
	head, b := b[0], b[1:]
	size := 0
	switch {
	case head&^most == fix:
		return uint32(head & most), b, nil
	case head == one && one != 0:
		size = 1
	case head == two:
		size = 2
	case head == four:
		size = 4
	default:
		return 0, nil, fmt.Errorf("it has the type %#02x", head)
	}
	if len(b) < size {
		return 0, nil, fmt.Errorf("it ends too early")
	}
	for _, digit := range b[:size] {
		n = n<<8 | uint32(digit)
	}
	return n, b[size:], nil
}

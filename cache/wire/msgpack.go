package wire

import "encoding/binary"

// maxServers bounds a list of servers, and maxURL each of them.
const maxServers = 1024

// The parts of MessagePack that a list of servers needs.
const (
	fixArray = 0x90
	array16  = 0xdc
	fixStr   = 0xa0
	str8     = 0xd9
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

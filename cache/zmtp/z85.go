package zmtp

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// z85 has the digits of ZeroMQ's base 85 (32/Z85).
const z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

// EncodeKey writes a key in ZeroMQ's form, Z85: 40 characters.
func EncodeKey(key [32]byte) string {
	var out strings.Builder
	for i := 0; i < len(key); i += 4 {
		n := binary.BigEndian.Uint32(key[i:])
		for div := uint32(85 * 85 * 85 * 85); div > 0; div /= 85 {
			out.WriteByte(z85[n/div%85])
		}
	}
	return out.String()
}

// DecodeKey reads what EncodeKey wrote. Its errors do not show the text, which may be
// a secret.
func DecodeKey(text string) (key [32]byte, err error) {
	if len(text) != 40 {
		return key, fmt.Errorf("%w: a key has %d characters; it needs 40, in Z85", ErrConfig, len(text))
	}
	for i := range 8 {
		var n uint64
		for j, digit := range []byte(text[5*i : 5*i+5]) {
			value := strings.IndexByte(z85, digit)
			if value < 0 {
				return [32]byte{}, fmt.Errorf("%w: character %d of a key is not one of Z85", ErrConfig, 5*i+j+1)
			}
			n = n*85 + uint64(value)
		}
		if n > 1<<32-1 {
			return [32]byte{}, fmt.Errorf("%w: characters %d to %d of a key are not Z85", ErrConfig, 5*i+1, 5*i+5)
		}
		binary.BigEndian.PutUint32(key[4*i:], uint32(n))
	}
	return key, nil
}

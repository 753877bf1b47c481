package origin

import (
	"slices"
)

const (
	defaultMaxValue = 16 << 20
)

// fit gives back memory that a value was read into and does not need: it is
// kept for long.
func fit(value []byte) []byte {
	if cap(value)-len(value) > len(value)/8 {
		return append(make([]byte, 0, len(value)), value...)
	}
	return slices.Clip(value)
}

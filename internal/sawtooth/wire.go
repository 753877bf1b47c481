package sawtooth

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrMalformed: the bytes are not the message that they should be.
var ErrMalformed = errors.New("malformed batch list")

// Wire types of protobuf.
const (
	wireVarint = 0
	wireFixed8 = 1
	wireBytes  = 2
	wireStart  = 3
	wireEnd    = 4
	wireFixed4 = 5
)

const (
	maxField = 1<<29 - 1
	maxDepth = 100 // of groups within groups, in fields that are skipped
)

// each calls f for every field of wire type bytes, in order. All other fields are
// unknown to the messages of this package, or of no interest, and are skipped.
func each(msg []byte, f func(field uint64, value []byte) error) error {
	for len(msg) > 0 {
		field, kind, rest, err := tag(msg)
		if err != nil {
			return err
		}
		if kind != wireBytes {
			if msg, err = skip(field, kind, rest, maxDepth); err != nil {
				return err
			}
			continue
		}
		value, rest, err := chunk(rest)
		if err != nil {
			return err
		}
		if err := f(field, value); err != nil {
			return err
		}
		msg = rest
	}
	return nil
}

func tag(msg []byte) (field uint64, kind int, rest []byte, err error) {
	v, rest, err := varint(msg)
	if err != nil {
		return 0, 0, nil, err
	}
	field, kind = v>>3, int(v&7)
	if field == 0 || field > maxField {
		return 0, 0, nil, fmt.Errorf("%w: there is no field %d", ErrMalformed, field)
	}
	return field, kind, rest, nil
}

func varint(msg []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(msg)
	if n <= 0 {
		return 0, nil, fmt.Errorf("%w: a number breaks off or is too large", ErrMalformed)
	}
	return v, msg[n:], nil
}

func chunk(msg []byte) (value, rest []byte, err error) {
	n, rest, err := varint(msg)
	if err != nil {
		return nil, nil, err
	}
	if n > uint64(len(rest)) {
		return nil, nil, fmt.Errorf("%w: a field of %d bytes where %d are left", ErrMalformed, n, len(rest))
	}
	return rest[:n], rest[n:], nil
}

func skip(field uint64, kind int, msg []byte, depth int) (rest []byte, err error) {
	switch kind {
	case wireVarint:
		_, rest, err = varint(msg)
		return rest, err
	case wireFixed8:
		return drop(msg, 8)
	case wireFixed4:
		return drop(msg, 4)
	case wireBytes:
		_, rest, err = chunk(msg)
		return rest, err
	case wireStart:
		return skipGroup(field, msg, depth)
	}
	return nil, fmt.Errorf("%w: field %d has wire type %d", ErrMalformed, field, kind)
}

func skipGroup(field uint64, msg []byte, depth int) ([]byte, error) {
	if depth == 0 {
		return nil, fmt.Errorf("%w: groups in groups in groups", ErrMalformed)
	}
	for {
		inner, kind, rest, err := tag(msg)
		if err != nil {
			return nil, err
		}
		if kind == wireEnd {
			if inner != field {
				return nil, fmt.Errorf("%w: group %d ends as group %d", ErrMalformed, field, inner)
			}
			return rest, nil
		}
		if msg, err = skip(inner, kind, rest, depth-1); err != nil {
			return nil, err
		}
	}
}

func drop(msg []byte, n int) ([]byte, error) {
	if len(msg) < n {
		return nil, fmt.Errorf("%w: a number breaks off", ErrMalformed)
	}
	return msg[n:], nil
}

func text(value []byte) (string, error) {
	if !utf8.Valid(value) {
		return "", fmt.Errorf("%w: a text is not valid UTF-8", ErrMalformed)
	}
	return string(value), nil
}

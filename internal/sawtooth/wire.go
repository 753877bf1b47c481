package sawtooth

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMalformed: the bytes are not the message that they should be.
var ErrMalformed = errors.New("malformed batch list")

// each calls f for every field of wire type bytes, in order. All other fields are
// unknown to the messages of this package, or of no interest, and are skipped.
func each(msg []byte, f func(field protowire.Number, value []byte) error) error {
	for len(msg) > 0 {
		field, kind, tag := protowire.ConsumeTag(msg)
		if tag < 0 {
			return fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(tag))
		}
		size := protowire.ConsumeFieldValue(field, kind, msg[tag:])
		if size < 0 {
			return fmt.Errorf("%w: field %d: %w", ErrMalformed, field, protowire.ParseError(size))
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(msg[tag : tag+size])
			if err := f(field, value); err != nil {
				return err
			}
		}
		msg = msg[tag+size:]
	}
	return nil
}

func text(value []byte) (string, error) {
	if !utf8.Valid(value) {
		return "", fmt.Errorf("%w: a text is not valid UTF-8", ErrMalformed)
	}
	return string(value), nil
}

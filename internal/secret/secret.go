// Package secret has text that is never shown.
package secret

import (
	"fmt"
	"io"
	"log/slog"
)

// Text is text that is not shown, however it is printed, encoded or logged: only that there is one. A value in an
// unexported field of a struct is beyond its reach.
type Text string

// Hidden is shown instead.
const Hidden = "[secret]"

// String implements [fmt.Stringer].
func (t Text) String() string {
	if t == "" {
		return ""
	}
	return Hidden
}

// Format implements [fmt.Formatter], for all verbs.
func (t Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// MarshalText implements [encoding.TextMarshaler].
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// LogValue implements [slog.LogValuer].
func (t Text) LogValue() slog.Value { return slog.StringValue(t.String()) }

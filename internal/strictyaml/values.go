package strictyaml

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Size is a number of bytes, written as 256MiB, 64KiB or 1000.
type Size int64

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	return s.Set(n.Value)
}

// Set implements pflag.Value.
func (s *Size) Set(text string) error {
	digits, unit := text, int64(1)
	for i, name := range []string{"KiB", "MiB", "GiB"} {
		if rest, ok := strings.CutSuffix(text, name); ok {
			digits, unit = rest, 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if unit == 1 {
		n, err = strconv.ParseInt(digits, 10, 50)
	}
	if err != nil || n < 1 {
		return fmt.Errorf("%q is not a valid size; write, for example, 256MiB, 64KiB or 1000", text)
	}
	*s = Size(n * unit)
	return nil
}

// String implements pflag.Value.
func (s *Size) String() string {
	n, unit := int64(*s), ""
	for _, name := range []string{"KiB", "MiB", "GiB"} {
		if n == 0 || n%1024 != 0 {
			break
		}
		n, unit = n/1024, name
	}
	return strconv.FormatInt(n, 10) + unit
}

// Type implements pflag.Value.
func (s *Size) Type() string { return "size" }

func errDuration(text string) error {
	return fmt.Errorf("%q is not a valid duration; write, for example, 1s or 250ms", text)
}

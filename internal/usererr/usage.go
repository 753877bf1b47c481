package usererr

import (
	"errors"
	"fmt"
)

// Err is what all errors of this package are, for errors.Is.
var Err = errors.New("usage")

// failure is shown without the word that marks it.
type failure struct{ msg string }

func (e failure) Error() string        { return e.msg }
func (e failure) Is(target error) bool { return target == Err }

// Errorf makes an error of the user's: what is wrong, where, and what to do. Its text is shown as it is.
func Errorf(format string, args ...any) error {
	return failure{fmt.Sprintf(format, args...)}
}

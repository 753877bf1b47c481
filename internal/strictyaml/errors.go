package strictyaml

import (
	"errors"
	"fmt"
	"strings"
)

// Findings are what is wrong with a file, each with its line where that is known.
type Findings struct {
	// Lines on which the keys stand, by their paths; see [Read].
	Lines map[string]int
	// List has what was noted.
	List []error
}

// At notes what is wrong at a path of keys; nil is nothing.
func (f *Findings) At(path string, err error) {
	if err != nil {
		f.List = append(f.List, AtLine(f.Lines[path], err))
	}
}

// Err is all that was noted; nil is nothing.
func (f *Findings) Err() error { return errors.Join(f.List...) }

// Each are the errors that were joined, or the one.
func Each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && strings.Contains(err.Error(), "\n") {
		var out []error
		for _, e := range joined.Unwrap() {
			out = append(out, Each(e)...)
		}
		return out
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// AtLine says on which line an error is; 0 is none that is known.
func AtLine(line int, err error) error {
	if line == 0 {
		return err
	}
	return fmt.Errorf("line %d: %w", line, err)
}

// In says of each error in which file or part it is.
func In(part string, err error) error {
	list := Each(err)
	for i, e := range list {
		list[i] = fmt.Errorf("%s: %w", part, e)
	}
	return errors.Join(list...)
}

package store

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Step is one migration. Its number, from 1 and without a gap, is the version of the schema
// that it leads to. A step that was released never changes.
//
// Tables change in two steps, so that programs of two versions can share a store. An expanding
// step only adds: tables, columns with a default, indexes. Programs that do not know it continue,
// and can be started again. A contracting step takes away what no supported program uses any
// more; it is released at least one version after the program that stopped using it.
type Step struct {
	SQL string
	// Readers is the oldest version that a program must know to work with the store after this
	// step. An expanding step names an older one than its own number, in its first line:
	//
	//	-- readers: 11
	//
	// Without that line it is the step's own number.
	Readers int
}

const readersMark = "-- readers: "

// Steps reads the migrations in a folder, in the order of their names.
func Steps(files fs.FS, pattern string) ([]Step, error) {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		return nil, err
	}
	steps := make([]Step, len(names))
	for i, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		steps[i] = Step{SQL: string(text), Readers: i + 1}
		first, _, _ := strings.Cut(steps[i].SQL, "\n")
		if number, marked := strings.CutPrefix(first, readersMark); marked {
			if steps[i].Readers, err = strconv.Atoi(number); err != nil || steps[i].Readers > i+1 {
				return nil, fmt.Errorf("%w: %s: %q does not name this version or an older one", ErrSchema, name, first)
			}
		}
	}
	return steps, nil
}

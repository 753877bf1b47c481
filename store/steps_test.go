package store_test

import (
	"errors"
	"testing"
	"testing/fstest"

	"github.com/understudy-ha/understudy/store"
)

func TestSteps(t *testing.T) {
	files := func(second string) fstest.MapFS {
		return fstest.MapFS{
			"m/0001_first.sql":  {Data: []byte("CREATE TABLE a (b text);\n")},
			"m/0002_second.sql": {Data: []byte(second)},
		}
	}
	for text, want := range map[string]int{"ALTER TABLE a;": 2, "-- readers: 1\nALTER TABLE a;": 1, "-- readers: 2": 2} {
		steps, err := store.Steps(files(text), "m/*.sql")
		if err != nil || len(steps) != 2 || steps[0].Readers != 1 || steps[1].Readers != want || steps[1].SQL != text {
			t.Errorf("%q: %+v, %v; want readers 1 and %d", text, steps, err, want)
		}
	}
	for _, text := range []string{"-- readers: 3\n", "-- readers: many\n"} {
		if _, err := store.Steps(files(text), "m/*.sql"); !errors.Is(err, store.ErrSchema) {
			t.Errorf("%q: %v, want ErrSchema", text, err)
		}
	}
}

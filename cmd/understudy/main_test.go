package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"understudy": main})
}

// TestScripts runs the command line as people type it: testdata/script/*.txt.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("UNDERSTUDY_STORE", "sqlite:"+e.WorkDir+"/state/understudy.db")
			e.Setenv("HOME", e.WorkDir)
			return nil
		},
		Condition: func(name string) (bool, error) { return name == "root" && os.Getuid() == 0, nil },
	})
}

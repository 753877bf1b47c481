package strictyaml

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOldNamesOfVariables: a variable works under its old name for one more version, with one warning, as a key of a file does.
func TestOldNamesOfVariables(t *testing.T) {
	type part struct {
		Most   int  `yaml:"most" was:"max"`
		Resend bool `yaml:"resend" was:"!at_most_once"`
		Same   int  `yaml:"same"`
	}
	type file struct {
		Part part   `yaml:"part" was:"section"`
		Name string `yaml:"name" was:"title"`
	}
	never := func(string) bool { return false }
	for _, c := range []struct {
		environ  []string
		want     file
		outdated []string
	}{
		{[]string{"X_TITLE=a"}, file{Name: "a"}, []string{"X_TITLE, in the environment, is now called X_NAME; the old name is read for one more version"}},
		{[]string{"X_TITLE=a", "X_NAME=b"}, file{Name: "b"}, nil},
		{[]string{"X_TITLE=a", "X_NAME="}, file{Name: "a"}, []string{"X_TITLE, in the environment, is now called X_NAME; the old name is read for one more version"}},
		{[]string{"X_TITLE="}, file{}, nil},
		{[]string{"X_SECTION_MAX=3", "X_SECTION_SAME=4"}, file{Part: part{Most: 3, Same: 4}}, []string{
			"X_SECTION_MAX, in the environment, is now called X_PART_MOST; the old name is read for one more version",
			"X_SECTION_SAME, in the environment, is now called X_PART_SAME; the old name is read for one more version",
		}},
		{[]string{"X_SECTION_AT_MOST_ONCE=false"}, file{Part: part{Resend: true}}, []string{
			"X_SECTION_AT_MOST_ONCE, in the environment, is now called X_PART_RESEND, which is its opposite; the old name is read for one more version",
		}},
	} {
		var got file
		_, outdated, err := ApplyEnv(&got, "X_", c.environ, never)
		if err != nil {
			t.Errorf("%q: %v", c.environ, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q:\n%s", c.environ, diff)
		}
		if diff := cmp.Diff(c.outdated, outdated); diff != "" {
			t.Errorf("%q, warnings:\n%s", c.environ, diff)
		}
	}
	if _, _, err := ApplyEnv(new(file), "X_", []string{"X_SECTION_MAX=many"}, never); err == nil || err.Error() != `X_SECTION_MAX, in the environment: "many" is not a whole number` {
		t.Errorf("%v", err)
	}
}

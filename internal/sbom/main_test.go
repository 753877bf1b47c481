package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

// TestDescribe: every module that a program was built of is in its document, with the version that was used.
func TestDescribe(t *testing.T) {
	d := describe("program", &debug.BuildInfo{
		GoVersion: "go1.26.1", Main: debug.Module{Path: "example.com/main", Version: "v1.2.0+dirty"},
		Deps: []*debug.Module{
			{Path: "example.com/a", Version: "v0.1.0", Sum: "h1:x="},
			{Path: "example.com/b", Version: "v0.2.0", Replace: &debug.Module{Path: "example.com/fork", Version: "v0.3.0"}},
		},
		Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "-ldflags", Value: "-s"}},
	})
	var got []string
	for _, c := range append([]component{d.Metadata.Component}, d.Components...) {
		got = append(got, c.Type+" "+c.Name+" "+c.URL)
	}
	want := "application program pkg:golang/example.com/main@v1.2.0%2Bdirty\nlibrary stdlib pkg:golang/stdlib@1.26.1\n" +
		"library example.com/a pkg:golang/example.com/a@v0.1.0\nlibrary example.com/fork pkg:golang/example.com/fork@v0.3.0"
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("it has\n%s\nwant\n%s", text, want)
	}
	if p := d.Metadata.Component.Properties; len(p) != 1 || p[0] != (property{"go:GOOS", "linux"}) {
		t.Errorf("properties: %+v", p)
	}
}

// TestWrite reads what was written of this test's own program.
func TestWrite(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, text, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := write(path); err != nil {
		t.Fatal(err)
	}
	var d document
	if text, err = os.ReadFile(path + ".cdx.json"); err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil || d.Format != "CycloneDX" || len(d.Components) == 0 || d.Components[0].Version != strings.TrimPrefix(runtime.Version(), "go") {
		t.Errorf("%+v, %v", d, err)
	}
	if err := write(path + ".cdx.json"); err == nil {
		t.Error("a file that is no program has a document")
	}
}

// TestVulncheckSaysThatItDidNot: where the database of vulnerabilities cannot be reached, the check says so.
func TestVulncheckSaysThatItDidNot(t *testing.T) {
	check := exec.CommandContext(t.Context(), "scripts/vulncheck")
	check.Dir, check.Env = "../..", append(os.Environ(), "GOVULNDB=http://127.0.0.1:1")
	out, err := check.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "NOT CHECKED for known vulnerabilities: the database at http://127.0.0.1:1 cannot be reached") {
		t.Errorf("%v\n%s", err, out)
	}
}

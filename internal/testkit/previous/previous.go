// Package previous gives tests the version of this program that came before: the commit that
// the file "commit" names. A release changes that file to the commit of the release before it.
package previous

import (
	"bytes"
	_ "embed"
	"os/exec"
	"strings"
	"testing"
)

//go:embed commit
var commit string

// Commit is the previous version's commit. A test that needs it is skipped where the repository
// does not have it: in a shallow clone, or without git.
func Commit(tb testing.TB) string {
	tb.Helper()
	name := strings.TrimSpace(commit)
	require(tb, name)
	return name
}

func require(tb testing.TB, name string) {
	tb.Helper()
	if out, err := exec.Command("git", "cat-file", "-e", name+"^{commit}").CombinedOutput(); err != nil {
		tb.Skipf("commit %s is not in this clone (git fetch --unshallow): %v: %s", name, err, out)
	}
}

// File is the text of a file of any commit; a test is skipped as in [Commit].
func File(tb testing.TB, commit, path string) string {
	tb.Helper()
	require(tb, commit)
	text, err := exec.Command("git", "show", commit+":"+path).Output()
	if err != nil {
		tb.Fatalf("%s of commit %s: %v", path, commit, err)
	}
	return string(text)
}

// Build builds commands of that version, as they are delivered, into a folder. They are named by
// their folders in the repository.
func Build(tb testing.TB, into string, commands ...string) {
	tb.Helper()
	source := tb.TempDir()
	name := Commit(tb)
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		tb.Fatal(err)
	}
	archive := exec.Command("git", "-C", strings.TrimSpace(string(root)), "archive", name)
	files, err := archive.Output()
	if err != nil {
		tb.Fatalf("the files of the previous version: %v", err)
	}
	unpack := exec.Command("tar", "-x", "-C", source)
	unpack.Stdin = bytes.NewReader(files)
	if out, err := unpack.CombinedOutput(); err != nil {
		tb.Fatalf("unpacking the previous version: %v\n%s", err, out)
	}
	build := exec.Command("go", append([]string{"build", "-trimpath", "-o", into + "/"}, commands...)...)
	build.Dir = source
	build.Env = append(build.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		tb.Fatalf("building the previous version: %v\n%s", err, out)
	}
}

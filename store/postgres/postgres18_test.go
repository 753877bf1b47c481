package postgres_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// TestPostgres18 runs all tests of the package on PostgreSQL 18 in place of the one that is installed.
func TestPostgres18(t *testing.T) {
	if !prove {
		t.Skip("all tests once more: make prove runs them")
	}
	realserver.OnPostgres18(t, ".")
}

// TestReturningNamesNoTriggerRow: from PostgreSQL 18 on, OLD and NEW after RETURNING are the row that is written, so that a
// trigger's own row of that name is ambiguous there. Nothing that an older server runs shows it.
func TestReturningNamesNoTriggerRow(t *testing.T) {
	files, err := filepath.Glob("*/*.sql")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	returning, row := regexp.MustCompile(`(?i)\bRETURNING\b`), regexp.MustCompile(`(?i)\b(?:NEW|OLD)\.`)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Dir(f) == "migrations" {
			continue
		}
		for _, at := range returning.FindAllIndex(text, -1) {
			if list := returned(text[at[1]:]); row.Match(list) {
				t.Errorf("%s: RETURNING%s", f, list)
			}
		}
	}
}

// returned is the list after RETURNING, up to the end of the statement or of the parentheses that it stands in.
func returned(text []byte) []byte {
	depth := 0
	for i, c := range text {
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth < 0 || depth == 0 && c == ';' {
			return text[:i]
		}
	}
	return text
}

package postgres_test

import (
	"os"
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// TestPostgres18 runs all tests of the package on PostgreSQL 18 in place of the one that is installed.
func TestPostgres18(t *testing.T) {
	if os.Getenv("UNDERSTUDY_PROVE") != "1" {
		t.Skip("all tests once more: make prove runs them")
	}
	realserver.OnPostgres18(t, ".")
}

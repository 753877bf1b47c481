package postgres_test

import (
	"os"
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// prove: make prove tries more than make test.
var prove = os.Getenv("UNDERSTUDY_PROVE") == "1"

func TestMain(m *testing.M) { os.Exit(realserver.Main(m)) }

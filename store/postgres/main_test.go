package postgres_test

import (
	"os"
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

func TestMain(m *testing.M) { os.Exit(realserver.Main(m)) }

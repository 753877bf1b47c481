package postgres_test

import (
	"os"
	"testing"

	"github.com/understudy-ha/understudy/internal/realserver"
)

func TestMain(m *testing.M) { os.Exit(realserver.Main(m)) }

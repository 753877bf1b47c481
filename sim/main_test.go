package sim

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// TestMain tells make prove's table how much time was simulated.
func TestMain(m *testing.M) {
	code := m.Run()
	fmt.Printf("simulated %d s\n", time.Duration(simulated.Load())/time.Second)
	os.Exit(code)
}

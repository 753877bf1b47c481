package instance

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
)

// stuckWriter takes nothing until it is closed.
type stuckWriter struct {
	closed chan struct{}
	writes int
}

func (w *stuckWriter) Write(p []byte) (int, error) {
	w.writes++
	<-w.closed
	return len(p), nil
}

// Runs end although nobody reads the output of this process, and what they wrote is kept. One write is left behind, not one a run.
func TestRunEndsWhoeverReadsItsOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := &stuckWriter{closed: make(chan struct{})}
		shown := newOutput(reader)
		for range 3 {
			var kept bytes.Buffer
			to, ended, err := tee(&kept, shown)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.WriteString(to, "out")
			_ = to.Close()
			drain, cancel := context.WithTimeout(t.Context(), drainTime)
			ended(drain)
			cancel()
			if synctest.Wait(); err != nil || kept.String() != "out" {
				t.Errorf("kept %q: %v", kept.String(), err)
			}
		}
		close(reader.closed)
		if synctest.Wait(); reader.writes != 1 {
			t.Errorf("%d writes waited for the reader, want that of the first run", reader.writes)
		}
	})
}

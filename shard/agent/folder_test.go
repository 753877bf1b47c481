package agent

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// The loop reads what is saved all the time. A disk that hangs, as a pipe without a reader does, must not hold it up.
func TestHungDiskHoldsUpNoReader(t *testing.T) {
	f, err := openFolder(t.TempDir(), "s", "boot", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	pipe := f.path() + ".next"
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip("no pipes here: ", err)
	}
	changed, writing := make(chan error, 1), make(chan struct{})
	go func() {
		changed <- f.change(true, func(m *shard.SavedState) {
			m.Epoch = 7
			close(writing)
		})
	}()
	<-writing
	read := make(chan shard.SavedState, 1)
	go func() { read <- f.state() }()
	select {
	case m := <-read:
		if m.Epoch != 0 {
			t.Errorf("epoch %d is told before it is on the disk", m.Epoch)
		}
	case <-time.After(time.Minute):
		t.Error("a reader waits for the disk")
	}
	// The disk goes on: a reader of the pipe, which then is the file.
	if reader, err := os.Open(pipe); err == nil {
		defer reader.Close()
	}
	select {
	case err := <-changed:
		if err != nil && f.state().Epoch != 0 {
			t.Errorf("not saved (%v), and told: %+v", err, f.state())
		}
	case <-time.After(time.Minute):
		t.Fatal("the change never ended")
	}
}

//go:build unix

package procgroup

import (
	"bytes"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shell(out *bytes.Buffer, script string) *exec.Cmd {
	c := exec.Command("/bin/sh", "-c", script)
	c.Stdout, c.Stderr = out, out
	return c
}

// TestReadLate: what a program has written is read after its end, even when there is no time for it.
func TestReadLate(t *testing.T) {
	want := strings.Repeat("x", 60_000)
	for range 50 {
		var out bytes.Buffer
		r, err := Start(shell(&out, "head -c 60000 /dev/zero | tr '\\0' x"), time.Nanosecond)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Wait(); err != nil || out.String() != want {
			t.Fatalf("%d bytes, %v", out.Len(), err)
		}
	}
}

// TestHeldOpen: what a program left behind is not waited for, what it has written itself is there.
func TestHeldOpen(t *testing.T) {
	for _, lingers := range []time.Duration{time.Nanosecond, 10 * time.Millisecond} {
		var out bytes.Buffer
		r, err := Start(shell(&out, "sleep 600 & echo $!"), lingers)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Wait(); !errors.Is(err, exec.ErrWaitDelay) {
			t.Errorf("got %v", err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("the leftover %d: %v", pid, err)
		}
	}
}

// TestEndless: neither is what a program left behind read for ever.
func TestEndless(t *testing.T) {
	var out bytes.Buffer
	r, err := Start(shell(&out, "yes & echo $! >&2"), 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(); !errors.Is(err, exec.ErrWaitDelay) { // it ends by itself when nobody reads
		t.Errorf("got %v", err)
	}
}

func TestNotStarted(t *testing.T) {
	var out bytes.Buffer
	c := shell(&out, "")
	c.Path = "/no/such/program"
	if _, err := Start(c, time.Second); err == nil {
		t.Error("it was started")
	}
}

// TestStreams: both streams, one of them and none.
func TestStreams(t *testing.T) {
	var out, said bytes.Buffer
	c := shell(&out, "echo out; echo said >&2; exit 3")
	c.Stderr = &said
	r, err := Start(c, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := r.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 || out.String() != "out\n" || said.String() != "said\n" {
		t.Errorf("%q, %q, %v", out.String(), said.String(), err)
	}
	c = shell(nil, "echo out")
	c.Stdout, c.Stderr = nil, nil
	if r, err = Start(c, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := r.Wait(); err != nil {
		t.Error(err)
	}
}

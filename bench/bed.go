package main

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// bed stands in for a test towards the helpers that start real servers. Only
// the methods below may be called: all others are those of a nil interface.
type bed struct {
	testing.TB

	ending  sync.Mutex // held from the first Fatal on
	mu      sync.Mutex
	cleanup []func()
}

func (b *bed) Helper() {}

// Cleanup runs f when the bed is cleared, last in first out.
func (b *bed) Cleanup(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleanup = append(b.cleanup, f)
}

// TempDir is a new directory below TMPDIR, removed with everything else.
func (b *bed) TempDir() string {
	dir, err := os.MkdirTemp("", "understudy-bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (b *bed) Failed() bool { return false }

func (b *bed) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (b *bed) Log(args ...any)                 { fmt.Fprintln(os.Stderr, args...) }

// Fatal ends the whole run: a figure that cannot be taken is no figure. Who fails
// while that goes on waits for the end.
func (b *bed) Fatal(args ...any) {
	b.ending.Lock()
	b.Log(args...)
	b.clear()
	os.Exit(1)
}

func (b *bed) Fatalf(format string, args ...any) { b.Fatal(fmt.Sprintf(format, args...)) }

// check ends the run if something failed that a figure needs; the text says what was tried.
func (b *bed) check(err error, format string, args ...any) {
	if err != nil {
		b.Fatalf("bench: %s: %v", fmt.Sprintf(format, args...), err)
	}
}

// Skip and Skipf too: the run is meant to be complete.
func (b *bed) Skip(args ...any)                 { b.Fatal(args...) }
func (b *bed) Skipf(format string, args ...any) { b.Fatal(fmt.Sprintf(format, args...)) }

// clear ends what was started on the bed.
func (b *bed) clear() {
	for {
		b.mu.Lock()
		n := len(b.cleanup)
		if n == 0 {
			b.mu.Unlock()
			return
		}
		f := b.cleanup[n-1]
		b.cleanup = b.cleanup[:n-1]
		b.mu.Unlock()
		f()
	}
}

package recorder

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// Found runs a check to its end and returns what it found, in order; nil if nothing. A check that skips
// itself ends there. A panic in the check's own goroutine counts as found.
func Found(t testing.TB, check func(testing.TB)) []string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() { // of its own, because a check may end its goroutine
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.note(fmt.Sprint("panic: ", p))
			}
		}()
		check(r)
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found
}

// recorder is a [testing.TB] that keeps what is found, instead of failing.
type recorder struct {
	testing.TB
	mu    sync.Mutex
	found []string
}

func (r *recorder) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = append(r.found, what)
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found != nil
}

func (r *recorder) Helper()                           {}
func (r *recorder) Fail()                             { r.note("failed") }
func (r *recorder) Error(args ...any)                 { r.note(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.note(fmt.Sprintf(format, args...)) }
func (r *recorder) FailNow()                          { r.Fail(); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) SkipNow()                          { runtime.Goexit() }
func (r *recorder) Skip(...any)                       { runtime.Goexit() }
func (r *recorder) Skipf(string, ...any)              { runtime.Goexit() }

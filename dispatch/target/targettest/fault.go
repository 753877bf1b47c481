package targettest

import (
	"io"
	"maps"
	"net/http"
	"time"
)

// Fault is how a stand-in treats one request. The zero value treats it well.
type Fault struct {
	// Delay before anything else.
	Delay time.Duration
	// Status to answer with, instead of doing anything (or, with After, having
	// done it). With Header and Body, when they are set.
	Status int
	Header http.Header
	Body   string
	// After: the fault strikes after the effect.
	After bool
	// Cut breaks the connection instead of answering.
	Cut bool
	// Half announces a body, sends half of it and breaks the connection.
	Half bool
	// Garbage answers with a body that is called JSON and is none.
	Garbage bool
	// Never answers: the request hangs until its sender gives it up.
	Never bool
}

func (f Fault) set() bool {
	return f.Status != 0 || f.Cut || f.Half || f.Garbage || f.Never
}

// strike carries the fault out and reports whether the request is done with. good is
// the status of an answer that is spoiled.
func (f Fault) strike(w http.ResponseWriter, r *http.Request, good int) bool {
	switch {
	case !f.set():
		return false
	case f.Never:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case f.Cut:
		panic(http.ErrAbortHandler)
	case f.Half:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "200")
		w.WriteHeader(good)
		_, _ = io.WriteString(w, `{"data": [{"id": "`)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case f.Garbage:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(good)
		_, _ = io.WriteString(w, `{"data": [,}`)
	default:
		maps.Copy(w.Header(), f.Header)
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, f.Body)
	}
	return true
}

// wait returns false when the sender has given the request up.
func (f Fault) wait(r *http.Request) bool {
	if f.Delay <= 0 {
		return true
	}
	t := time.NewTimer(f.Delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

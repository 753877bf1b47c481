package fakerouter

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strconv"
	"time"
)

// Fault is how a request is treated.
type Fault struct {
	// Method that it waits for; "" is any.
	Method string
	// Delay before anything else.
	Delay time.Duration
	// Status to answer with, and Code for an error body. With a Body, that is sent
	// instead, and the status is 200 unless told.
	Status int
	Code   int
	Body   string
	Header http.Header
	// Hang: it is never answered.
	Hang bool
	// Cut breaks the connection instead of answering. After: when the effect was
	// had, messages read or published, and then nothing was said of it.
	Cut   bool
	After bool
	// Half sends half of the true answer, and breaks the connection. The router takes
	// it for delivered.
	Half bool
	// Count, if not 0, is what a publication is told instead of the truth, and how
	// many messages of it are kept; below 0: none.
	Count int
}

// strike carries the fault out, and reports whether the request is done with.
func (f Fault) strike(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case f.Hang:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case f.Cut && !f.After:
		panic(http.ErrAbortHandler)
	case f.Body != "":
		maps.Copy(w.Header(), f.Header)
		w.WriteHeader(max(f.Status, http.StatusOK))
		_, _ = io.WriteString(w, f.Body)
		return true
	case f.Status != 0:
		maps.Copy(w.Header(), f.Header)
		refuse(w, f.Status, f.Code, http.StatusText(f.Status))
		return true
	}
	return false
}

// refuse answers with an error body.
func refuse(w http.ResponseWriter, status, code int, message string) {
	body, _ := json.Marshal(map[string]any{
		"status": status, "mrstatus": code, "message": message, "helpURL": "http://example.invalid/docs",
	})
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

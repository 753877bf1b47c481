package messagerouter

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/internal/untrusted"
)

var (
	// ErrNotSent: there was no connection, and nothing has reached the router.
	ErrNotSent = errors.New("messagerouter: not sent")
	// ErrAnswer: the answer is none that a router gives, or only half of one.
	ErrAnswer = errors.New("messagerouter: unusable answer")
	// ErrTooLarge: the answer has more bytes than are read.
	ErrTooLarge = errors.New("messagerouter: the answer is too large")

	errSlow = errors.New("no answer in time")
)

// Codes of a router ("mrstatus") that callers tell apart.
const (
	CodeNotFound = 3001 // no such topic
	CodePartial  = 5007 // it took some of the messages
	CodeTwice    = 5012 // with status 409: this consumer polls from another place too
)

// Error is what a router answered instead of doing what it was asked.
type Error struct {
	// Status of HTTP; that in the body, if HTTP's said that all was well.
	Status int
	// Code is the router's own, "mrstatus"; 0 without one.
	Code int
	// Message is what it said, cut, and fit to be shown.
	Message string
	// RetryAfter is when it wants to be asked again; 0 if it did not say.
	RetryAfter time.Duration
}

// Error implements error.
func (e *Error) Error() string {
	s := fmt.Sprintf("messagerouter: status %d", e.Status)
	if e.Code != 0 {
		s += fmt.Sprintf(", code %d", e.Code)
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// refused is the error of an answer with a bad status.
func refused(resp *http.Response, body []byte) *Error {
	e := refusal(body)
	if e == nil {
		e = &Error{Message: untrusted.Words(string(body))}
	}
	e.Status = resp.StatusCode
	e.RetryAfter, _ = untrusted.RetryAfter(resp.Header, time.Now())
	if to := resp.Header.Get("Location"); to != "" && e.Status >= 300 && e.Status < 400 {
		e.Message = "it redirects to " + untrusted.Words(to) + "; configure that URL if you trust it"
	}
	return e
}

// refusal reads a body that is an error of the router: one object with a code.
// Messages are never looked into.
func refusal(body []byte) *Error {
	if len(body) > maxError || firstByte(body) != '{' {
		return nil
	}
	var said struct {
		Status  json.Number     `json:"status"`
		Code    json.Number     `json:"mrstatus"`
		Message json.RawMessage `json:"message"`
	}
	if err := json.Unmarshal(body, &said); err != nil || said.Code == "" {
		return nil
	}
	code, err := strconv.Atoi(said.Code.String())
	if err != nil {
		return nil
	}
	e := &Error{Status: http.StatusInternalServerError, Code: code}
	if status, err := strconv.Atoi(said.Status.String()); err == nil {
		e.Status = status
	}
	var message string
	if json.Unmarshal(said.Message, &message) == nil {
		e.Message = untrusted.Words(message)
	}
	return e
}

package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
)

const (
	// silence is how long a stream may be silent: the server says every 15 s
	// that it is still there.
	silence = 40 * time.Second
	// firstPause and mostPause lie before coming back to a stream that broke.
	firstPause = 250 * time.Millisecond
	mostPause  = 5 * time.Second
	// maxLine is the longest line of a stream.
	maxLine = 1 << 20
)

// Follow selects what [Client.Events] passes on.
type Follow struct {
	Part, Subject string
	// After is the id of the last event that is known; 0 is from now on, or with All
	// everything that there is first.
	After int64
	All   bool
}

// Events calls fn for each event as it is written, until ctx ends or fn returns
// an error, which it returns. It comes back when the connection breaks; an
// answer that says that asking again is in vain (a wrong token, a wrong filter)
// is returned as an [*Error].
func (c *Client) Events(ctx context.Context, f Follow, fn func(apitype.Event) error) error {
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		got, err := c.stream(ctx, &f, fn)
		var answer *Error
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &answer) && answer.Status < http.StatusInternalServerError:
			return err
		case errors.Is(err, errStop):
			return errors.Unwrap(err)
		}
		if got {
			pause = firstPause
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// errStop marks an error of the caller's function, which ends the stream instead of a reconnection.
var errStop = errors.New("client: stop")

type stopError struct{ error }

func (e stopError) Unwrap() error        { return e.error }
func (e stopError) Is(target error) bool { return target == errStop }

// stream reads one connection to its end and tells whether anything came.
func (c *Client) stream(ctx context.Context, f *Follow, fn func(apitype.Event) error) (got bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	v := url.Values{}
	if f.Part != "" {
		v.Set("part", f.Part)
	}
	if f.Subject != "" {
		v.Set("subject", f.Subject)
	}
	if f.After > 0 || f.All {
		v.Set("after", strconv.FormatInt(f.After, 10))
	}
	answer, err := c.send(ctx, http.MethodGet, "/v1/events", v, nil)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxLine)
	history := false
	for lines.Scan() {
		watchdog.Reset(silence)
		got = true
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "event":
			history = value == "history"
		case name == "data" && history:
			var e apitype.Event
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				return got, fmt.Errorf("client: an event cannot be read: %w", err)
			}
			if err := fn(e); err != nil {
				return got, stopError{err}
			}
			f.After = e.ID
		}
	}
	return got, lines.Err()
}

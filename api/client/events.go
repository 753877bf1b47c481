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
	"github.com/understudy-ha/understudy/internal/backoff"
)

const (
	// silence is how long a stream may be silent: the server says every 15 s
	// that it is still there.
	silence = 40 * time.Second
	// firstPause and mostPause lie before coming back to a stream that broke.
	firstPause = 250 * time.Millisecond
	mostPause  = 5 * time.Second
	// mostRetryAfter is how long at most a server can tell a reader to wait.
	mostRetryAfter = time.Minute
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
// an error, which it returns. It comes back when the connection breaks, and when the
// server says so to one of too many; an answer that says that asking again is in vain (a wrong token, a wrong filter)
// is returned as an [*Error].
func (c *Client) Events(ctx context.Context, f Follow, fn func(apitype.Event) error) error {
	for retry := (backoff.Backoff{First: firstPause, Most: mostPause}); ; {
		query := values("part", f.Part, "subject", f.Subject)
		if f.After > 0 || f.All {
			query.Set("after", strconv.FormatInt(f.After, 10))
		}
		// All: after the id 0, of an empty history, everything is new.
		opened := func(id int64) { f.After, f.All = id, true }
		var refused error // by fn
		came, err := follow(ctx, c, "/v1/events", query, "history", opened, func(e apitype.Event) error {
			if refused = fn(e); refused == nil {
				f.After = e.ID
			}
			return refused
		})
		var answer *Error
		switch {
		case refused != nil:
			return refused
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.As(err, &answer) && answer.Status == http.StatusTooManyRequests:
			told := time.Duration(answer.RetryAfterMS) * time.Millisecond
			if !backoff.Sleep(ctx, min(told, mostRetryAfter)) {
				return context.Cause(ctx)
			}
		case errors.As(err, &answer) && answer.Status < http.StatusInternalServerError:
			return answer
		}
		if came {
			retry.Reset()
		}
		if !retry.Wait(ctx) {
			return context.Cause(ctx)
		}
	}
}

// errEnded: the server ended a stream.
var errEnded = errors.New("client: the server ended the stream")

// follow calls fn with each event of a name in a stream, until ctx ends, the connection breaks or fn returns an error, which
// it returns. opened, if not nil, is called with an id that stands alone: of the newest event before those that follow. came
// reports whether there was anything in the stream.
func follow[T any](ctx context.Context, c *Client, path string, query url.Values, event string, opened func(id int64), fn func(T) error) (came bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silence, func() { cancel(fmt.Errorf("client: the stream was silent for %v", silence)) })
	defer watchdog.Stop()
	answer, err := c.send(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return false, errors.Join(err, context.Cause(ctx))
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxAnswer)
	wanted, id := false, ""
	for lines.Scan() {
		watchdog.Reset(silence)
		came = true
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "event":
			wanted, id = value == event, ""
		case name == "id":
			id = value
		case lines.Text() == "" && id != "": // the end of a block without an event
			if n, err := strconv.ParseInt(id, 10, 64); err == nil && opened != nil {
				opened(n)
			}
			id = ""
		case name == "data" && wanted:
			var e T
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				return came, fmt.Errorf("client: an event cannot be read: %w", err)
			}
			if err := fn(e); err != nil {
				return came, err
			}
		}
	}
	if ctx.Err() != nil {
		return came, context.Cause(ctx)
	}
	if err := lines.Err(); err != nil {
		return came, fmt.Errorf("client: the stream broke: %w", err)
	}
	return came, errEnded
}

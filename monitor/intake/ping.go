package intake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// maxPing is how much of a ping's body is read, to be thrown away.
const maxPing = 10 << 10

// ping answers /v1/ping/{event}/{source}, and the same with /start, /fail or an
// exit status behind it. GET and HEAD count as POST does: for what previews links
// there are keys that take POST alone.
func (h *HTTP) ping(w http.ResponseWriter, r *http.Request, key *PingKey) error {
	_, _ = io.CopyN(io.Discard, r.Body, maxPing)
	b := monitor.Beat{Event: r.PathValue("event"), Source: r.PathValue("source")}
	var err error
	if b.Signal, b.Code, err = said(r.PathValue("what")); err != nil {
		return err
	}
	if r.PathValue("key") == "" && b.Event == "key" {
		return errPath // a key with something missing behind it, which nobody should read as a name
	}
	if err := (monitor.Declaration{Event: b.Event, Source: b.Source}).Validate(); err != nil {
		h.bad.Add(1)
		return err
	}
	if !key.allows(b.Event) {
		h.bad.Add(1)
		return fmt.Errorf("%w: %q", errNotFor, b.Event)
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Timeout)
	defer cancel()
	d := decoder{items: 1, beats: []monitor.Beat{b}, places: []int{0}}
	outcomes, err := h.cfg.Flow.Take(ctx, d.beats)
	if err != nil {
		return err
	}
	cause := Cause("")
	book(&d, outcomes, h.cfg.Name, h.cfg.Letters, func(_ int, c Cause, _ string) { cause = c })
	switch cause {
	case NotKnown:
		h.unknown.Add(1)
		return errEvent
	case "":
		h.accepted.Add(1)
	default:
		h.bad.Add(1)
		return fmt.Errorf("%w: the store does not take it", lease.ErrInvalid)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", "2")
	_, _ = io.WriteString(w, "OK")
	return nil
}

// said reads what a ping ends in.
func said(what string) (monitor.Signal, int, error) {
	switch what {
	case "":
		return monitor.Fine, 0, nil
	case "start":
		return monitor.Start, 0, nil
	case "fail":
		return monitor.Fail, 0, nil
	}
	code, err := strconv.ParseUint(what, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && code > maxCode:
		return 0, 0, errCode
	case err != nil:
		return 0, 0, errPath
	case code == 0:
		return monitor.Fine, 0, nil
	}
	return monitor.Fail, int(code), nil
}

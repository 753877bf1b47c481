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
// there are keys that accept only POST.
func (h *HTTP) ping(w http.ResponseWriter, r *http.Request, key *PingKey) error {
	_, _ = io.CopyN(io.Discard, r.Body, maxPing)
	b := monitor.Heartbeat{Check: r.PathValue("event"), Source: r.PathValue("source")}
	var err error
	if b.Signal, b.Code, err = parsePingSuffix(r.PathValue("what")); err != nil {
		return err
	}
	if r.PathValue("key") == "" && b.Check == "key" {
		return errPath // a key with something missing behind it, which nobody should read as a name
	}
	if err := (monitor.Declaration{Check: b.Check, Source: b.Source}).Validate(); err != nil {
		return err
	}
	if !key.allows(b.Check) {
		return fmt.Errorf("%w: %q", errNotFor, b.Check)
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Timeout)
	defer cancel()
	d := decoder{items: 1, beats: []monitor.Heartbeat{b}, places: []int{0}}
	outcomes, err := h.cfg.Flow.Record(ctx, d.beats)
	if err != nil {
		return err
	}
	cause := Cause("")
	recordOutcomes(&d, outcomes, h.cfg.Name, h.cfg.Letters, func(_ int, c Cause, _ string) { cause = c })
	switch {
	case cause == NotKnown:
		return errEvent
	case cause != "":
		return fmt.Errorf("%w: the store does not take it", lease.ErrInvalid)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", "2")
	_, _ = io.WriteString(w, "OK")
	return nil
}

// parsePingSuffix reads the end of a ping's path.
func parsePingSuffix(what string) (monitor.Signal, int, error) {
	switch what {
	case "":
		return monitor.SignalSuccess, 0, nil
	case "start":
		return monitor.SignalStart, 0, nil
	case "fail":
		return monitor.SignalFail, 0, nil
	}
	code, err := strconv.ParseUint(what, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && code > maxCode:
		return 0, 0, errCode
	case err != nil:
		return 0, 0, errPath
	case code == 0:
		return monitor.SignalSuccess, 0, nil
	}
	return monitor.SignalFail, int(code), nil
}

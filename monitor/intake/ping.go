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

// ReportStore keeps what senders report along with their pings, and knows the sources that have an address of their own.
type ReportStore interface {
	KeepReport(ctx context.Context, of monitor.SourceRef, r monitor.Report) error
	Sources(ctx context.Context, q monitor.SourceQuery) ([]monitor.SourceRecord, error)
}

// ping answers /v1/ping/{event}/{source}, and the same with an [action] behind it. GET and HEAD count as POST does: for
// what previews links there are keys that accept only POST.
func (h *HTTP) ping(w http.ResponseWriter, r *http.Request, key *PingKey) error {
	of := monitor.SourceRef{Check: r.PathValue("event"), Source: r.PathValue("source")}
	if r.PathValue("key") == "" && of.Check == "key" {
		return errPath // a key with something missing behind it, which nobody should read as a name
	}
	if err := (monitor.Declaration{Check: of.Check, Source: of.Source}).Validate(); err != nil {
		return err
	}
	return h.answerPing(w, r, key, of)
}

// answerPing records what a ping says of a source, and what it brought along.
func (h *HTTP) answerPing(w http.ResponseWriter, r *http.Request, key *PingKey, of monitor.SourceRef) error {
	if err := h.recordPing(r, key, of, r.PathValue("what")); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", "2")
	w.Header().Set("Ping-Body-Limit", strconv.Itoa(monitor.MaxReport))
	_, _ = io.WriteString(w, "OK")
	return nil
}

func (h *HTTP) recordPing(r *http.Request, key *PingKey, of monitor.SourceRef, what string) error {
	report := monitor.Report{Run: r.URL.Query().Get("rid")}
	if report.Run != "" && !IsUUID(report.Run) {
		return errRun
	}
	var signal monitor.Signal
	var err error
	if signal, report.Kind, report.Code, err = action(what); err != nil {
		return err
	}
	if !key.allows(of.Check) {
		return fmt.Errorf("%w: %q", errNotFor, of.Check)
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Timeout)
	defer cancel()
	// What is longer is cut, not refused: the heartbeat matters more.
	if report.Body, err = io.ReadAll(io.LimitReader(r.Body, monitor.MaxReport)); err != nil {
		return fmt.Errorf("%w: %w", errBody, err)
	}
	if report.Kind != monitor.ReportLog {
		b := monitor.Heartbeat{Check: of.Check, Source: of.Source, Signal: signal, Code: report.Code, Run: monitor.RunKey(report.Run)}
		if err := h.recordOne(ctx, b); err != nil {
			return err
		}
	}
	if h.cfg.Reports == nil || len(report.Body) == 0 && report.Kind != monitor.ReportLog {
		return nil
	}
	return h.cfg.Reports.KeepReport(ctx, of, report)
}

// recordOne records a heartbeat that came by itself.
func (h *HTTP) recordOne(ctx context.Context, b monitor.Heartbeat) error {
	d := decoder{items: 1, beats: []monitor.Heartbeat{b}, places: []int{0}}
	outcomes, err := h.cfg.Flow.Record(ctx, d.beats)
	if err != nil {
		return err
	}
	cause := Cause("")
	recordOutcomes(&d, outcomes, h.cfg.Name, h.cfg.Rejected, func(_ int, c Cause, _ string) { cause = c })
	switch {
	case cause.isUnknown():
		return errEvent
	case cause != "":
		return fmt.Errorf("%w: the store does not take it", lease.ErrInvalid)
	}
	return nil
}

// action reads the end of a ping's path.
func action(what string) (monitor.Signal, monitor.ReportKind, int, error) {
	switch what {
	case "":
		return monitor.SignalSuccess, monitor.ReportSuccess, 0, nil
	case "start":
		return monitor.SignalStart, monitor.ReportStart, 0, nil
	case "fail":
		return monitor.SignalFail, monitor.ReportFail, 0, nil
	case "log":
		return 0, monitor.ReportLog, 0, nil
	}
	code, err := strconv.ParseUint(what, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && code > maxCode:
		return 0, "", 0, errCode
	case err != nil:
		return 0, "", 0, errPath
	case code == 0:
		return monitor.SignalSuccess, monitor.ReportSuccess, 0, nil
	}
	return monitor.SignalFail, monitor.ReportFail, int(code), nil
}

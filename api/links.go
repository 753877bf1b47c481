package api

import (
	"cmp"
	"context"
	"fmt"
	"html"
	"net/http"
	"strings"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// errLink: a link is not one that this store has signed.
var errLink = fmt.Errorf("%w: this link is not valid; copy all of it", errNoRoute)

// linkRoutes need no token, because whoever has such a link may do what it is for: see [monitor.Links].
func (p *monitorPart) linkRoutes() []route {
	return []route{
		{pattern: "GET /badge/{check}/{source}/{signature}", open: true, keyed: true, handle: p.publicBadge},
		// Programs that preview links send GET: only POST acknowledges.
		{pattern: "GET /acknowledge/{alarm}/{signature}", open: true, keyed: true, handle: p.acknowledgePage},
		{pattern: "POST /acknowledge/{alarm}/{signature}", open: true, keyed: true, handle: p.acknowledgeByLink},
	}
}

// links reads the secret once: it never changes.
func (p *monitorPart) links(ctx context.Context) (monitor.Links, error) {
	p.linksMu.Lock()
	defer p.linksMu.Unlock()
	if p.secret == nil {
		s, err := p.table.Settings(ctx)
		if err != nil {
			return monitor.Links{}, err
		}
		p.secret = s.Secret
	}
	return monitor.Links{Secret: p.secret}, nil
}

func (p *monitorPart) publicBadge(w http.ResponseWriter, r *http.Request) error {
	links, err := p.links(r.Context())
	if err != nil {
		return err
	}
	if !links.MaySeeBadge(monitor.SourceRef{Check: r.PathValue("check"), Source: r.PathValue("source")}, r.PathValue("signature")) {
		return errLink
	}
	// Pages of other sites show it.
	w.Header().Set("Cross-Origin-Resource-Policy", "cross-origin")
	return p.badge(w, r)
}

// alarmOf is the alarm that a link is for.
func (p *monitorPart) alarmOf(r *http.Request) (out monitor.Alarm, err error) {
	links, err := p.links(r.Context())
	if err != nil {
		return out, err
	}
	id := r.PathValue("alarm")
	if !links.MayAcknowledge(id, r.PathValue("signature")) {
		return out, errLink
	}
	found, err := p.table.Alarms(r.Context(), monitor.AlarmQuery{ID: id, Limit: 1})
	if err == nil && len(found) == 0 {
		err = monitor.ErrNoAlarm
	}
	if err != nil {
		return out, err
	}
	return found[0], nil
}

func (p *monitorPart) acknowledgePage(w http.ResponseWriter, r *http.Request) error {
	alarm, err := p.alarmOf(r)
	if err != nil {
		return err
	}
	return writeAcknowledgePage(w, alarm, http.StatusOK, "")
}

func (p *monitorPart) acknowledgeByLink(w http.ResponseWriter, r *http.Request) error {
	alarm, err := p.alarmOf(r)
	if err != nil {
		return err
	}
	if alarm.Ended.IsZero() && alarm.Acknowledged == "" {
		by := "link"
		if name := strings.TrimSpace(r.FormValue("by")); name != "" {
			by = name + " by link"
		}
		if alarm.Acknowledged, err = requesterOf(r, by); err != nil { // whoever follows a link reads no JSON
			alarm.Acknowledged = ""
			return writeAcknowledgePage(w, alarm, http.StatusBadRequest, "<p>"+html.EscapeString(strings.TrimPrefix(err.Error(), lease.ErrInvalid.Error()+": "))+".")
		}
		a := monitor.Action{Type: monitor.ActionAcknowledge, Alarm: alarm.ID, Who: alarm.Acknowledged, Note: "by the link in its alarm"}
		if err := p.table.ApplyAction(r.Context(), a); err != nil {
			return err
		}
		p.snapshot.invalidate()
	}
	return writeAcknowledgePage(w, alarm, http.StatusOK, "")
}

// writeAcknowledgePage shows an alarm, with the form while nobody has acknowledged it; above is HTML that stands over the form.
func writeAcknowledgePage(w http.ResponseWriter, alarm monitor.Alarm, status int, above string) error {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Referrer-Policy", "same-origin") // with less, browsers do not say that the form is this page's
	state := above + acknowledgeForm
	switch {
	case !alarm.Ended.IsZero():
		state = "<p>It ended at " + alarm.Ended.UTC().Format(pageTime) + "."
	case alarm.Acknowledged != "":
		state = "<p>Acknowledged by " + html.EscapeString(alarm.Acknowledged) + ". No more reminders are sent."
	}
	w.WriteHeader(status)
	_, err := fmt.Fprintf(w, acknowledgeFrame, html.EscapeString(cmp.Or(alarm.Source, alarm.Group)), html.EscapeString(alarm.Check),
		html.EscapeString(string(alarm.Reason)), alarm.Started.UTC().Format(pageTime), state)
	return err
}

const (
	pageTime = "2006-01-02 15:04:05 UTC"

	acknowledgeFrame = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Alarm of %[1]s</title>
<h1>%[1]s of %[2]s: %[3]s</h1>
<p>Since %[4]s.
%[5]s
</html>
`

	acknowledgeForm = `<form method="post"><label>Your name: <input name="by" maxlength="80" autocomplete="name"></label> <button>Acknowledge</button></form>
<p>Others see it, and no more reminders are sent. The alarm ends when the source returns.`
)

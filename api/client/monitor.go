package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Beat is a sign of life of a source.
type Beat struct {
	Event  string `json:"event"`
	Source string `json:"source"`
	// Signal is "ok", which "" is too, "start" when a run begins, or "fail".
	Signal string `json:"signal,omitempty"`
	Code   int    `json:"code,omitempty"` // exit status of a run
	// Sent and Seq are by the sender's own account. A beat with the same of both as
	// the last one is a replay, and counts for nothing.
	Sent time.Time `json:"sent,omitzero"`
	Seq  int64     `json:"seq,omitempty"`
}

// Taken tells what became of beats.
type Taken struct {
	Accepted int `json:"accepted"`
	Unknown  int `json:"unknown"` // of an event that is not configured, or a source that is not declared
	Bad      int `json:"bad"`
	// Errors of the first that were not accepted.
	Errors []BeatError `json:"errors"`
}

// BeatError is why a beat was not accepted; Index is its place among those sent.
type BeatError struct {
	Index  int    `json:"index"`
	Cause  string `json:"cause"`
	Detail string `json:"detail"`
}

// Beats sends beats, up to 10,000 of them, and returns when those that were
// accepted are stored. After an error they may be, and can be sent again: at the worst
// a source counts as heard a little later.
func (c *Client) Beats(ctx context.Context, beats ...Beat) (Taken, error) {
	var out Taken
	err := c.do(ctx, http.MethodPost, "/v1/beats", nil, append([]Beat{}, beats...), &out)
	return out, err
}

// Ping sends one beat: what is "" when all is well, "start", "fail" or an exit
// status. An [*Error] when it is not accepted.
func (c *Client) Ping(ctx context.Context, event, source, what string) error {
	path := "/v1/ping/" + url.PathEscape(event) + "/" + url.PathEscape(source)
	if what != "" {
		path += "/" + url.PathEscape(what)
	}
	ctx, cancel := within(ctx, callTimeout)
	defer cancel()
	answer, err := c.send(ctx, http.MethodPost, path, nil, nil)
	if err != nil {
		return err
	}
	return answer.Body.Close() // says OK in plain text
}

// Source is what beats are expected from.
type Source struct {
	Event    string            `json:"event"`
	Source   string            `json:"source"`
	Labels   map[string]string `json:"labels"`
	Declared bool              `json:"declared"`
	State    string            `json:"state"` // up, down, paused or retired
	Running  bool              `json:"running"`
	// Last is when it beat last, and QuietMS how long that is ago; nil if it never did.
	Last    *time.Time `json:"last"`
	QuietMS *int64     `json:"quiet_ms"`
	Beats   int64      `json:"beats"`
	// Recent has a 1 for each of its last intervals in which a beat came, and
	// otherwise a 0; the newest first.
	Recent string     `json:"recent"`
	Sent   *time.Time `json:"sent"`
	Seq    int64      `json:"seq"`
	Code   int        `json:"code"`
	Path   string     `json:"path"`
	// LeftMS is how long it may still be quiet, negative when that is over; nil when
	// it is not judged.
	LeftMS *int64 `json:"left_ms"`
	// Alarm that stands, "" for none.
	Alarm  string     `json:"alarm"`
	Reason string     `json:"reason"`
	Since  *time.Time `json:"since"`
	Until  *time.Time `json:"until"` // when its pause ends by itself
	Note   string     `json:"note"`
}

// SourceQuery selects sources, in the order of event and name.
type SourceQuery struct {
	Event, Source, State string // only of this event, of this name, in this state
	Label, Value         string // only with this label, if it is not "", of this value
	// Contains selects names that contain it, in capitals or not. The server looks at
	// so many a request: a page may then have fewer than the limit, and a Next.
	Contains string
	After    *SourceCursor // go on after a page
	Limit    int           // default 100, at most 1000
}

// SourceCursor is where a page of sources ends.
type SourceCursor struct{ Event, Source string }

// Sources lists sources, and tells where to go on, nil if there are no more.
func (c *Client) Sources(ctx context.Context, q SourceQuery) (sources []Source, next *SourceCursor, err error) {
	v := url.Values{}
	set(v, "event", q.Event)
	set(v, "source", q.Source)
	set(v, "state", q.State)
	set(v, "contains", q.Contains)
	if q.Label != "" {
		v.Set("label", q.Label+"="+q.Value)
	}
	if q.After != nil {
		set(v, "after_event", q.After.Event)
		set(v, "after_source", q.After.Source)
	}
	setNumber(v, "limit", int64(q.Limit))
	var out struct {
		Sources    []Source `json:"sources"`
		NextEvent  string   `json:"next_event"`
		NextSource string   `json:"next_source"`
	}
	if err := c.do(ctx, http.MethodGet, "/v1/sources", v, nil, &out); err != nil {
		return nil, nil, err
	}
	if out.NextEvent != "" {
		next = &SourceCursor{out.NextEvent, out.NextSource}
	}
	return out.Sources, next, nil
}

// Alarm is one outage.
type Alarm struct {
	ID      string            `json:"id"` // the request id that its ONSET and its ABATED share
	Event   string            `json:"event"`
	Source  string            `json:"source"` // "" for the alarm of a group
	Group   string            `json:"group"`
	Members int               `json:"members"` // of a group
	Labels  map[string]string `json:"labels"`
	Reason  string            `json:"reason"` // silent, failed or overrun
	Started time.Time         `json:"started"`
	Raised  time.Time         `json:"raised"`
	Ended   *time.Time        `json:"ended"` // nil while it stands
	End     string            `json:"end"`   // ABATED, retire or forget
	// Acknowledged by whom.
	Acknowledged string `json:"acknowledged"`
}

// Alarm returns one alarm.
func (c *Client) Alarm(ctx context.Context, id string) (Alarm, error) {
	var out Alarm
	err := c.do(ctx, http.MethodGet, "/v1/alarms/"+url.PathEscape(id), nil, nil, &out)
	return out, err
}

// AlarmQuery selects alarms, the newest first.
type AlarmQuery struct {
	Event, Source string
	Standing      bool // only those that stand
	// Before, with BeforeID, goes on after an alarm: its Raised and ID.
	Before   time.Time
	BeforeID string
	Limit    int // default 100, at most 1000
}

// Alarms lists alarms; there may be more if there are as many as the limit.
func (c *Client) Alarms(ctx context.Context, q AlarmQuery) ([]Alarm, error) {
	v := url.Values{}
	set(v, "event", q.Event)
	set(v, "source", q.Source)
	set(v, "before_id", q.BeforeID)
	if q.Standing {
		v.Set("standing", strconv.FormatBool(true))
	}
	if !q.Before.IsZero() {
		v.Set("before", q.Before.Format(time.RFC3339Nano))
	}
	setNumber(v, "limit", int64(q.Limit))
	var out struct{ Alarms []Alarm }
	err := c.do(ctx, http.MethodGet, "/v1/alarms", v, nil, &out)
	return out.Alarms, err
}

// Acknowledge shows everybody who knows of an alarm. It stands as before.
func (c *Client) Acknowledge(ctx context.Context, alarm, by, note string) error {
	return c.do(ctx, http.MethodPost, "/v1/alarms/"+url.PathEscape(alarm)+"/acknowledge", nil, map[string]string{"by": by, "note": note}, nil)
}

// Declaration makes a source known before its first beat.
type Declaration struct {
	Event  string            `json:"event"`
	Source string            `json:"source"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Declare makes sources known, up to 1000, all or none, and tells how many of them
// are new. One that never beats raises an alarm after a whole limit.
func (c *Client) Declare(ctx context.Context, sources ...Declaration) (added int, err error) {
	var out struct{ New int }
	err = c.do(ctx, http.MethodPost, "/v1/sources", nil, map[string]any{"sources": append([]Declaration{}, sources...)}, &out)
	return out.New, err
}

// Pause keeps a source from raising alarms for a while, or with 0 until it is
// resumed. The history shows by and note, here and below.
func (c *Client) Pause(ctx context.Context, event, source string, d time.Duration, by, note string) error {
	return c.actOn(ctx, event, source, "pause", map[string]any{"for_ms": d.Milliseconds(), "by": by, "note": note})
}

// PauseEvent keeps all sources of an event from raising alarms until it is resumed.
func (c *Client) PauseEvent(ctx context.Context, event, by, note string) error {
	return c.do(ctx, http.MethodPost, "/v1/event-names/"+url.PathEscape(event)+"/pause", nil, map[string]string{"by": by, "note": note}, nil)
}

// ResumeEvent ends the pause of an event; sources that were paused by themselves stay so.
func (c *Client) ResumeEvent(ctx context.Context, event, by, note string) error {
	return c.do(ctx, http.MethodPost, "/v1/event-names/"+url.PathEscape(event)+"/resume", nil, map[string]string{"by": by, "note": note}, nil)
}

// Resume ends the pause of a source, which has a whole limit to show itself.
func (c *Client) Resume(ctx context.Context, event, source, by, note string) error {
	return c.actOn(ctx, event, source, "resume", map[string]any{"by": by, "note": note})
}

// Retire ends the alarm of a source, and judges it no more until it beats again.
func (c *Client) Retire(ctx context.Context, event, source, by, note string) error {
	return c.actOn(ctx, event, source, "retire", map[string]any{"by": by, "note": note})
}

func (c *Client) actOn(ctx context.Context, event, source, verb string, body map[string]any) error {
	return c.do(ctx, http.MethodPost, "/v1/sources/"+url.PathEscape(event)+"/"+url.PathEscape(source)+"/"+verb, nil, body, nil)
}

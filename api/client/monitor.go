package client

import (
	"context"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
)

// Beats sends beats, up to 10,000 of them, and returns when those that were
// accepted are stored. After an error they may be, and can be sent again: at the worst
// a source counts as heard a little later.
func (c *Client) Beats(ctx context.Context, beats ...apitype.Beat) (apitype.BeatsTaken, error) {
	return call[apitype.BeatsTaken](ctx, c, http.MethodPost, "/v1/beats", nil, append([]apitype.Beat{}, beats...))
}

// Ping sends one beat: what is "" when all is well, "start", "fail" or an exit
// status. An [*Error] when it is not accepted.
func (c *Client) Ping(ctx context.Context, event, source, what string) error {
	path := pathOf("ping", event, source)
	if what != "" {
		path = pathOf("ping", event, source, what)
	}
	ctx, cancel := withTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := c.send(ctx, http.MethodPost, path, nil, nil)
	if err != nil {
		return err
	}
	return answer.Body.Close() // says OK in plain text
}

// SourceQuery selects sources, in the order of check and name.
type SourceQuery struct {
	Check, Source, State string // only of this check, of this name, in this state
	Label, Value         string // only with this label, if it is not "", of this value
	// Contains selects names that contain it, in capitals or not. The server looks at
	// so many a request: a page may then have fewer than the limit, and a Next.
	Contains string
	After    string // Next of the page before
	Limit    int    // default 100, at most 1000
}

// Sources lists sources.
func (c *Client) Sources(ctx context.Context, q SourceQuery) (apitype.Sources, error) {
	v := values("check", q.Check, "source", q.Source, "state", q.State, "contains", q.Contains, "after", q.After, "limit", q.Limit)
	if q.Label != "" {
		v.Set("label", q.Label+"="+q.Value)
	}
	return get[apitype.Sources](ctx, c, "/v1/sources", v)
}

// Source returns one source, with what it reported last and its latest alarms.
func (c *Client) Source(ctx context.Context, check, source string) (apitype.SourceAlarms, error) {
	return get[apitype.SourceAlarms](ctx, c, pathOf("sources", check, source), nil)
}

// Alarm returns one alarm.
func (c *Client) Alarm(ctx context.Context, id string) (apitype.Alarm, error) {
	return get[apitype.Alarm](ctx, c, pathOf("alarms", id), nil)
}

// AlarmQuery selects alarms, the newest first.
type AlarmQuery struct {
	Check, Source string
	Open          bool   // only those that have not ended
	After         string // Next of the page before
	Limit         int    // default 100, at most 1000
}

// Alarms lists alarms.
func (c *Client) Alarms(ctx context.Context, q AlarmQuery) (apitype.Alarms, error) {
	// A server of the version before knows standing, and ignores open.
	v := values("check", q.Check, "source", q.Source, "open", q.Open, "standing", q.Open, "after", q.After, "limit", q.Limit)
	return get[apitype.Alarms](ctx, c, "/v1/alarms", v)
}

// Acknowledge shows everyone who knows of an alarm. It stands as before.
func (c *Client) Acknowledge(ctx context.Context, alarm, by, note string) error {
	return c.post(ctx, pathOf("alarms", alarm, "acknowledge"), apitype.MonitorAction{By: by, Note: note})
}

// Declare makes sources known, up to 1000, all or none, and tells how many of them
// are new. One that never beats raises an alarm after a whole limit.
func (c *Client) Declare(ctx context.Context, sources ...apitype.Declaration) (added int, err error) {
	body := apitype.Declarations{Sources: append([]apitype.Declaration{}, sources...)}
	out, err := call[apitype.Declared](ctx, c, http.MethodPost, "/v1/sources", nil, body)
	return out.New, err
}

// Pause keeps a source from raising alarms for a while, or with 0 until it is
// resumed. The history shows by and note, here and below.
func (c *Client) Pause(ctx context.Context, event, source string, d time.Duration, by, note string) error {
	return c.post(ctx, pathOf("sources", event, source, "pause"), apitype.MonitorAction{ForMS: d.Milliseconds(), By: by, Note: note})
}

// PauseCheck keeps all sources of a check from raising alarms until it is resumed.
func (c *Client) PauseCheck(ctx context.Context, check, by, note string) error {
	return c.post(ctx, pathOf("checks", check, "pause"), apitype.MonitorAction{By: by, Note: note})
}

// ResumeCheck ends the pause of a check; sources that were paused by themselves stay so.
func (c *Client) ResumeCheck(ctx context.Context, check, by, note string) error {
	return c.post(ctx, pathOf("checks", check, "resume"), apitype.MonitorAction{By: by, Note: note})
}

// Resume ends the pause of a source, which has a whole limit to show itself.
func (c *Client) Resume(ctx context.Context, event, source, by, note string) error {
	return c.post(ctx, pathOf("sources", event, source, "resume"), apitype.MonitorAction{By: by, Note: note})
}

// Retire ends the alarm of a source, and judges it no more until it beats again.
func (c *Client) Retire(ctx context.Context, event, source, by, note string) error {
	return c.post(ctx, pathOf("sources", event, source, "retire"), apitype.MonitorAction{By: by, Note: note})
}

// Configure applies all checks, whole or not at all. It may take a minute for very many of them.
func (c *Client) Configure(ctx context.Context, m apitype.MonitorConfiguration) (apitype.ConfigurationChange, error) {
	ctx, cancel := withTimeout(ctx, time.Minute+callTimeout)
	defer cancel()
	return call[apitype.ConfigurationChange](ctx, c, http.MethodPut, "/v1/monitor/configuration", nil, m)
}

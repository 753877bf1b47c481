package sink_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/dispatch/target/targettest"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/sink"
)

func hook(t *testing.T, c sink.WebhookConfig) dispatch.Target {
	t.Helper()
	return open(t, sink.Config{Webhook: &c})
}

// TestWebhookAsItIs: without a template the message goes out to the byte, signed, and with
// an id by which its receiver recognises it.
func TestWebhookAsItIs(t *testing.T) {
	at := &targettest.Sink{Deduplicates: true, Check: func(r *http.Request, body []byte) error {
		if r.Method != http.MethodPut || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("X-Team") != "edge" {
			return errors.New("not the request that was configured")
		}
		var m monitor.AlarmMessage
		if err := json.Unmarshal(body, &m); err != nil {
			return err
		}
		if diff := cmp.Diff(onset(), m); diff != "" && m.Status == monitor.Onset {
			return errors.New(diff)
		}
		return target.Verify([]byte("s3cret"), r.Header, body, time.Now(), time.Minute)
	}}
	s := hook(t, sink.WebhookConfig{
		URL: sink.Secret(serve(t, at.ServeHTTP)), Method: http.MethodPut, Secret: "s3cret", Deduplicates: true,
		Header: map[string]sink.Secret{"x-team": "edge"},
	})
	if got := s.Semantics(); !got.Resend || !got.Deduplicates || got.HasStatus {
		t.Errorf("semantics %+v", got)
	}
	for _, m := range []monitor.AlarmMessage{onset(), onset(), abated()} {
		wants(t, tell(t, s, m), dispatch.Done)
	}
	var ids []string
	for _, r := range at.Requests() {
		ids = append(ids, r.ID+" "+strconv.FormatBool(r.Effect))
	}
	if diff := cmp.Diff([]string{requestID + "/ONSET true", requestID + "/ONSET false", requestID + "/ABATED true"}, ids); diff != "" {
		t.Error(diff)
	}
}

func TestWebhookAnswers(t *testing.T) {
	for _, c := range []struct {
		status int
		header http.Header
		want   dispatch.Outcome
	}{
		{200, nil, dispatch.Done}, {201, nil, dispatch.Done}, {204, nil, dispatch.Done},
		{202, http.Header{"Location": {"/later"}}, dispatch.Done},
		{202, http.Header{"Location": {"http://elsewhere/later"}}, dispatch.Done},
		{301, http.Header{"Location": {"/there"}}, dispatch.Misconfigured}, {307, http.Header{"Location": {"/there"}}, dispatch.Misconfigured},
		{400, nil, dispatch.InvalidMessage}, {413, nil, dispatch.InvalidMessage}, {422, nil, dispatch.InvalidMessage},
		{401, nil, dispatch.Misconfigured}, {403, nil, dispatch.Misconfigured}, {404, nil, dispatch.Misconfigured}, {410, nil, dispatch.Misconfigured},
		{408, nil, dispatch.Uncertain}, {425, nil, dispatch.Busy}, {429, http.Header{"Retry-After": {"7"}}, dispatch.Busy},
		{500, nil, dispatch.Uncertain}, {502, nil, dispatch.Uncertain}, {503, http.Header{"Retry-After": {"7"}}, dispatch.Busy},
	} {
		t.Run(strconv.Itoa(c.status), func(t *testing.T) {
			requests := make(chan struct{}, 10)
			s := hook(t, sink.WebhookConfig{URL: sink.Secret(serve(t, func(w http.ResponseWriter, _ *http.Request) {
				requests <- struct{}{}
				maps.Copy(w.Header(), c.header)
				w.WriteHeader(c.status)
			}))})
			got := tell(t, s, onset())
			wants(t, got, c.want)
			if c.header.Get("Retry-After") != "" && got.RetryAfter != 7*time.Second {
				t.Errorf("retry after %v", got.RetryAfter)
			}
			if len(requests) != 1 {
				t.Errorf("%d requests", len(requests))
			}
		})
	}
}

func TestWebhookTemplates(t *testing.T) {
	text := func(s string) *string { return &s }
	for name, c := range map[string]struct {
		config sink.WebhookConfig
		m      monitor.AlarmMessage
		want   []string // nil: nothing is sent
	}{
		"json": {sink.WebhookConfig{Body: `{"who":{{json .Source}},"what":{{json .Title}},"since":"{{time .Started}}","at":"{{time .Started "15:04"}}"}`}, onset(),
			[]string{`{"who":"edge-17","what":"ONSET: edge-17 is silent (Heartbeat_edge)","since":"2026-11-21T10:00:15.25Z","at":"10:00"}`}},
		"seconds": {sink.WebhookConfig{Body: `[{{unix .Started}},{{unix .LastBeat}},{{unix .Ended}}]`}, onset(), []string{`[1795255215,1795255200,0]`}},
		"nothing there": {sink.WebhookConfig{Body: `[{{json .Labels.site}},{{json .Labels.other}},{{json (default "none" .Labels.other)}},{{json (default "none" .Group)}},"{{time .Ended}}"]`}, onset(),
			[]string{`["berlin","","none","none",""]`}},
		"ended by a changed check": {sink.WebhookConfig{Body: "{{.Title}}", ContentType: "text/plain"}, ended(monitor.Resume),
			[]string{"ABATED: edge-17 is not down by the changed check (Heartbeat_edge)"}},
		"plain":            {sink.WebhookConfig{Body: "{{.Source}} {{.Status}}", ContentType: "text/plain"}, onset(), []string{"edge-17 ONSET"}},
		"of a group":       {sink.WebhookConfig{Body: "{{range .Members}}{{.}};{{end}}{{.Count}}", ContentType: "text/plain"}, group(), []string{"edge-1;edge-2;edge-3;3"}},
		"onset of both":    {sink.WebhookConfig{Onset: text("1"), Abated: text("2")}, onset(), []string{"1"}},
		"abated of both":   {sink.WebhookConfig{Onset: text("1"), Abated: text("2")}, abated(), []string{"2"}},
		"abated by itself": {sink.WebhookConfig{Body: "1", Abated: text("2")}, abated(), []string{"2"}},
		"onset with body":  {sink.WebhookConfig{Body: "1", Abated: text("2")}, onset(), []string{"1"}},
		"empty":            {sink.WebhookConfig{Abated: text("")}, abated(), nil},
		"white space":      {sink.WebhookConfig{Body: "{{if eq .Severity \"critical\"}}1{{end}}\n"}, onset(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			url, bodies := received(t)
			c.config.URL = sink.Secret(url)
			wants(t, tell(t, hook(t, c.config), c.m), dispatch.Done)
			if diff := cmp.Diff(c.want, bodies()); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("the message as it is where there is none", func(t *testing.T) {
		url, bodies := received(t)
		s := hook(t, sink.WebhookConfig{URL: sink.Secret(url), Abated: text("")})
		wants(t, tell(t, s, onset()), dispatch.Done)
		wants(t, tell(t, s, abated()), dispatch.Done)
		if got := bodies(); len(got) != 1 || got[0] != string(batch(t, onset()).Payload) {
			t.Errorf("sent %q", got)
		}
	})
	t.Run("one that fails later keeps the alarm", func(t *testing.T) {
		url, bodies := received(t)
		s := hook(t, sink.WebhookConfig{URL: sink.Secret(url), Body: `{{if eq .Source "edge-17"}}{{slice .Source 99}}{{end}}`, ContentType: "text/plain"})
		wants(t, tell(t, s, onset()), dispatch.Misconfigured)
		if got := bodies(); len(got) != 0 {
			t.Errorf("sent %q", got)
		}
	})
}

// TestWebhookHostileNames: names are data to a template, never one.
func TestWebhookHostileNames(t *testing.T) {
	url, bodies := received(t)
	s := hook(t, sink.WebhookConfig{URL: sink.Secret(url), Body: `{"source":{{json .Source}},"title":{{json .Title}}}`})
	for _, name := range hostile() {
		wants(t, tell(t, s, named(onset(), name)), dispatch.Done)
		var got struct{ Source, Title string }
		if err := json.Unmarshal([]byte(bodies()[0]), &got); err != nil {
			t.Fatal(err)
		}
		if want := strings.ToValidUTF8(name, "\uFFFD"); !strings.HasPrefix(name, "bad") && got.Source != want {
			t.Errorf("source %q, want %q", got.Source, want)
		}
		if strings.ContainsFunc(got.Title, func(r rune) bool { return r < ' ' }) || len(got.Title) > 1100 {
			t.Errorf("title %q", got.Title)
		}
	}
}

// TestD06 for HTTP: a receiver that never answers costs its own alarm a deadline, and
// no other sink anything.
func TestD06NothingHangs(t *testing.T) {
	arrived := make(chan struct{}, 1)
	stuck := hook(t, sink.WebhookConfig{URL: sink.Secret(serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-r.Context().Done()
	}))})
	url, _ := received(t)
	well := hook(t, sink.WebhookConfig{URL: sink.Secret(url)})
	ctx, cancel := context.WithCancel(t.Context())
	a, answer := batch(t, onset()), make(chan dispatch.Answer, 1)
	go func() { answer <- stuck.Submit(ctx, a) }()
	<-arrived
	wants(t, tell(t, well, onset()), dispatch.Done)
	select {
	case got := <-answer:
		t.Errorf("answered %+v before its deadline", got)
	default:
	}
	cancel()
	wants(t, <-answer, dispatch.Uncertain)
}

func TestWebhookFaults(t *testing.T) {
	for name, c := range map[string]struct {
		fault targettest.Fault
		want  dispatch.Outcome
	}{
		"slow":            {targettest.Fault{Delay: time.Millisecond}, dispatch.Done},
		"cut":             {targettest.Fault{Cut: true}, dispatch.Uncertain},
		"cut afterwards":  {targettest.Fault{Cut: true, After: true}, dispatch.Uncertain},
		"half an answer":  {targettest.Fault{Half: true, After: true}, dispatch.Uncertain},
		"endless refusal": {targettest.Fault{Status: 400, Body: strings.Repeat("x", 1<<20)}, dispatch.InvalidMessage},
	} {
		t.Run(name, func(t *testing.T) {
			at := &targettest.Sink{Fault: func(targettest.Request) targettest.Fault { return c.fault }}
			wants(t, tell(t, hook(t, sink.WebhookConfig{URL: sink.Secret(serve(t, at.ServeHTTP))}), onset()), c.want)
		})
	}
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	wants(t, tell(t, hook(t, sink.WebhookConfig{URL: sink.Secret(s.URL)}), onset()), dispatch.Busy)
}

// TestD19 for sinks: what a receiver knows it may repeat, and nobody is shown it.
func TestD19SecretsAreNotRepeated(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://"+r.Host+r.URL.RequestURI())
		w.WriteHeader(map[string]int{"/s3cret-moved": 301}[r.URL.Path] + map[string]int{"/s3cret-hook": 400}[r.URL.Path])
		_, _ = io.WriteString(w, "you sent "+r.Header.Get("X-Key")+r.Header.Get("Authorization")+" to "+r.URL.RequestURI()+" "+r.URL.RawQuery)
	})
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("s3cret-bearer"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/s3cret-hook?token=s3cret-token", "/s3cret-moved?token=s3cret-token"} {
		for name, s := range map[string]dispatch.Target{
			"webhook": hook(t, sink.WebhookConfig{URL: sink.Secret(url + path), Header: map[string]sink.Secret{"X-Key": "s3cret-key"}}),
			"slack":   open(t, sink.Config{Slack: &sink.SlackConfig{URL: sink.Secret(url + path), HTTP: sink.HTTP{TokenFile: token}}}),
		} {
			got := tell(t, s, onset())
			if strings.Contains(got.Detail, "s3cret") || !strings.Contains(got.Detail, "[secret]") {
				t.Errorf("%s: detail %q", name, got.Detail)
			}
			if want := name + " " + url; s.Name() != want {
				t.Errorf("name %q, want %q", s.Name(), want)
			}
		}
	}
}

func TestSlack(t *testing.T) {
	url, bodies := received(t)
	s := open(t, sink.Config{Slack: &sink.SlackConfig{URL: sink.Secret(url)}})
	type field struct {
		Title, Value string
		Short        bool
	}
	type message struct {
		Text        string
		Attachments []struct {
			Fallback, Color, Title, Footer string
			Fields                         []field
			MrkdwnIn                       []string `json:"mrkdwn_in"`
		}
	}
	post := func(m monitor.AlarmMessage) message {
		t.Helper()
		wants(t, tell(t, s, m), dispatch.Done)
		var out message
		body := bodies()[0]
		if err := json.Unmarshal([]byte(body), &out); err != nil || len(out.Attachments) != 1 {
			t.Fatalf("%v: %s", err, body)
		}
		return out
	}
	on, off, many := post(onset()), post(abated()), post(group())
	if a := on.Attachments[0]; a.Color != "#c62828" || a.Title != "ONSET: edge-17 is silent (Heartbeat_edge)" || a.Fallback != a.Title || a.MrkdwnIn == nil {
		t.Errorf("onset %+v", a)
	}
	if a := off.Attachments[0]; a.Color != "#2e7d32" || a.Title != "ABATED: edge-17 is back (Heartbeat_edge)" {
		t.Errorf("abated %+v", a)
	}
	if a := many.Attachments[0]; a.Title != "ONSET: 3 sources with site=berlin are silent (Heartbeat_edge)" {
		t.Errorf("group %+v", a)
	}
	want := []field{
		{"Event", "Heartbeat_edge", true}, {"Source", "edge-17", true}, {"Reason", "silent", true}, {"Severity", "major", true}, {"Limit", "15s", true},
		{"Last beat", "2026-11-21 10:00:00 UTC", true}, {"Began", "2026-11-21 10:00:15 UTC", true}, {"Ended", "2026-11-21 10:01:45 UTC", true},
		{"Lasted", "1m30s", true}, {"Tags", "edge, north", true}, {"rack.no", "7", true}, {"site", "berlin", true}, {"Request id", requestID, true},
	}
	if diff := cmp.Diff(want, off.Attachments[0].Fields); diff != "" {
		t.Error(diff)
	}
	for _, name := range hostile() {
		a := post(named(abated(), name)).Attachments[0]
		var all strings.Builder
		all.WriteString(a.Title + a.Fallback)
		for _, f := range a.Fields {
			all.WriteString(" " + f.Title + " " + f.Value)
		}
		plain := strings.NewReplacer("&amp;", "", "&lt;", "", "&gt;", "").Replace(all.String())
		if strings.ContainsAny(plain, "<>&") || strings.Contains(strings.ToLower(all.String()), "@channel") || strings.Contains(strings.ToLower(all.String()), "@here") ||
			strings.ContainsAny(all.String(), "\r\n\x00") || strings.Contains(name, "user@host") && !strings.Contains(all.String(), "user@host") {
			t.Errorf("%q became %q", name, all.String())
		}
	}
}

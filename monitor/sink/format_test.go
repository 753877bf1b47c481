package sink_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/fakerouter"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/onap"
	"github.com/understudy-ha/understudy/monitor/sink"
)

// TestControlLoopToAnySink: one setting, and a webhook, a topic, a mail and a log get the events of the original, of a VNF and of
// a VM.
func TestControlLoopToAnySink(t *testing.T) {
	vm, vnf := onset(), abated()
	vm.ControlLoop.TargetType, vnf.ControlLoop.TargetType = "VM", "VNF"
	url, bodies := received(t)
	topic, smtp, logged := fakerouter.New(t), newSMTP(t, nil), &bytes.Buffer{}
	for name, to := range map[string]struct {
		sink sink.Config
		got  func() []string
	}{
		"webhook": {sink.Config{Webhook: &sink.WebhookConfig{URL: sink.Secret(url)}}, bodies},
		"topic":   {sink.Config{MessageRouter: &sink.MessageRouterConfig{URL: topic.URL("OUT")}}, func() []string { return topic.Messages("OUT") }},
		"mail": {sink.Config{Email: &sink.EmailConfig{Server: smtp.addr, TLS: "none", From: "a@example.com", To: []string{"b@example.com"}}}, func() (out []string) {
			for _, m := range smtp.taken() {
				_, body := read(t, m)
				out = append(out, strings.TrimSpace(body))
			}
			return out
		}},
		"log": {sink.Config{Log: &sink.LogConfig{Logger: slog.New(slog.NewJSONHandler(logged, nil))}}, func() (out []string) {
			for line := range strings.Lines(logged.String()) {
				var l map[string]any
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Fatal(err)
				}
				out = append(out, l["control_loop"].(string))
			}
			return out
		}},
	} {
		before := len(to.got())
		var want []string
		for format, o := range map[sink.Format]onap.Options{sink.ControlLoop: {}, sink.ControlLoopMicros: {Micros: true}} {
			to.sink.Format = format
			s := open(t, to.sink)
			for _, m := range []monitor.AlarmMessage{vm, vnf} {
				wants(t, tell(t, s, m), dispatch.Done)
				event, err := onap.ControlLoopEvent(m, o)
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, string(event))
			}
		}
		if diff := cmp.Diff(want, to.got()[before:]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		to.sink.Format = sink.ControlLoopOriginal
		wants(t, tell(t, open(t, to.sink), vm), dispatch.Done)
		all := to.got()
		if last := all[len(all)-1]; !strings.Contains(last, `"requestID":"8c1b8bd8-06f7-493f-8ed7-daaa4cc481bc","from":"DCAE"}`) || !strings.Contains(last, `"vserver.vserver-name"`) {
			t.Errorf("%s: exactly as the original: %s", name, last)
		}
	}
}

func TestFormatRefused(t *testing.T) {
	hook := sink.WebhookConfig{URL: "http://127.0.0.1/hook", Body: "{}"}
	for want, c := range map[string]sink.Config{
		`format "xml"; use control_loop`:                {Name: "s", Format: "xml", Webhook: &sink.WebhookConfig{URL: hook.URL}},
		"exclude each other":                            {Name: "s", Format: sink.ControlLoop, Webhook: &hook},
		"slack has a format of its own":                 {Name: "s", Format: sink.ControlLoop, Slack: &sink.SlackConfig{URL: hook.URL}},
		"alertmanager has a format of its own; send co": {Name: "s", Format: sink.ControlLoop, Alertmanager: &sink.AlertmanagerConfig{URLs: []sink.Secret{hook.URL}}},
	} {
		if err := c.Validate(); !errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// A target type that is not known is refused when it is sent, and not lost.
	m := onset()
	m.ControlLoop.TargetType = "PNF"
	url, _ := received(t)
	s := open(t, sink.Config{Format: sink.ControlLoop, Webhook: &sink.WebhookConfig{URL: sink.Secret(url)}})
	wants(t, tell(t, s, m), dispatch.InvalidMessage)
}

package settings

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/monitor/onap"
)

// TestStreamsOf: what ONAP's JSON says is used, or named.
func TestStreamsOf(t *testing.T) {
	full := onap.Config{
		DatabaseKeys: []string{"pg_ipAddress", "pg_passwd"}, Service: "hb",
		Subscribe: "http://mr/events/IN", Publish: "http://mr/events/OUT", Group: "g", Consumer: "c",
	}
	all := Streams{Subscribe: full.Subscribe, Group: "g", Consumer: "c", Publish: full.Publish}
	for name, c := range map[string]struct {
		from     onap.Config
		own      Monitor
		want     Streams
		warnings []string // how they start
	}{
		"all of it":           {full, Monitor{}, all, []string{"pg_ipAddress, pg_passwd: not used", "SERVICE_NAME: not used"}},
		"nothing":             {onap.Config{}, Monitor{}, Streams{}, nil},
		"no group":            {onap.Config{Subscribe: "s", Consumer: "c"}, Monitor{}, Streams{Subscribe: "s", Group: "DefaultGroup", Consumer: "1"}, []string{"groupID or consumerID is missing"}},
		"a router was given":  {full, Monitor{Routers: []Router{{}}}, Streams{Publish: full.Publish}, []string{"pg_", "SERVICE_NAME", "streams_subscribes.ves-heartbeat, groupID, consumerID: not used"}},
		"any sink was given":  {full, Monitor{Sinks: []Sink{{Log: &LogSink{}}}}, Streams{Subscribe: "http://mr/events/IN", Group: "g", Consumer: "c"}, []string{"pg_", "SERVICE_NAME", "streams_publishes.dcae_cl_out: not used"}},
		"what was odd before": {onap.Config{Warnings: []string{"odd"}}, Monitor{}, Streams{}, []string{"odd"}},
	} {
		got, warnings := c.own.streamsOf(c.from)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if !slices.EqualFunc(warnings, c.warnings, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", name, warnings, c.warnings)
		}
	}
	for _, first := range []time.Duration{time.Second, 5 * time.Second, time.Minute} {
		if s := all.Sink(first); s.check() != nil || s.Queue().Windows().Timing() != (&Monitor{FirstWindow: first}).Windows().Timing() {
			t.Errorf("first window %v: %v, %+v", first, s.check(), s)
		}
	}
	if r := all.Router(); r.Group != "g" || r.Consumer != "c" || (Streams{}).Router() != nil || (Streams{}).Sink(time.Second) != nil {
		t.Errorf("%+v", r)
	}
}

// TestTopicFormat: the keys from before there was a format still say which one.
func TestTopicFormat(t *testing.T) {
	for want, c := range map[string]Sink{
		"":                      {MessageRouter: &TopicSink{}},
		"control_loop":          {MessageRouter: &TopicSink{}, Format: "control_loop"},
		"control_loop_original": {MessageRouter: &TopicSink{Compat: "onap"}},
		"control_loop_micros":   {MessageRouter: &TopicSink{Micros: true}},
	} {
		if got, err := c.MessageRouter.format(c.Format); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	for want, c := range map[string]TopicSink{"exclude each other": {Micros: true, Compat: "onap"}, "use onap": {Compat: "ONAP"}} {
		if _, err := c.format(""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := (&TopicSink{Micros: true}).format("control_loop"); err == nil {
		t.Error("micros and a format")
	}
}

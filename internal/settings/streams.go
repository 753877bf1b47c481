package settings

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/monitor/onap"
	"github.com/understudy-ha/understudy/monitor/sink"
)

// Names of the router and of the sink that ONAP's configuration makes: those of its streams.
const (
	onapRouter = "ves-heartbeat"
	onapSink   = "dcae_cl_out"
)

// Streams are the topics that ONAP's configuration names: heartbeats are read from one, as this group and consumer, and
// control-loop events published to the other. "" is none.
type Streams struct {
	Subscribe, Group, Consumer string
	Publish                    string
}

// Router reads the heartbeats; nil if there is no topic for them.
func (s Streams) Router() *Router {
	if s.Subscribe == "" {
		return nil
	}
	return &Router{Router: onapRouter, URL: s.Subscribe, Group: s.Group, Consumer: s.Consumer}
}

// Sink publishes control-loop events exactly as ONAP's service does; nil if there is no topic for them. Its first window
// is that of the monitor's own claims, so that it needs no other session.
func (s Streams) Sink(firstWindow time.Duration) *Sink {
	if s.Publish == "" {
		return nil
	}
	out := &Sink{Sink: onapSink, MessageRouter: &TopicSink{URL: s.Publish}, Format: string(sink.ControlLoopOriginal), FirstWindow: firstWindow}
	strictyaml.ApplyDefaults(out)
	out.SecondWindow = max(out.SecondWindow, firstWindow)
	return out
}

// streamsOf are the streams that are used, and a warning for each setting of the JSON that is not. Routers and sinks that
// were given replace those of the JSON: beside the original, an instance must be able to read and not publish.
func (c *Monitor) streamsOf(from onap.Config) (out Streams, warnings []string) {
	warnings = slices.Clone(from.Warnings)
	unused := func(why string, keys ...string) {
		warnings = append(warnings, strings.Join(keys, ", ")+": not used; "+why)
	}
	if len(from.DatabaseKeys) > 0 {
		unused("the state is in the store that --store names", from.DatabaseKeys...)
	}
	if from.Service != "" {
		unused("set the environment variable SERVICE_NAME", "SERVICE_NAME")
	}
	subscribe := []string{"streams_subscribes.ves-heartbeat", "groupID", "consumerID"}
	switch {
	case len(c.Routers) > 0:
		unused("heartbeats are read from the routers that were given", subscribe...)
	case from.Subscribe != "":
		out.Subscribe, out.Group, out.Consumer = from.Subscribe, from.Group, from.Consumer
		if out.Group == "" || out.Consumer == "" {
			out.Group, out.Consumer = "DefaultGroup", "1" // as the original does
			warnings = append(warnings, fmt.Sprintf("groupID or consumerID is missing; %s is read as group %s, consumer %s", subscribe[0], out.Group, out.Consumer))
		}
	}
	if len(c.Sinks) > 0 {
		unused("alarms go to the sinks that were given", "streams_publishes.dcae_cl_out")
	} else {
		out.Publish = from.Publish
	}
	return out, warnings
}

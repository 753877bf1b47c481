package sink

import (
	"errors"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/onap"
)

// Format is what an alarm is sent as, where that can be chosen.
type Format string

// Formats: ONAP's control-loop events, of a VNF or a VM as the alarm's check says.
const (
	ControlLoop         Format = "control_loop"          // with the request ID of the outage, true times, and an end
	ControlLoopMicros   Format = "control_loop_micros"   // the same, with times in microseconds, as ONAP's policies read them
	ControlLoopOriginal Format = "control_loop_original" // exactly as ONAP's heartbeat service makes them
)

// render makes an alarm's body, for a delivery that starts now.
func (f Format) render(m monitor.AlarmMessage, now time.Time) ([]byte, error) {
	return onap.ControlLoopEvent(m, onap.Options{Compat: f == ControlLoopOriginal, Micros: f == ControlLoopMicros, Now: now})
}

func (c Config) validateFormat(kind string) error {
	switch c.Format {
	case "":
		return nil
	case ControlLoop, ControlLoopMicros, ControlLoopOriginal:
	default:
		return fmt.Errorf("format %q; use %s, %s or %s, or leave it out", c.Format, ControlLoop, ControlLoopMicros, ControlLoopOriginal)
	}
	hook := c.Webhook
	switch {
	case c.MessageRouter != nil, c.Email != nil, c.Log != nil:
		return nil
	case hook == nil:
		return fmt.Errorf("%s has a format of its own; send %s by a webhook", kind, c.Format)
	case hook.Service != "" || hook.Body != "" || hook.Onset != nil || hook.Abated != nil:
		return errors.New("a format, a service and a template of the body exclude each other")
	}
	return nil
}

package onap

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// compatRequestID is the one request id that the original gives all events.
const compatRequestID = "8c1b8bd8-06f7-493f-8ed7-daaa4cc481bc"

// Options of a control-loop event.
type Options struct {
	// Compat gives exactly the original's fields: a constant request id, no end, and
	// Now as the start of everything.
	Compat bool
	// Now is the time of sending, which only Compat shows. Zero: when the alarm was
	// raised, or ended.
	Now time.Time
	// Micros gives times in microseconds since 1970, as ONAP's policy engine reads
	// them; the original's are in milliseconds. Not with Compat.
	Micros bool
}

// controlLoopEvent has its fields in the order in which the original sends them.
type controlLoopEvent struct {
	Client        string             `json:"closedLoopEventClient"`
	PolicyVersion string             `json:"policyVersion"`
	PolicyName    string             `json:"policyName"`
	PolicyScope   string             `json:"policyScope"`
	TargetType    string             `json:"target_type"`
	AAI           map[string]string  `json:"AAI"`
	Start         int64              `json:"closedLoopAlarmStart"`
	End           *int64             `json:"closedLoopAlarmEnd,omitempty"`
	Status        monitor.Transition `json:"closedLoopEventStatus"`
	ControlName   string             `json:"closedLoopControlName"`
	Version       string             `json:"version"`
	Target        string             `json:"target"`
	RequestID     string             `json:"requestID"`
	From          string             `json:"from"`
}

// ControlLoopEvent is a message as an ONAP control-loop event: JSON in one line. A
// group stands under its label's value. [lease.ErrInvalid] if it is no ONSET or
// ABATED, or is of a target type that there is not.
func ControlLoopEvent(m monitor.AlarmMessage, o Options) ([]byte, error) {
	e := controlLoopEvent{
		Client: "DCAE_Heartbeat_MS", From: "DCAE", Status: m.Status, RequestID: m.RequestID,
		PolicyVersion: m.ControlLoop.PolicyVersion, PolicyName: m.ControlLoop.PolicyName, PolicyScope: m.ControlLoop.PolicyScope,
		ControlName: m.ControlLoop.Name, Version: m.ControlLoop.Version, Target: m.ControlLoop.Target,
	}
	subject := m.Source
	if subject == "" {
		subject = m.Group
	}
	switch m.ControlLoop.TargetType {
	case "VNF", "":
		e.TargetType, e.AAI = "VNF", map[string]string{"generic-vnf.vnf-name": subject}
	case "VM":
		e.TargetType, e.AAI = "VM", map[string]string{"vserver.vserver-name": subject}
	default:
		return nil, fmt.Errorf("%w: control-loop event: target type %q; use VNF or VM", lease.ErrInvalid, m.ControlLoop.TargetType)
	}
	if err := e.setTimes(m, o); err != nil {
		return nil, err
	}
	if o.Compat {
		e.RequestID = compatRequestID
	}
	if e.RequestID == "" {
		return nil, fmt.Errorf("%w: control-loop event: the message has no request id", lease.ErrInvalid)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("control-loop event: %w", err)
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

func (e *controlLoopEvent) setTimes(m monitor.AlarmMessage, o Options) error {
	sent, ended := m.Raised, m.Raised
	switch {
	case m.Status == monitor.Abated && m.Ended != nil:
		sent, ended = *m.Ended, *m.Ended
	case m.Status != monitor.Onset && m.Status != monitor.Abated:
		return fmt.Errorf("%w: control-loop event: status %q; only ONSET and ABATED are sent", lease.ErrInvalid, m.Status)
	}
	number := time.Time.UnixMilli
	switch {
	case o.Compat:
		if !o.Now.IsZero() {
			sent = o.Now
		}
		e.Start = number(sent)
		return nil
	case o.Micros:
		number = time.Time.UnixMicro
	}
	e.Start = number(m.Started)
	if m.Status == monitor.Abated {
		e.End = new(number(ended))
	}
	return nil
}

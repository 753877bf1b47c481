package onap_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/onap"
)

func message(status monitor.Transition) monitor.AlarmMessage {
	m := monitor.AlarmMessage{
		Status: status, RequestID: "1f0c7a52-6b0e-4e37-9c3e-1f6f5a0d2b11", Reason: monitor.Silent,
		Event: "Heartbeat_edgeRouter", Source: "edge-17",
		Started: time.UnixMicro(1795223120000500), Raised: time.UnixMicro(1795223120200000),
		ControlLoop: monitor.ControlLoop{
			Name: "CL-edge", PolicyName: "restartEdge", PolicyScope: "site=7", PolicyVersion: "2.1",
			TargetType: "VM", Target: "vserver.vserver-name", Version: "1.0.2",
		},
	}
	if status == monitor.Abated {
		m.Ended = new(time.UnixMicro(1795223999000000))
	}
	return m
}

// TestControlLoopEvent: exactly the original's fields, in its order, or those that
// tell more.
func TestControlLoopEvent(t *testing.T) {
	const vm = `{"closedLoopEventClient":"DCAE_Heartbeat_MS","policyVersion":"2.1","policyName":"restartEdge","policyScope":"site=7","target_type":"VM",` +
		`"AAI":{"vserver.vserver-name":"edge-17"},"closedLoopAlarmStart":1795223131042,"closedLoopEventStatus":"ONSET",` +
		`"closedLoopControlName":"CL-edge","version":"1.0.2","target":"vserver.vserver-name","requestID":"8c1b8bd8-06f7-493f-8ed7-daaa4cc481bc","from":"DCAE"}`
	vnf := strings.NewReplacer(`"VM"`, `"VNF"`, `"AAI":{"vserver.vserver-name"`, `"AAI":{"generic-vnf.vnf-name"`).Replace(vm)
	abated := func(s string) string { return strings.Replace(s, "ONSET", "ABATED", 1) }
	own := strings.NewReplacer("8c1b8bd8-06f7-493f-8ed7-daaa4cc481bc", "1f0c7a52-6b0e-4e37-9c3e-1f6f5a0d2b11", "1795223131042", "1795223120000").Replace
	ended := func(s string) string {
		return strings.Replace(s, `"closedLoopEventStatus"`, `"closedLoopAlarmEnd":1795223999000,"closedLoopEventStatus"`, 1)
	}
	compat := onap.Options{Compat: true, Now: time.UnixMilli(1795223131042)}
	for name, c := range map[string]struct {
		status monitor.Transition
		target string
		o      onap.Options
		want   string
	}{
		"compat VM ONSET":    {monitor.Onset, "VM", compat, vm},
		"compat VM ABATED":   {monitor.Abated, "VM", compat, abated(vm)},
		"compat VNF ONSET":   {monitor.Onset, "VNF", compat, vnf},
		"compat VNF ABATED":  {monitor.Abated, "VNF", compat, abated(vnf)},
		"compat, no type":    {monitor.Onset, "", compat, vnf},
		"default VM ONSET":   {monitor.Onset, "VM", onap.Options{}, own(vm)},
		"default VNF ABATED": {monitor.Abated, "VNF", onap.Options{}, ended(abated(own(vnf)))},
		"in microseconds": {monitor.Abated, "VM", onap.Options{Micros: true}, strings.NewReplacer("1795223120000", "1795223120000500", "1795223999000", "1795223999000000").
			Replace(ended(abated(own(vm))))},
	} {
		m := message(c.status)
		m.ControlLoop.TargetType = c.target
		got, err := onap.ControlLoopEvent(m, c.o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(c.want, string(got)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestD14OwnRequestIDs: an outage can be told from another, its end belongs to its
// beginning, and both say when that was.
func TestD14OwnRequestIDs(t *testing.T) {
	read := func(m monitor.AlarmMessage) (e struct {
		Start     int64  `json:"closedLoopAlarmStart"`
		End       int64  `json:"closedLoopAlarmEnd"`
		RequestID string `json:"requestID"`
	}) {
		data, err := onap.ControlLoopEvent(m, onap.Options{Now: time.UnixMilli(1)})
		if err == nil {
			err = json.Unmarshal(data, &e)
		}
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	first, last := read(message(monitor.Onset)), read(message(monitor.Abated))
	if first.RequestID != last.RequestID || first.Start != last.Start || first.End != 0 || last.End <= last.Start {
		t.Errorf("ONSET %+v and ABATED %+v are not of one outage", first, last)
	}
	other := message(monitor.Onset)
	other.RequestID = "another"
	if read(other).RequestID == first.RequestID {
		t.Error("two outages have one request id")
	}
}

// TestD21TargetTypes: what is of no known target type is refused by name, both in a
// configuration and when it is sent, and never silently lost.
func TestD21TargetTypes(t *testing.T) {
	m := message(monitor.Onset)
	m.ControlLoop.TargetType = "PNF"
	if data, err := onap.ControlLoopEvent(m, onap.Options{}); !errors.Is(err, lease.ErrInvalid) || data != nil {
		t.Errorf("an event of an unknown target type: %s, %v", data, err)
	}
	_, err := onap.Parse([]byte(config(`"target_type":"VM"`, `"target_type":"PNF"`)), nil)
	if !errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), `"PNF"; use VNF or VM`) || !strings.Contains(err.Error(), "vnfs[0]") {
		t.Errorf("a configuration with an unknown target type: %v", err)
	}
}

func TestControlLoopEventHostile(t *testing.T) {
	for _, source := range []string{`a"b\`, "a\nb", `</script>&`, "ü\u2028", `{"x":1}`} {
		m := message(monitor.Onset)
		m.Source = source
		data, err := onap.ControlLoopEvent(m, onap.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var e struct{ AAI map[string]string }
		if err := json.Unmarshal(data, &e); err != nil || e.AAI["vserver.vserver-name"] != source || strings.Contains(string(data), "\n") {
			t.Errorf("%q became %s, %v", source, data, err)
		}
	}
	group := message(monitor.Onset)
	group.Source, group.Group = "", "rack 7"
	if data, _ := onap.ControlLoopEvent(group, onap.Options{}); !strings.Contains(string(data), `"vserver.vserver-name":"rack 7"`) {
		t.Errorf("a group became %s", data)
	}
	for name, m := range map[string]monitor.AlarmMessage{
		"no request id": {Status: monitor.Onset},
		"retired":       {Status: monitor.Retire, RequestID: "r"},
		"nothing":       {},
	} {
		if _, err := onap.ControlLoopEvent(m, onap.Options{}); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

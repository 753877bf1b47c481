package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
)

const (
	sensorName  = "sensor-4" // a process of its own, which can be killed
	sensorCount = 6          // with those that continue for ever
	alarmLane   = "alarm"    // of the page: while the alarm stands
)

// monitorAct shows a source that falls silent and returns.
type monitorAct struct {
	d      *demo
	sensor *process

	mu                     sync.Mutex
	onsets, abated, others int // alarms of the sensor and of others, since the last outcome
}

func newMonitorAct(d *demo) *monitorAct {
	m := &monitorAct{d: d, sensor: &process{
		name: sensorName, env: d.env(), log: filepath.Join(d.dir, sensorName+".log"), stop: syscall.SIGTERM,
		argv: []string{d.cfg.Self, "demo", "sensor", sensorName, "--every", d.heartbeatInterval().String(), "--to", strings.Join(d.fleet.urls, ",")},
	}}
	d.world.onAlarm = m.recordAlarm
	d.record.addLanes("monitor", sensorName, alarmLane)
	return m
}

// checkInterval is the interval of the check: not as short as that of sessions can be, since a
// sender that has to wait for its turn looks silent. Sources send at heartbeatInterval.
func (d *demo) checkInterval() time.Duration     { return max(d.cfg.Timing.Interval, time.Second) }
func (d *demo) heartbeatInterval() time.Duration { return d.checkInterval() / 2 }

// silenceLimit is how long a source may be silent.
func (d *demo) silenceLimit() time.Duration { return missed * d.checkInterval() }

// worstAlarm is how long an alarm takes at worst: silence is found when the limit has ended, and the alarm sent at once.
func (d *demo) worstAlarm() time.Duration { return d.silenceLimit() + time.Second }

// run sends heartbeats of the sources that do not die.
func (m *monitorAct) run(ctx context.Context) {
	var names []string
	for i := range sensorCount {
		if name := fmt.Sprintf("sensor-%d", i+1); name != sensorName {
			names = append(names, name)
		}
	}
	SendHeartbeats(ctx, m.d.fleet.clients, m.d.heartbeatInterval(), names...)
}

// SendHeartbeats of sources to the first server that takes them, until ctx ends.
func SendHeartbeats(ctx context.Context, to []*client.Client, every time.Duration, sources ...string) {
	beats := make([]apitype.Beat, 0, len(sources))
	for _, s := range sources {
		beats = append(beats, apitype.Beat{Check: CheckName, Source: s})
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		for _, c := range to {
			// A server that is frozen must not make a source look silent before the next one is tried.
			call, cancel := context.WithTimeout(ctx, min(callTimeout, 2*every))
			taken, err := c.Beats(call, beats...)
			cancel()
			if err == nil && taken.Accepted == len(beats) {
				break
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (m *monitorAct) part() string { return "monitor" }

// recordAlarm counts what the monitor sends, and compares it with what happened once the sensor is back.
func (m *monitorAct) recordAlarm(status, source string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, own := m.d, source == sensorName
	switch {
	case !own:
		m.others++
	case status == "ONSET":
		m.onsets++
	default:
		m.abated++
	}
	if status == "ONSET" {
		d.record.start("monitor", alarmLane)
		d.voice.event("monitor", "%s: %s is silent", status, source)
		if at := m.sensor.failedAt(); own && time.Since(at) < max(recordFor, 2*d.worstAlarm()) { // older: of a sensor that was not killed
			d.announce(outcome{part: "monitor", what: "the alarm of " + sensorName + " came", took: time.Since(at), worst: d.worstAlarm()})
		}
		return
	}
	d.record.stop("monitor", alarmLane)
	d.voice.event("monitor", "%s: %s is back", status, source)
	if own {
		d.announce(outcome{
			part: "monitor", what: fmt.Sprintf("%d ONSET, %d ABATED of %s, %d of others", m.onsets, m.abated, sensorName, m.others),
			broken: m.onsets != 1 || m.abated != 1 || m.others > 0,
		})
		m.onsets, m.abated, m.others = 0, 0, 0
	}
}

// settled: every source is known, and no alarm of the sensor is open.
func (m *monitorAct) settled(ctx context.Context) bool {
	page, err := m.d.page.Sources(ctx, client.SourceQuery{Check: CheckName})
	m.mu.Lock()
	defer m.mu.Unlock()
	return err == nil && len(page.Sources) == sensorCount && m.onsets == 0
}

func (m *monitorAct) offers() []offer {
	return []offer{m.d.kill(m.sensor, "machine", offer{
		ID: "monitor-kill", Text: fmt.Sprintf("%s must send a heartbeat within %s: one alarm, which ends when it is back, is sent", sensorName, seconds(m.d.silenceLimit())),
	}, m.d.worstAlarm())}
}

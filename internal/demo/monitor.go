package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
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
}

func newMonitorAct(d *demo) *monitorAct {
	m := &monitorAct{d: d, sensor: &process{
		name: sensorName, env: d.env(), log: filepath.Join(d.dir, sensorName+".log"), stop: syscall.SIGTERM,
		argv: []string{d.cfg.Self, "demo", "sensor", sensorName, "--every", d.beatEvery().String(), "--to", strings.Join(d.fleet.urls, ",")},
	}}
	d.world.onAlarm = m.recordAlarm
	d.record.addLanes("monitor", sensorName, alarmLane)
	return m
}

// checkInterval is the interval of the event: not as short as that of sessions can be, since a
// sender that has to wait for its turn looks silent. Sources beat at beatEvery.
func (d *demo) checkInterval() time.Duration { return max(d.cfg.Timing.Interval, time.Second) }
func (d *demo) beatEvery() time.Duration     { return d.checkInterval() / 2 }

// limit is how long a source may be quiet.
func (m *monitorAct) limit() time.Duration { return missed * m.d.checkInterval() }

// worstDelay is how long it takes until someone is told of silence, at worst: it is found
// when the limit has ended, and told at once.
func (m *monitorAct) worstDelay() time.Duration { return m.limit() + time.Second }

// run beats for the sources that do not die.
func (m *monitorAct) run(ctx context.Context) {
	var names []string
	for i := range sensorCount {
		if name := fmt.Sprintf("sensor-%d", i+1); name != sensorName {
			names = append(names, name)
		}
	}
	Beat(ctx, m.d.fleet.clients, m.d.beatEvery(), names...)
}

// Beat sends beats of sources to the first server that takes them, until ctx ends.
func Beat(ctx context.Context, to []*client.Client, every time.Duration, sources ...string) {
	beats := make([]apitype.Beat, 0, len(sources))
	for _, s := range sources {
		beats = append(beats, apitype.Beat{Check: EventName, Source: s})
	}
	for tick := time.NewTicker(every); ; {
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
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}

func (m *monitorAct) part() string { return "monitor" }

// recordAlarm says what the monitor told.
func (m *monitorAct) recordAlarm(status, source string) {
	if status != "ONSET" {
		m.d.record.stop("monitor", alarmLane)
		m.d.voice.event("monitor", "%s: %s is back", status, source)
		return
	}
	m.d.record.start("monitor", alarmLane)
	m.d.voice.event("monitor", "%s: %s is silent", status, source)
	if at := m.sensor.failedAt(); source == sensorName && time.Since(at) < recordFor {
		m.d.announce(outcome{part: "monitor", what: sensorName + " was told silent", took: time.Since(at), worst: m.worstDelay(), slack: m.d.cfg.Slack})
	}
}

func (m *monitorAct) failed(*process) {}

// settled: every source has beaten.
func (m *monitorAct) settled(ctx context.Context) bool {
	page, err := m.d.page.Sources(ctx, client.SourceQuery{Check: EventName})
	return err == nil && len(page.Sources) == sensorCount
}

func (m *monitorAct) offers() []offer {
	return []offer{m.d.kill(m.sensor, "machine", offer{
		ID: "monitor-kill", Part: "monitor", Text: fmt.Sprintf("%s must send a heartbeat within %s: one alarm is sent, which ends when it is back,", sensorName, seconds(m.limit())),
	}, m.worstDelay())}
}

// play kills the source, and lets it come back.
func (m *monitorAct) play(ctx context.Context) ([]outcome, error) {
	d, w := m.d, m.d.world
	onsets, _ := w.alarmsOf("ONSET", sensorName)
	abated, _ := w.alarmsOf("ABATED", sensorName)
	d.voice.event("monitor", "kill -9 %d: %s falls silent, which must be told within %s", m.sensor.running(), sensorName, seconds(m.worstDelay()))
	release, err := m.sensor.killAndHold()
	if err != nil {
		return nil, err
	}
	defer release()
	if err := d.await(ctx, "its silence is told", func() bool { n, _ := w.alarmsOf("ONSET", sensorName); return n > onsets }); err != nil {
		return nil, err
	}
	_, at := w.alarmsOf("ONSET", sensorName)
	silent := outcome{part: "monitor", what: sensorName + " was told silent", took: at.Sub(m.sensor.failedAt()), worst: m.worstDelay(), slack: d.cfg.Slack}
	release()
	err = d.await(ctx, "its return is told", func() bool { n, _ := w.alarmsOf("ABATED", sensorName); return n > abated })
	more, _ := w.alarmsOf("ONSET", sensorName)
	less, _ := w.alarmsOf("ABATED", sensorName)
	sum := outcome{
		part: "monitor", what: fmt.Sprintf("%d ONSET, %d ABATED of %s, %d of others", more-onsets, less-abated, sensorName, w.otherAlarms(sensorName)),
		broken: err != nil || more-onsets != 1 || less-abated != 1 || w.otherAlarms(sensorName) > 0,
	}
	d.announce(sum)
	return []outcome{silent, sum}, nil
}

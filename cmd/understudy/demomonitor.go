package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/client"
)

const (
	demoSensor  = "sensor-4" // a process of its own, which can be killed
	demoSensors = 6          // with those that go on for ever
)

// demoMonitor shows a source that falls silent and returns.
type demoMonitor struct {
	d      *demo
	sensor *demoProc
}

func newDemoMonitor(d *demo) *demoMonitor {
	m := &demoMonitor{d: d, sensor: &demoProc{
		name: demoSensor, env: d.env(), log: filepath.Join(d.dir, demoSensor+".log"), stop: syscall.SIGTERM,
		argv: []string{d.self, "demo", "sensor", demoSensor, "--every", d.beatEvery().String(), "--to", strings.Join(d.fleet.urls, ",")},
	}}
	d.world.onAlarm = m.told
	return m
}

// beats is the interval of the event: not as short as that of sessions can be, since a
// sender that has to wait for its turn looks silent. Sources beat at beatEvery.
func (d *demo) beats() time.Duration     { return max(d.flags.timing.Interval, time.Second) }
func (d *demo) beatEvery() time.Duration { return d.beats() / 2 }

// limit is how long a source may be quiet.
func (m *demoMonitor) limit() time.Duration { return demoMissed * m.d.beats() }

// worst is how long it takes until somebody is told of silence, at worst: it is found
// when the limit is over, and told at once.
func (m *demoMonitor) worst() time.Duration { return m.limit() + time.Second }

// run beats for the sources that do not die.
func (m *demoMonitor) run(ctx context.Context) {
	var names []string
	for i := range demoSensors {
		if name := fmt.Sprintf("sensor-%d", i+1); name != demoSensor {
			names = append(names, name)
		}
	}
	beatForEver(ctx, m.d.fleet.clients, m.d.beatEvery(), names...)
}

// beatForEver sends beats to the first instance that takes them.
func beatForEver(ctx context.Context, to []*client.Client, every time.Duration, sources ...string) {
	beats := make([]client.Beat, 0, len(sources))
	for _, s := range sources {
		beats = append(beats, client.Beat{Event: demoEventName, Source: s})
	}
	for tick := time.NewTicker(every); ; {
		for _, c := range to {
			call, cancel := context.WithTimeout(ctx, callTimeout)
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

// demoSensorCommand is a source that beats until it is killed.
func (a *app) demoSensorCommand() *cobra.Command {
	var every time.Duration
	var to []string
	c := &cobra.Command{
		Use: "sensor NAME --to URL,…", Short: "A source of the demonstration: it beats until it is stopped", Hidden: true,
		Long:    "Beat for the event \"" + demoEventName + "\" as the source NAME, at the first server that takes it, until stopped. The demonstration starts one.",
		Example: "  understudy demo sensor sensor-4 --to http://127.0.0.1:7600",
		Args:    exactly("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			if every <= 0 {
				return usagef("--every %v: it must be above 0", every)
			}
			var servers []*client.Client
			for _, url := range to {
				server, err := client.New(client.Config{URL: url})
				if err != nil {
					return usagef("--to: %v", err)
				}
				servers = append(servers, server)
			}
			if len(servers) == 0 {
				return usagef("--to is missing: which servers take the beats?")
			}
			beatForEver(c.Context(), servers, every, args[0])
			return nil
		},
	}
	c.Flags().DurationVar(&every, "every", time.Second, "beat every `D`")
	c.Flags().StringSliceVar(&to, "to", nil, "`URL`s of the servers")
	return c
}

// told says what the monitor told.
func (m *demoMonitor) told(status, source string) {
	what := status + ": " + source + " is silent"
	if status != "ONSET" {
		what = status + ": " + source + " is back"
	}
	m.d.voice.event("monitor", "%s", what)
}

func (m *demoMonitor) ended(*demoProc) {}

// settled: every source has beaten.
func (m *demoMonitor) settled(ctx context.Context) bool {
	sources, _, err := m.d.page.Sources(ctx, client.SourceQuery{Event: demoEventName})
	return err == nil && len(sources) == demoSensors
}

func (m *demoMonitor) try() []string {
	return []string{fmt.Sprintf("monitor  kill -9 %d    (%s, which must beat within %s: one alarm, which ends when it is back)", m.sensor.running(), demoSensor, seconds(m.limit()))}
}

// play kills the source, and lets it come back.
func (m *demoMonitor) play(ctx context.Context) ([]demoOutcome, error) {
	d, w := m.d, m.d.world
	onsets, _ := w.alarmsOf("ONSET", demoSensor)
	abated, _ := w.alarmsOf("ABATED", demoSensor)
	d.voice.event("monitor", "kill -9 %d: %s falls silent, which must be told within %s", m.sensor.running(), demoSensor, seconds(m.worst()))
	_, back, err := m.sensor.kill()
	if err != nil {
		return nil, err
	}
	defer back()
	if err := d.await(ctx, "its silence is told", func() bool { n, _ := w.alarmsOf("ONSET", demoSensor); return n > onsets }); err != nil {
		return nil, err
	}
	_, at := w.alarmsOf("ONSET", demoSensor)
	silent := demoOutcome{part: "monitor", what: demoSensor + " was told silent", took: at.Sub(m.sensor.endedAt()), worst: m.worst(), slack: d.flags.slack}
	d.voice.outcome(silent)
	back()
	err = d.await(ctx, "its return is told", func() bool { n, _ := w.alarmsOf("ABATED", demoSensor); return n > abated })
	more, _ := w.alarmsOf("ONSET", demoSensor)
	less, _ := w.alarmsOf("ABATED", demoSensor)
	sum := demoOutcome{
		part: "monitor", what: fmt.Sprintf("%d ONSET, %d ABATED of %s, %d of others", more-onsets, less-abated, demoSensor, w.otherAlarms(demoSensor)),
		broken: err != nil || more-onsets != 1 || less-abated != 1 || w.otherAlarms(demoSensor) > 0,
	}
	d.voice.outcome(sum)
	return []demoOutcome{silent, sum}, nil
}

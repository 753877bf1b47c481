package main

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/monitor"
)

// instance is a process of understudy monitor run.
type instance struct {
	b       *bed
	address string
	proc    *realserver.Process
}

// startInstance runs one and waits until it takes heartbeats in and looks after sources.
func startInstance(b *bed, program, store string, args ...string) *instance {
	in := &instance{b: b, address: realserver.FreeAddress(b)}
	argv := append([]string{"monitor", "run", "--store", store, "--listen", in.address, "--name", "bench-" + in.address}, args...)
	cmd := exec.Command(program, argv...)
	cmd.Dir = b.TempDir()
	in.proc = realserver.Start(b, cmd)
	waitFor(b, "an instance of the monitor looks after sources", func() bool {
		if in.proc.Exited() {
			b.Fatalf("bench: understudy monitor run ended: %s", in.proc.Output())
		}
		return in.metric("partitions") > 0
	})
	return in
}

func (in *instance) pid() int { return in.proc.Pid() }

// stop ends the process in order.
func (in *instance) stop() { in.proc.Stop(syscall.SIGTERM) }

// metric of the monitor, or -1 while it does not serve.
func (in *instance) metric(name string) float64 {
	v, err := metric(in.address, "understudy_monitor_"+name)
	if err != nil {
		return -1
	}
	return v
}

// mustMetric returns a metric that becomes a figure; it ends the run if there is none.
func (in *instance) mustMetric(b *bed, name string) float64 {
	v, err := metric(in.address, "understudy_monitor_"+name)
	b.check(err, "reading a metric of the monitor")
	return v
}

// alarm is what came of one outage.
type alarm struct {
	source  string
	started time.Time // when the limit had passed, by the store's clock, which is this host's
	told    time.Time
}

func (a alarm) late() time.Duration { return a.told.Sub(a.started) }

// alarmSink is told of alarms by webhooks. It lives in this process: alarms are few.
type alarmSink struct {
	url string

	mu    sync.Mutex
	came  map[monitor.Transition]map[string]alarm // by request id
	again int                                     // requests with an id that came before
	heard chan struct{}                           // closed and made anew with each
}

func startAlarmSink(b *bed) *alarmSink {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	b.check(err, "listening")
	s := &alarmSink{url: "http://" + listener.Addr().String()}
	s.forget()
	server := &http.Server{Handler: s}
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(func() { _ = server.Close() })
	return s
}

// ServeHTTP takes one alarm.
func (s *alarmSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	var m monitor.AlarmMessage
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.came[m.Status] == nil {
		s.came[m.Status] = map[string]alarm{}
	}
	if _, twice := s.came[m.Status][m.RequestID]; twice {
		s.again++
		return
	}
	a := alarm{source: m.Source, started: m.Started, told: now}
	if m.Ended != nil {
		a.started = *m.Ended
	}
	s.came[m.Status][m.RequestID] = a
	close(s.heard)
	s.heard = make(chan struct{})
}

// forget what came; not how much of it came again.
func (s *alarmSink) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came, s.heard = map[monitor.Transition]map[string]alarm{}, make(chan struct{})
}

// count is how much came of a kind.
func (s *alarmSink) count(turn monitor.Transition) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.came[turn])
}

// wait returns when so many of a kind came, or it has been long enough.
func (s *alarmSink) wait(turn monitor.Transition, n int, within time.Duration) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		s.mu.Lock()
		came, heard := len(s.came[turn]), s.heard
		s.mu.Unlock()
		if came >= n {
			return
		}
		select {
		case <-heard:
		case <-timer.C:
			return
		}
	}
}

// await returns what came of a kind, as soon as that is so many.
func (s *alarmSink) await(b *bed, turn monitor.Transition, n int, within time.Duration) []alarm {
	s.wait(turn, n, within)
	s.mu.Lock()
	defer s.mu.Unlock()
	if came := len(s.came[turn]); came < n {
		b.Fatalf("bench: %d of %d %s came within %v", came, n, turn, within)
	}
	return slices.Collect(maps.Values(s.came[turn]))
}

// twice is how many came again.
func (s *alarmSink) twice() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.again
}

// meter tells who used the processors since it was made.
type meter struct {
	began  time.Time
	pids   map[string]int
	before map[string]map[int]time.Duration
}

// used is what a meter read.
type used struct {
	took time.Duration
	of   map[string]time.Duration
}

// startMeter watches processes, with their children, by what they are called.
func startMeter(pids map[string]int) *meter {
	m := &meter{pids: pids, before: map[string]map[int]time.Duration{}}
	for name, pid := range pids {
		m.before[name] = cpuTimes(pid)
	}
	m.began = time.Now()
	return m
}

func (m *meter) read() used {
	u := used{took: time.Since(m.began), of: map[string]time.Duration{}}
	for name, pid := range m.pids {
		u.of[name] = ran(m.before[name], cpuTimes(pid))
	}
	return u
}

// share of one core that a process took, in percent.
func (u used) share(name string) float64 { return 100 * u.of[name].Seconds() / u.took.Seconds() }

// rig is a store with what works on it.
type rig struct {
	b       *bed
	program string
	store   place
	sink    *alarmSink
}

func newRig(ctx context.Context, b *bed, kind string) *rig {
	return &rig{b: b, program: buildProgram(ctx, b), store: startOne(b, kind), sink: startAlarmSink(b)}
}

// start runs an instance that tells the sink.
func (g *rig) start(events ...string) *instance {
	args := []string{"--webhook", g.sink.url}
	for _, e := range events {
		args = append(args, "--event", e)
	}
	return startInstance(g.b, g.program, g.store.url, args...)
}

// meter watches an instance and the store's server.
func (g *rig) meter(in *instance) *meter {
	pids := map[string]int{"instance": in.pid()}
	if g.store.pid != 0 {
		pids["server"] = g.store.pid
	}
	return startMeter(pids)
}

package main

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
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

// startInstance runs one and waits until it takes beats in and looks after sources.
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
	v, err := (&cachePeer{http: in.address}).metric("understudy_monitor_" + name)
	if err != nil {
		return -1
	}
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
	if err != nil {
		b.Fatalf("bench: %v", err)
	}
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
	b      *bed
	began  time.Time
	pids   map[string]int
	before map[string]map[int]time.Duration
	busy   time.Duration
}

// used is what a meter read.
type used struct {
	took   time.Duration
	of     map[string]time.Duration
	others float64 // cores that other work on this machine took
}

// startMeter watches processes, with their children, by what they are called; this
// program is among them.
func startMeter(b *bed, pids map[string]int) *meter {
	m := &meter{b: b, pids: pids, before: map[string]map[int]time.Duration{}}
	m.pids["bench"] = os.Getpid()
	for name := range m.pids {
		m.before[name] = m.times(name)
	}
	m.busy, m.began = busyTime(), time.Now()
	return m
}

func (m *meter) times(name string) map[int]time.Duration {
	if pid := m.pids[name]; pid != os.Getpid() {
		return cpuTimes(pid)
	}
	own, _ := ranFor(os.Getpid()) // its children are counted by their own names
	return map[int]time.Duration{0: own}
}

func (m *meter) read() used {
	u := used{took: time.Since(m.began), of: map[string]time.Duration{}}
	rest := busyTime() - m.busy
	for name := range m.pids {
		u.of[name] = ran(m.before[name], m.times(name))
		rest -= u.of[name]
	}
	u.others = max(0, rest.Seconds()/u.took.Seconds())
	return u
}

// share of one core that a process took.
func (u used) share(name string) float64 { return u.of[name].Seconds() / u.took.Seconds() }

// busyTime is how long all processors did not idle since the machine started.
func busyTime() (sum time.Duration) {
	data, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(data), "\n")
	for i, word := range strings.Fields(line) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err == nil && i != 4 && i != 5 && i < 9 { // neither idle, nor waiting for a disk; guests are in "user"
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}

// addBusy records how busy the machine was with other things.
func addBusy(r *Report, section string, others ...float64) {
	r.add(Figure{Section: section, Subject: "machine", Name: "other work meanwhile, median", Value: median(others), Unit: "cores", Count: len(others)})
	addLoad(r, section, "at the end")
	if median(others) > 0.1 {
		r.add(Figure{Section: section, Subject: "machine", Name: "**busy: these figures are worse than the program**", Count: len(others)})
	}
}

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

// meter watches an instance, the store's server and who sends.
func (g *rig) meter(in *instance, sender *member) *meter {
	pids := map[string]int{"instance": in.pid(), "sender": sender.cmd.Process.Pid}
	if g.store.pid != 0 {
		pids["server"] = g.store.pid
	}
	return startMeter(g.b, pids)
}

//go:build linux

package fault

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

// MonitorsConfig describes [Monitors].
type MonitorsConfig struct {
	Programs Programs
	// Database that they share. Required.
	Database Database
	// Window: sources of an instance that is silent for so long are looked after by
	// others. Default 2 s: with less, requests end on a busy machine before the store has let it in.
	Window time.Duration
	// Sinks that every instance tells.
	Sinks []*AlarmSink
	// Options of every instance, besides those.
	Options []string
	// Wrap stands before the command line of each.
	Wrap []string
	// Seed of the links' randomness.
	Seed uint64
}

// Monitors are instances of the monitor: understudy monitor run.
type Monitors struct {
	MonitorsConfig
	tb    testing.TB
	dir   string
	net   string
	all   []*Monitor
	store store.Store
	http  *http.Client
}

// Monitor is one of them, over all its lives.
type Monitor struct {
	Name string
	URL  string // of its API
	Link *Proxy // see Node
	// Options of this one.
	Options []string
	// Direct: it has no link, but the database's own address.
	Direct bool

	monitors *Monitors
	cmd      *exec.Cmd
	log      string
	done     chan struct{}
	paused   time.Time
}

// NewMonitors makes instances, of which none runs yet. When the test ends so do those
// that were started, and tell what they did if it failed.
func NewMonitors(tb testing.TB, cfg MonitorsConfig, names ...string) *Monitors {
	tb.Helper()
	if cfg.Window == 0 {
		cfg.Window = 2 * time.Second
	}
	m := &Monitors{MonitorsConfig: cfg, tb: tb, dir: tb.TempDir(), net: realserver.FreeNet(tb),
		http: &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}}
	for i, name := range names {
		one := &Monitor{Name: name, URL: "http://" + m.net + strconv.Itoa(i+1) + ":7601", monitors: m, log: filepath.Join(m.dir, name+".log")}
		m.all = append(m.all, one)
	}
	tb.Cleanup(m.kill)
	return m
}

// Named is the instance of a name.
func (m *Monitors) Named(name string) *Monitor {
	return m.all[slices.IndexFunc(m.all, func(one *Monitor) bool { return one.Name == name })]
}

// All of them.
func (m *Monitors) All() []*Monitor { return m.all }

// Start starts all of them, and waits until they have divided the sources.
func (m *Monitors) Start() {
	m.tb.Helper()
	for _, one := range m.all {
		one.Start()
	}
	m.Settled()
}

// Start starts a life of the instance.
func (one *Monitor) Start() {
	m := one.monitors
	m.tb.Helper()
	one.done, one.paused = make(chan struct{}), time.Time{}
	url := m.Database.URL
	if m.Database.Addr != "" && !one.Direct {
		if one.Link == nil {
			one.Link = NewProxy(m.tb, m.Database.Addr, m.Seed+uint64(len(one.Name)))
		}
		url = m.Database.through(m.tb, one.Link.Addr)
	}
	address := strings.TrimPrefix(one.URL, "http://")
	// What ran in a wrapper may live a moment longer than the wrapper.
	realserver.Eventually(m.tb, patience, one.Name+"'s address is free", func() error {
		l, err := net.Listen("tcp", address)
		if err == nil {
			l.Close()
		}
		return err
	})
	args := append(slices.Clone(m.Wrap), m.Programs.Understudy, "monitor", "run", "--store", url, "--name", one.Name,
		"--listen", address, "--first-window", m.Window.String())
	for _, s := range m.Sinks {
		args = append(args, "--webhook", s.URL)
	}
	if len(m.Sinks) > 0 {
		args = append(args, "--recognises")
	}
	args = append(append(args, m.Options...), one.Options...)
	one.cmd = exec.Command(args[0], args[1:]...)
	one.cmd.Dir, one.cmd.Env = m.dir, append(os.Environ(), "UNDERSTUDY_FAULT="+m.dir)
	start(m.tb, one.cmd, one.log, one.done)
}

// PID of its process.
func (one *Monitor) PID() int { return one.cmd.Process.Pid }

// Signal sends a signal to it.
func (one *Monitor) Signal(s syscall.Signal) {
	if one.done != nil && !one.Exited() {
		_ = one.cmd.Process.Signal(s)
	}
}

// Kill ends it at once.
func (one *Monitor) Kill() { one.Signal(syscall.SIGKILL); <-one.done }

// Exited reports whether it has ended.
func (one *Monitor) Exited() bool {
	select {
	case <-one.done:
		return true
	default:
		return false
	}
}

// Pause stops it where it is, save in the middle of a write to a file; see [Node.Pause].
func (one *Monitor) Pause(d time.Duration) bool {
	paused := stopOutsideWrites(one.PID(), one.Signal)
	if paused {
		one.paused = time.Now().Add(d)
	}
	return paused
}

// Resume lets it continue.
func (one *Monitor) Resume() {
	one.paused = time.Time{}
	one.Signal(syscall.SIGCONT)
}

// Output is what it has said, over all its lives.
func (one *Monitor) Output() string {
	text, _ := os.ReadFile(one.log)
	return string(text)
}

// Ask makes a request and returns the status and the body; 0 and what went wrong if
// there is no answer.
func (one *Monitor) Ask(method, path, body string) (int, string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return one.ask(ctx, method, path, body)
}

func (one *Monitor) ask(ctx context.Context, method, path, body string) (int, string) {
	return ask(ctx, one.monitors.http, method, one.URL+path, "application/json", body)
}

// ask makes a request and returns the status and the body; 0 and what went wrong if there is no answer.
func ask(ctx context.Context, c *http.Client, method, url, contentType, body string) (int, string) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	if body != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(text)
}

// Stop ends all in order.
func (m *Monitors) Stop() {
	m.tb.Helper()
	for _, one := range m.all {
		if one.done != nil {
			one.Signal(syscall.SIGTERM)
			one.Signal(syscall.SIGCONT)
		}
	}
	end := time.After(2 * patience)
	for _, one := range m.all {
		if one.done == nil {
			continue
		}
		select {
		case <-one.done:
		case <-end:
			m.tb.Errorf("%s did not stop within %v", one.Name, 2*patience)
			one.Kill()
		}
	}
}

func (m *Monitors) kill() {
	m.http.CloseIdleConnections()
	for _, one := range m.all {
		if one.done == nil {
			continue
		}
		one.Kill()
		if m.tb.Failed() {
			lines := strings.Split(one.Output(), "\n")
			m.tb.Logf("%s said at last:\n%s", one.Name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
	}
}

// Table is the monitor's part of the store, beside the links.
func (m *Monitors) Table() monitor.Store {
	m.tb.Helper()
	if m.store == nil {
		realserver.Eventually(m.tb, patience, "opening the store", func() (err error) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			m.store, err = open.Open(ctx, m.Database.URL, open.Options{})
			return err
		})
		m.tb.Cleanup(func() { _ = m.store.Close() })
	}
	return m.store.(store.Monitors).Monitor()
}

// Held is how many partitions each living instance looks after, by its name.
func (m *Monitors) Held() (map[string]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o, err := m.Table().Overview(ctx)
	held := map[string]int{}
	for _, member := range o.Members {
		held[member.Instance.Name] += member.Partitions
	}
	return held, err
}

// Settled waits until all that run look after a fair share of the sources.
func (m *Monitors) Settled() {
	m.tb.Helper()
	realserver.Eventually(m.tb, 3*patience, "the sources are divided", func() error {
		held, err := m.Held()
		running, sum := 0, 0
		for _, one := range m.all {
			if one.done == nil || one.Exited() {
				continue
			}
			running++
			sum += held[one.Name]
		}
		for _, one := range m.all {
			if one.done != nil && !one.Exited() && held[one.Name] < monitor.Partitions/running-1 {
				return fmt.Errorf("%s holds %d of %v: %w", one.Name, held[one.Name], held, err)
			}
		}
		if sum != monitor.Partitions {
			return fmt.Errorf("they hold %v: %w", held, err)
		}
		return nil
	})
}

// Delivered waits until nothing is left to tell.
func (m *Monitors) Delivered(within time.Duration) {
	m.tb.Helper()
	m.Table()
	realserver.Eventually(m.tb, within, "all is told", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		queues, err := m.store.(store.Queues).QueueAdmin().Queues(ctx)
		for _, q := range queues {
			if q.Keys > 0 {
				return fmt.Errorf("%s has %d keys with %d messages, %d of them in a step", q.Queue, q.Keys, q.Depth, q.InStep)
			}
		}
		return err
	})
}

// Alarms are all that ever were.
func (m *Monitors) Alarms() (all []monitor.Alarm) {
	m.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	for q := (monitor.AlarmQuery{}); ; {
		page, err := m.Table().Alarms(ctx, q)
		if err != nil {
			m.tb.Fatalf("listing the alarms: %v", err)
		}
		if all = append(all, page...); len(page) < monitor.MaxPage {
			return all
		}
		q.Before, q.BeforeID = page[len(page)-1].Raised, page[len(page)-1].ID
	}
}

// Sources are all of an event.
func (m *Monitors) Sources(event string) (all []monitor.SourceRecord) {
	m.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	for q := (monitor.SourceQuery{Check: event}); ; {
		page, err := m.Table().Sources(ctx, q)
		if err != nil {
			m.tb.Fatalf("listing the sources: %v", err)
		}
		if all = append(all, page...); len(page) < monitor.MaxPage {
			return all
		}
		q.AfterCheck, q.AfterSource = page[len(page)-1].Check, page[len(page)-1].Source
	}
}

// Command runs the command line once, beside the links.
func (m *Monitors) Command(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.Programs.Understudy, append(args, "--store", m.Database.URL)...)
	cmd.Dir = m.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// File writes a file into the directory in which the instances run, whole.
func (m *Monitors) File(name, text string) {
	m.tb.Helper()
	path := filepath.Join(m.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		m.tb.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		m.tb.Fatal(err)
	}
}

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/resp"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/lease"
)

// What takes the messages must see what the demonstration says does not happen.
func TestDemoWorldNotices(t *testing.T) {
	type message struct {
		run, key string
		number   int
	}
	for name, c := range map[string]struct {
		sent []message
		want tally
	}{
		"in order":                     {[]message{{"r", "a", 1}, {"r", "b", 1}, {"r", "a", 2}, {"r", "b", 2}}, tally{delivered: 4}},
		"one is missing":               {[]message{{"r", "a", 1}, {"r", "a", 3}}, tally{delivered: 2, disordered: 1}},
		"two changed places":           {[]message{{"r", "a", 2}, {"r", "a", 1}}, tally{delivered: 2, disordered: 2}},
		"one came twice":               {[]message{{"r", "a", 1}, {"r", "a", 1}, {"r", "a", 2}}, tally{delivered: 2, twice: 1}},
		"one of another demonstration": {[]message{{"s", "a", 7}, {"r", "a", 1}}, tally{delivered: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := newWorld(&demo{run: "r"})
			if err != nil {
				t.Fatal(err)
			}
			defer w.close()
			for _, m := range c.sent {
				r := httptest.NewRequest(http.MethodPost, "/deliver", strings.NewReader(fmt.Sprintf(`{"run":%q,"key":%q,"number":%d}`, m.run, m.key, m.number)))
				r.Header.Set("Idempotency-Key", fmt.Sprintf("%s-%s-%d", m.run, m.key, m.number))
				r.Header.Set(byHeader, "ben")
				w.server.Handler.ServeHTTP(httptest.NewRecorder(), r)
			}
			if got := w.count(); got != c.want {
				t.Errorf("it counted %v, should %v", got, c.want)
			}
		})
	}
}

func TestDemoWorldAnswers(t *testing.T) {
	w, err := newWorld(&demo{run: "r"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	ask := func(method, path, body string) int {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Idempotency-Key", "one")
		out := httptest.NewRecorder()
		w.server.Handler.ServeHTTP(out, r)
		return out.Code
	}
	if code := ask(http.MethodGet, "/status/one", ""); code != http.StatusNotFound {
		t.Errorf("a message that has not come: %d", code)
	}
	ask(http.MethodPost, "/deliver", `{"run":"r","key":"a","number":1}`)
	if code := ask(http.MethodGet, "/status/one", ""); code != http.StatusOK {
		t.Errorf("a message that has come: %d", code)
	}
}

// Each outage of the sensor has one alarm that starts and one that ends, and nobody else has any.
func TestDemoAlarms(t *testing.T) {
	for name, c := range map[string]struct {
		sent []string
		want string
		kept bool
	}{
		"as promised":               {[]string{"ONSET sensor-4", "ABATED sensor-4"}, "1 ONSET, 1 ABATED of sensor-4, 0 of others", true},
		"twice":                     {[]string{"ONSET sensor-4", "ONSET sensor-4", "ABATED sensor-4"}, "2 ONSET, 1 ABATED of sensor-4, 0 of others", false},
		"of another, too":           {[]string{"ONSET sensor-1", "ONSET sensor-4", "ABATED sensor-4"}, "1 ONSET, 1 ABATED of sensor-4, 1 of others", false},
		"ended twice":               {[]string{"ONSET sensor-4", "ABATED sensor-4", "ABATED sensor-4"}, "0 ONSET, 1 ABATED of sensor-4, 0 of others", false},
		"a second outage is as one": {[]string{"ONSET sensor-4", "ABATED sensor-4", "ONSET sensor-4", "ABATED sensor-4"}, "1 ONSET, 1 ABATED of sensor-4, 0 of others", true},
		"of another check, too":     {[]string{"ONSET other", "ONSET sensor-4", "ABATED sensor-4"}, "1 ONSET, 1 ABATED of sensor-4, 0 of others", true},
	} {
		t.Run(name, func(t *testing.T) {
			d := &demo{voice: newPrinter(t.Output()), record: newRecord(), fleet: &fleet{}}
			d.cfg.Timing.Interval = time.Second
			var err error
			if d.world, err = newWorld(d); err != nil {
				t.Fatal(err)
			}
			defer d.world.close()
			m := newMonitorAct(d)
			m.sensor.failed = time.Now()
			for _, alarm := range c.sent {
				status, source, _ := strings.Cut(alarm, " ")
				check := "sensor"
				if source == "other" {
					check = "other"
				}
				body := fmt.Sprintf(`{"status":%q,"event":%q,"source":%q}`, status, check, source)
				d.world.server.Handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/alarm", strings.NewReader(body)))
			}
			all := d.outcomes(m)
			if o := all[len(all)-1]; o.Text != c.want || o.Kept != c.kept {
				t.Errorf("%+v, want %q, kept: %v", o, c.want, c.kept)
			}
			if o := all[0]; o.Text != "the alarm of sensor-4 came" || o.Promised != 6000 || !o.Kept {
				t.Errorf("%+v", o)
			}
		})
	}
}

// An alarm is announced however long the silence must last before it comes; one of a sensor that nobody killed is not.
func TestDemoAlarmComesLate(t *testing.T) {
	for _, interval := range []time.Duration{24 * time.Second, 10 * time.Minute} {
		d := &demo{voice: newPrinter(t.Output()), record: newRecord(), fleet: &fleet{}}
		d.cfg.Timing.Interval = interval
		var err error
		if d.world, err = newWorld(d); err != nil {
			t.Fatal(err)
		}
		defer d.world.close()
		m := newMonitorAct(d)
		m.recordAlarm("ONSET", sensorName)
		if all := d.outcomes(m); len(all) > 0 {
			t.Errorf("every %v: of a sensor that was up: %+v", interval, all)
		}
		m.sensor.failed = time.Now().Add(-d.silenceLimit())
		m.recordAlarm("ONSET", sensorName)
		if all := d.outcomes(m); len(all) != 1 || !all[0].Kept {
			t.Errorf("every %v: %+v", interval, all)
		}
	}
}

// The files that the demonstration writes are today's: no server warns of them.
func TestDemoFiles(t *testing.T) {
	d := &demo{works: true, cfg: Config{Timing: lease.Timing{Interval: time.Second, Timeout: 5 * time.Second}}}
	var err error
	if d.world, err = newWorld(d); err != nil {
		t.Fatal(err)
	}
	defer d.world.close()
	if err := d.findAddresses(); err != nil {
		t.Fatal(err)
	}
	page, err := d.pageSettings("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"page": page}
	for i, name := range names {
		if files[name], err = yaml.Marshal(d.instance(i)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		var c settings.Server
		if err := errors.Join(settings.Parse(text, &c), c.Complete()); err != nil || len(c.Warnings()) > 0 {
			t.Errorf("%s: %v, %q", name, err, c.Warnings())
		}
	}
}

// Who was killed or frozen is not back before it was replaced.
func TestDemoDownTime(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{2 * time.Second: 8 * time.Second, 5 * time.Second: 8 * time.Second, 30 * time.Second: 33 * time.Second} {
		d := &demo{cfg: Config{Timing: lease.Timing{Interval: time.Second, Timeout: timeout}}}
		if got := d.downTime(); got != want {
			t.Errorf("a timeout of %v: %v, want %v", timeout, got, want)
		}
	}
}

func TestDemoOutcomes(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		of   outcome
		kept bool
		says string
	}{
		{outcome{what: "ben took over", took: 5020 * time.Millisecond, worst: 6 * s}, true, "ben took over after 5.02 s; worst case 6 s"},
		{outcome{what: "ben took over", took: 7 * s, worst: 6 * s, slack: 2 * s}, true, "ben took over after 7 s; worst case 6 s, and this machine is busy"},
		{outcome{what: "ben took over", took: 9 * s, worst: 6 * s, slack: 2 * s}, false, "ben took over after 9 s; LATER than the worst case of 6 s"},
		{outcome{what: "4 alarms"}, true, "4 alarms"},
		{outcome{what: "it went on", took: s, worst: 6 * s, counted: "1 twice", broken: true}, false, "it went on after 1 s; worst case 6 s; 1 twice"},
		{outcome{what: "2 fetches", took: s, worst: 6 * s, broken: true}, false, "2 fetches after 1 s; worst case 6 s"},
	} {
		if c.of.kept() != c.kept || c.of.String() != c.says {
			t.Errorf("%+v: kept %v, says %q; should be %v, %q", c.of, c.of.kept(), c.of.String(), c.kept, c.says)
		}
	}
}

func TestDemoSummary(t *testing.T) {
	var out strings.Builder
	newPrinter(&out).summary([]result{
		{Part: "role", Text: "ben took over", Took: 5020, Promised: 6000, Kept: true},
		{Part: "queue", Text: "4 delivered, 1 twice"},
	})
	want := `         WHAT HAPPENED         MEASURED  PROMISED
✓ role   ben took over         5.02 s    ≤ 6 s
✗ queue  4 delivered, 1 twice  -         -
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// What outlives the demonstration ends what was running, nothing else, and removes the folder.
func TestDemoMinder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := startMinder(dir)
	if err != nil {
		t.Fatal(err)
	}
	start := func() *exec.Cmd {
		cmd := exec.Command("sh", "-c", "sleep 600 & wait")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		m.watch(cmd.Process.Pid)
		return cmd
	}
	first, spared, last := start(), start(), start()
	m.unwatch(spared.Process.Pid)
	ended := make(chan error, 2)
	go func() { ended <- first.Wait() }()
	go func() { ended <- last.Wait() }()
	m.close()
	for range 2 {
		if err := <-ended; err == nil || err.Error() != "signal: terminated" {
			t.Errorf("one that ran ended so: %v", err)
		}
	}
	if err := syscall.Kill(spared.Process.Pid, 0); err != nil {
		t.Errorf("one that was no more the demonstration's: %v", err)
	}
	_ = syscall.Kill(-spared.Process.Pid, syscall.SIGKILL)
	_ = spared.Wait()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// What writes must see that something is lost, after a failover and after a planned change alike.
func TestDemoWriterCountsLosses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // a node that has one key less than it is asked for
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			args, err := resp.NewReader(conn, resp.Limits{}).Request()
			if err == nil {
				fmt.Fprintf(conn, ":%d\r\n", len(args)-2)
			}
			conn.Close()
		}
	}()
	d := &demo{voice: newPrinter(t.Output()), record: newRecord()}
	d.cfg.Timing.Interval = time.Second
	s := &shardAct{d: d, nodes: []string{"a", "b", "c"}, procs: []*process{{name: "redis-1"}, nil, {name: "redis-2"}, nil, {name: "redis-3"}, nil}}
	s.writer = newWriter(d, s)
	s.writer.acked = []int64{1, 2, 3}
	write := func(at string) {
		t.Helper()
		c, err := dialRedis(t.Context(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.conn.Close()
		if err := s.recordWrite(at, c); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	s.procs[0].failed = time.Now()
	write("b") // the primary has died
	s.procs[0].failed = time.Now().Add(-2 * callTimeout)
	write("a") // it is back, and was asked for
	write("b") // and so was this one
	got := d.outcomes(s)
	if len(got) != 3 {
		t.Fatalf("%+v", got)
	}
	for i, want := range []string{"writes went on at redis-2", "redis-2 gave way to redis-1", "redis-1 gave way to redis-2"} {
		if o := got[i]; o.Text != want+"; 3 writes acknowledged, 1 lost, 0 refused" || o.Kept || (o.Promised == 4000) != (i == 0) {
			t.Errorf("%+v", o)
		}
	}
}

// heartbeatServer answers heartbeats or, frozen, nothing.
type heartbeatServer struct {
	frozen bool
	last   time.Time
	gap    time.Duration // the longest between two heartbeats
}

func (b *heartbeatServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.frozen {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	if !b.last.IsZero() {
		b.gap = max(b.gap, time.Since(b.last))
	}
	b.last = time.Now()
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"accepted": 1}`)),
	}, nil
}

// A server that is frozen does not make the sources look silent.
func TestDemoHeartbeatsPastAFrozenServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		frozen, healthy := &heartbeatServer{frozen: true}, &heartbeatServer{}
		var to []*client.Client
		for _, server := range []http.RoundTripper{frozen, frozen, healthy} {
			c, err := client.New(client.Config{URL: "http://127.0.0.1:1", HTTP: &http.Client{Transport: server}})
			if err != nil {
				t.Fatal(err)
			}
			to = append(to, c)
		}
		d := &demo{cfg: Config{Timing: lease.Timing{Interval: time.Second}}}
		limit := d.silenceLimit()
		ctx, cancel := context.WithTimeout(t.Context(), 10*limit)
		defer cancel()
		SendHeartbeats(ctx, to, d.heartbeatInterval(), "sensor-1")
		if healthy.last.IsZero() || healthy.gap > limit/2 {
			t.Errorf("%v between two heartbeats, of the %v after which a source is silent", healthy.gap, limit)
		}
	})
}

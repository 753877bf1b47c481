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

// What takes the batches must see what the demonstration says does not happen.
func TestDemoWorldNotices(t *testing.T) {
	type batch struct {
		run, key string
		number   int
	}
	for name, c := range map[string]struct {
		sent []batch
		want tally
	}{
		"in order":                     {[]batch{{"r", "a", 1}, {"r", "b", 1}, {"r", "a", 2}, {"r", "b", 2}}, tally{delivered: 4}},
		"one is missing":               {[]batch{{"r", "a", 1}, {"r", "a", 3}}, tally{delivered: 2, disordered: 1}},
		"two changed places":           {[]batch{{"r", "a", 2}, {"r", "a", 1}}, tally{delivered: 2, disordered: 2}},
		"one came twice":               {[]batch{{"r", "a", 1}, {"r", "a", 1}, {"r", "a", 2}}, tally{delivered: 2, twice: 1}},
		"one of another demonstration": {[]batch{{"s", "a", 7}, {"r", "a", 1}}, tally{delivered: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := newWorld(&demo{run: "r"})
			if err != nil {
				t.Fatal(err)
			}
			defer w.close()
			for _, b := range c.sent {
				r := httptest.NewRequest(http.MethodPost, "/deliver", strings.NewReader(fmt.Sprintf(`{"run":%q,"key":%q,"number":%d}`, b.run, b.key, b.number)))
				r.Header.Set("Idempotency-Key", fmt.Sprintf("%s-%s-%d", b.run, b.key, b.number))
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
		t.Errorf("a batch that has not come: %d", code)
	}
	ask(http.MethodPost, "/deliver", `{"run":"r","key":"a","number":1}`)
	if code := ask(http.MethodGet, "/status/one", ""); code != http.StatusOK {
		t.Errorf("a batch that has come: %d", code)
	}
	for _, status := range []string{"ONSET", "ABATED"} {
		for _, source := range []string{sensorName, "sensor-1"} {
			ask(http.MethodPost, "/alarm", fmt.Sprintf(`{"status":%q,"event":"sensor","source":%q}`, status, source))
		}
	}
	ask(http.MethodPost, "/alarm", `{"status":"ONSET","event":"other","source":"sensor-1"}`)
	if n, _ := w.alarmsOf("ONSET", sensorName); n != 1 || w.otherAlarms(sensorName) != 2 {
		t.Errorf("%d of the source, %d of others; should be 1 and 2", n, w.otherAlarms(sensorName))
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
		{outcome{what: "4 delivered"}, true, "4 delivered"},
		{outcome{what: "4 delivered, 1 twice", broken: true}, false, "4 delivered, 1 twice"},
		{outcome{what: "2 fetches", took: s, worst: 6 * s, broken: true}, false, "2 fetches after 1 s; worst case 6 s"},
	} {
		if c.of.kept() != c.kept || c.of.String() != c.says {
			t.Errorf("%+v: kept %v, says %q; should be %v, %q", c.of, c.of.kept(), c.of.String(), c.kept, c.says)
		}
	}
}

func TestDemoSummary(t *testing.T) {
	var out strings.Builder
	newPrinter(&out).summary([]outcome{
		{part: "role", what: "ben took over", took: 5020 * time.Millisecond, worst: 6 * time.Second},
		{part: "queue", what: "4 delivered, 1 twice", broken: true},
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

// What writes must see that something is lost.
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
	w := newWriter(&demo{}, nil)
	w.address, w.acked = l.Addr().String(), []int64{1, 2, 3}
	if n, err := w.countLost(t.Context()); n != 1 || err != nil || w.String() != "3 writes acknowledged, 1 lost, 0 refused" {
		t.Errorf("%d lost, %v; %v", n, err, w)
	}
}

// beatServer answers beats or, frozen, nothing.
type beatServer struct {
	frozen bool
	last   time.Time
	gap    time.Duration // the longest between two beats
}

func (b *beatServer) RoundTrip(r *http.Request) (*http.Response, error) {
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
func TestDemoBeatsPastAFrozenServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		frozen, healthy := &beatServer{frozen: true}, &beatServer{}
		var to []*client.Client
		for _, server := range []http.RoundTripper{frozen, frozen, healthy} {
			c, err := client.New(client.Config{URL: "http://127.0.0.1:1", HTTP: &http.Client{Transport: server}})
			if err != nil {
				t.Fatal(err)
			}
			to = append(to, c)
		}
		d := &demo{cfg: Config{Timing: lease.Timing{Interval: time.Second}}}
		limit := (&monitorAct{d: d}).limit()
		ctx, cancel := context.WithTimeout(t.Context(), 10*limit)
		defer cancel()
		Beat(ctx, to, d.beatEvery(), "sensor-1")
		if healthy.last.IsZero() || healthy.gap > limit/2 {
			t.Errorf("%v between two beats, of the %v after which a source is silent", healthy.gap, limit)
		}
	})
}

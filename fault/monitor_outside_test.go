//go:build linux

package fault_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/fakerouter"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/monitor"
)

var monitorOutside = []monitorCase{
	{name: "D05 sink away", stores: light, run: monitorSink(fault.Away)},
	{name: "D06 sink hangs", stores: server, run: monitorSink(fault.Stuck)},
	{name: "D15 D22 events added and removed under load", stores: server, more: light, run: monitorReconfigured},
	{name: "D18 D21 broken configurations", stores: light, run: monitorBrokenConfig},
	{name: "D19 secrets", stores: light, run: monitorSecrets},
	{name: "D20 health", stores: server, server: true, run: monitorHealth},
	{name: "D23 seen and acknowledged", stores: light, run: monitorSeen},
	{name: "disk full", stores: light, run: monitorDiskFull},
}

// monitorSink has one of two sinks gone for long, under outages: the other is told of
// them as ever, and this one of all of them when it is back.
func monitorSink(mood fault.Mood) func(*testing.T, fault.Programs, fault.Database) {
	return func(t *testing.T, p fault.Programs, db fault.Database) {
		length := 3 * time.Second
		if prove {
			length = time.Minute
		}
		m := monitorsOf(t, p, db, 2, 2)
		m.Start()
		b := beaterOf(m, 10, 0)
		gone, there := m.Sinks[0], m.Sinks[1]
		gone.Feel(mood)
		begun := time.Now()
		told := func(standing bool) {
			t.Helper()
			realserver.Eventually(t, 2*patience, "the other sink is told", func() error {
				for _, name := range b.Names() {
					if there.Stands(name) != standing {
						return fmt.Errorf("%s: not %t", name, standing)
					}
				}
				return nil
			})
		}
		for rounds := 0; rounds < 2 || time.Since(begun) < length; rounds++ {
			stop := inBackground(b)
			told(false)
			b.Heard(t, 2*patience)
			<-time.After(2 * hbEvery)
			stop()
			told(true)
		}
		if n := len(gone.Told()); n > 0 {
			t.Errorf("it was told %d things while it was away", n)
		}
		gone.Feel(fault.Kind)
		stop := inBackground(b)
		b.Await(t, 5*patience, false)
		e := b.Evidence(t, 5*patience)
		m.Stop()
		stop()
		monitorJudged(t, fault.JudgeMonitor(e))
	}
}

// monitorReconfigured adds and removes event names while sources beat: nobody waits for
// it, and what stands of a removed name ends.
func monitorReconfigured(t *testing.T, p fault.Programs, db fault.Database) {
	rounds := 3
	if prove {
		rounds = 40
	}
	m := monitorsOf(t, p, db, 2, 1)
	m.Start()
	b := beaterOf(m, 6, 0)
	stop := inBackground(b)
	defer stop()
	const kept = "events:\n  - {event: hb, interval: 400ms, missed: 3}\n"
	m.File("less.yaml", kept)
	m.File("more.yaml", kept+"  - {event: extra, interval: 100ms, missed: 1}\n  - {event: other, interval: 1h}\n")
	apply := func(file string) {
		t.Helper()
		if out, err := m.Command("monitor", "config", "apply", file); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for range rounds {
		apply("more.yaml")
		realserver.Eventually(t, patience, "a new name is known", func() error {
			if status, text := m.Named("m1").Ask("POST", "/v1/beats", `{"event":"extra","source":"x"}`); status != 200 && status != 202 {
				return fmt.Errorf("%d %s", status, text)
			}
			return nil
		})
		stands := func(want bool) {
			t.Helper()
			realserver.Eventually(t, 2*patience, "its alarm", func() error {
				if m.Sinks[0].Stands("x") != want {
					return fmt.Errorf("stands: %t", !want)
				}
				return nil
			})
		}
		stands(true)
		apply("less.yaml")
		stands(false)
		own := m.Sinks[0].Of("x")
		if last := own[len(own)-1]; last.End != monitor.Forget {
			t.Errorf("it ended by %q", last.End)
		}
		if status, _ := m.Named("m2").Ask("POST", "/v1/beats", `{"event":"hb","source":"steady-0"}`); status != 200 && status != 202 {
			t.Errorf("beats are answered with %d", status)
		}
	}
	stop()
	e := b.RollCall(t, 2*patience)
	worst := time.Duration(0)
	for _, a := range e.Beats {
		if a.Stored {
			worst = max(worst, a.Answered.Sub(a.Sent))
		}
	}
	t.Logf("%d changes; the slowest beat took %v", 2*rounds, worst.Round(time.Millisecond))
	monitorJudged(t, fault.JudgeMonitor(e))
}

// monitorBrokenConfig offers one configuration after the other that is none: the last
// good one stays in force, and everyone is told why.
func monitorBrokenConfig(t *testing.T, p fault.Programs, db fault.Database) {
	m := fault.NewMonitors(t, fault.MonitorsConfig{Programs: p, Database: db, Sinks: sinksOf(t, 1),
		Options: []string{"--config", "hb.yaml", "--poll", "1s"}}, instances(2)...)
	const good = "events:\n  - {event: hb, interval: 400ms, missed: 3}\n  - {event: other, interval: 1h}\n"
	m.File("hb.yaml", good)
	m.Start()
	overview := func(what string, ok func(monitor.Overview) bool) {
		t.Helper()
		realserver.Eventually(t, 2*patience, what, func() error {
			o, err := m.Table().Overview(t.Context())
			if err != nil || !ok(o) {
				return fmt.Errorf("%d event names, configured at %v, error %q: %w", len(o.Checks), o.Configured, o.Error, err)
			}
			return nil
		})
	}
	inForce := func(o monitor.Overview) bool { return len(o.Checks) == 2 && o.Error == "" }
	overview("the configuration is in force", inForce)
	b := beaterOf(m, 6, 0)
	stop := inBackground(b)
	defer stop()
	entry := `{"eventName":"hb","heartbeatcountmissed":3,"heartbeatinterval":1,"closedLoopControlName":"c","policyVersion":"1","policyName":"p","policyScope":"s","target_type":%q,"target":"t","version":"1"}`
	vnfs, _ := json.Marshal(`{"vnfs":[` + fmt.Sprintf(entry, "SOMETHING") + `]}`)
	for _, bad := range []string{"", "{}", "events: []\n", good[:len(good)/2], `{"heartbeat_config":`, "events:\n  - {event: hb, interval: 1ms}\n",
		"events:\n  - {event: hb, interval: 1s}\n  - {event: hb, interval: 2s}\n", `{"heartbeat_config":"{\"vnfs\":[]}"}`, `{"heartbeat_config":` + string(vnfs) + `}`} {
		m.File("hb.yaml", bad)
		overview(fmt.Sprintf("%q is refused", bad), func(o monitor.Overview) bool { return len(o.Checks) == 2 && o.Error != "" })
		m.File("hb.yaml", good)
		overview("the good one is back", inForce)
	}
	stop()
	monitorJudged(t, fault.JudgeMonitor(b.RollCall(t, 2*patience)))
}

// monitorSecrets gives an instance all the secrets that it can have, and everyone who
// gets them wrong: none of them, and no message, is in what it says.
func monitorSecrets(t *testing.T, p fault.Programs, db fault.Database) {
	const secret, password, key, body = "hook-secret-0123456789abcdef", "router-password-0123456789", "ping-key-0123456789abcdef0123456789", "what-a-message-says"
	router := fakerouter.New(t)
	url := router.URL("IN")
	m := monitorsOf(t, p, db, 1, 1, "--router-in", url, "--router-out", router.URL("OUT"), "--router-user", "u", "--router-password-file", "password", "--webhook-secret-file", "secret",
		"--ping-key-file", "key", "--slack", router.URL("SLACK")+"?token="+secret)
	for name, text := range map[string]string{"secret": secret, "password": password, "key": key} {
		m.File(name, text+"\n")
	}
	m.Start() // the router refuses the password
	one := m.Named("m1")
	for _, ask := range []string{"/v1/ping/hb/x?key=" + key, "/v1/ping/hb/x?key=wrong", "/v1/ping/key/" + key + "/hb/x", "/v1/ping/key/wrong/hb/x"} {
		one.Ask("GET", ask, "")
	}
	router.Guard("u", password)
	for _, bad := range []string{`{"event":{"commonEventHeader":{"eventName":"` + body + `"}}}`, body, `["` + body} {
		one.Ask("POST", "/v1/beats", bad)
		router.Publish("IN", bad)
	}
	// What a router says of its own trouble is shown; what messages say is not.
	router.Fail(fakerouter.Fault{Status: 500, Body: "out of order"}, fakerouter.Fault{Body: "<" + body})
	b := beaterOf(m, 4, 0)
	stop := inBackground(b)
	realserver.Eventually(t, patience, "the sources are known", func() error {
		if n := len(m.Sources(hb)); n < 4 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	stop()
	b.Await(t, 2*patience, true)
	for _, path := range []string{"/metrics", "/v1/monitor", "/v1/monitor/rejected", "/v1/queues", "/v1/history"} {
		status, text := one.Ask("GET", path, "")
		if status != 200 {
			t.Errorf("%s: %d", path, status)
		}
		for _, s := range []string{secret, password, key} {
			if strings.Contains(text, s) {
				t.Errorf("%s shows %q", path, s)
			}
		}
	}
	m.Stop()
	for _, s := range []string{secret, password, key, body} {
		for line := range strings.Lines(one.Output()) {
			if strings.Contains(line, s) {
				t.Errorf("%q is in the log: %s", s, line)
			}
		}
	}
}

// monitorHealth asks an instance how it is while its store is well, stopped, and well
// again, and while hundreds of connections say nothing.
func monitorHealth(t *testing.T, p fault.Programs, db fault.Database) {
	m := monitorsOf(t, p, db, 1, 0)
	m.Start()
	one := m.Named("m1")
	says := func(what string, want int) {
		t.Helper()
		realserver.Eventually(t, 2*patience, what, func() error {
			if status, text := one.Ask("GET", "/readyz", ""); status != want {
				return fmt.Errorf("%d %s", status, text)
			}
			if status, text := one.Ask("GET", "/healthz", ""); status != 200 {
				return fmt.Errorf("it does not live: %d %s", status, text)
			}
			return nil
		})
	}
	says("it is ready", 200)
	for range 300 {
		c, err := net.Dial("tcp", strings.TrimPrefix(one.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, "GET /readyz HTTP/1.1\r\nHost: x\r\n")
	}
	says("it is ready, beside those who ask nothing", 200)
	db.Server.Pause()
	defer db.Server.Resume()
	says("its store hangs", 503)
	db.Server.Resume()
	says("its store goes on", 200)
	db.Server.Kill()
	says("its store is dead", 503)
	db.Server.Start(t)
	says("its store is back", 200)
}

// monitorSeen looks at everything that a person looks at, and does what one does.
func monitorSeen(t *testing.T, p fault.Programs, db fault.Database) {
	m := monitorsOf(t, p, db, 1, 1)
	m.Start()
	one := m.Named("m1")
	if status, text := one.Ask("GET", "/v1/ping/hb/db-1", ""); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	realserver.Eventually(t, patience, "it is told of", func() error {
		if !m.Sinks[0].Stands("db-1") {
			return fmt.Errorf("not yet")
		}
		return nil
	})
	id := m.Sinks[0].Of("db-1")[0].RequestID
	for path, want := range map[string]string{
		"/v1/monitor": `"standing":1`, "/v1/sources/hb/db-1": `"state":"down"`, "/v1/alarms/" + id: `"db-1"`, "/v1/checks": `"hb"`,
		"/metrics": "understudy_monitor_", "/v1/history?part=monitor": "hb/db-1",
	} {
		if status, text := one.Ask("GET", path, ""); status != 200 || !strings.Contains(text, want) {
			t.Errorf("%s lacks %s: %d %.500s", path, want, status, text)
		}
	}
	for _, ask := range []struct{ path, body string }{
		{"/v1/alarms/" + id + "/acknowledge", `{"by":"me","note":"seen"}`}, {"/v1/sources/hb/db-1/pause", `{"by":"me","note":"new disk"}`},
	} {
		if status, text := one.Ask("POST", ask.path, ask.body); status < 200 || status > 299 {
			t.Errorf("%s: %d %s", ask.path, status, text)
		}
	}
	if out, err := m.Command("alarm", "show", id); err != nil || !strings.Contains(out, "acknowledged by") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := m.Command("source", "show", "hb", "db-1"); err != nil || !strings.Contains(out, "paused") {
		t.Errorf("%v: %s", err, out)
	}
	m.Stop()
}

// monitorDiskFull fills the disk of a store that is a file, and makes room again: what
// was not stored was not acknowledged, and no source is blamed.
func monitorDiskFull(t *testing.T, p fault.Programs, _ fault.Database) {
	realserver.NeedRoot(t, "a mount")
	dir := t.TempDir()
	m := fault.NewMonitors(t, fault.MonitorsConfig{Programs: p, Database: fault.Database{URL: "sqlite:" + filepath.Join(dir, "store.db")}, Sinks: sinksOf(t, 1),
		Options: []string{"--event", hbConfig},
		// A mount that nobody else sees, and that ends with the process.
		Wrap: []string{"unshare", "--mount", "sh", "-c", `mount -t tmpfs -o size=16m tmpfs "$1" && shift && exec "$@"`, "--", dir}}, "m1")
	one := m.Named("m1")
	one.Start()
	ready := func(want int) {
		t.Helper()
		realserver.Eventually(t, 2*patience, "ready or not", func() error {
			if status, text := one.Ask("GET", "/readyz", ""); status != want {
				return fmt.Errorf("%d %s", status, text)
			}
			return nil
		})
	}
	ready(200)
	inside := fmt.Sprintf("/proc/%d/root", one.PID())
	b := beaterOf(m, 6, 0)
	stop := inBackground(b)
	defer stop()
	filler := filepath.Join(inside, dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 32<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	refused := func() (n int) {
		beats, _ := b.Beats()
		for _, a := range beats {
			if !a.Stored && !a.Answered.IsZero() {
				n++
			}
		}
		return n
	}
	realserver.Eventually(t, 2*patience, "beats are not acknowledged", func() error {
		if n := refused(); n < 12 {
			return fmt.Errorf("only %d were not", n)
		}
		return nil
	})
	if one.Exited() {
		t.Fatal("it has ended")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	ready(200)
	realserver.Eventually(t, 2*patience, "a beat of each source is stored", func() error {
		missing := b.Names()
		beats, _ := b.Beats()
		for _, a := range beats {
			if a.Stored {
				missing = slices.DeleteFunc(missing, func(name string) bool { return name == a.Source })
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("none of %v", missing)
		}
		return nil
	})
	stop()
	b.Await(t, 3*patience, true)
	stop = inBackground(b)
	defer stop()
	e := fault.MonitorEvidence{Limit: b.Limit, Linger: time.Minute, Well: b.Names()}
	realserver.Eventually(t, 3*patience, "all is over, and told", func() (err error) {
		if e.Alarms, err = alarmsOf(one); err != nil {
			return err
		}
		told := m.Sinks[0].Messages()
		e.Sinks = [][]fault.Told{m.Sinks[0].Told()}
		e.Beats, _ = b.Beats()
		over := slices.IndexFunc(e.Alarms, func(a monitor.Alarm) bool { return a.Ended.IsZero() }) < 0
		if !over || len(e.Alarms) < len(b.Names()) || told != 2*len(e.Alarms) {
			return fmt.Errorf("%d alarms, of which some stand: %t; the sink was told %d things", len(e.Alarms), !over, told)
		}
		return nil
	})
	monitorJudged(t, fault.JudgeMonitor(e))
}

// alarmsOf asks an instance for the alarms: nobody else can open its file.
func alarmsOf(one *fault.Monitor) (all []monitor.Alarm, err error) {
	var listed struct {
		Alarms []struct {
			ID, Source             string
			Started, Raised, Ended time.Time
			End                    monitor.Transition
		}
	}
	status, text := one.Ask("GET", "/v1/alarms?limit=1000", "")
	if err := json.Unmarshal([]byte(text), &listed); status != 200 || err != nil {
		return nil, fmt.Errorf("%d %s: %w", status, text, err)
	}
	for _, a := range listed.Alarms {
		all = append(all, monitor.Alarm{ID: a.ID, Source: a.Source, Started: a.Started, Raised: a.Raised, Ended: a.Ended, End: a.End})
	}
	return all, nil
}

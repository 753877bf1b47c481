//go:build linux

package fault_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/fakerouter"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

var monitorIntake = []monitorCase{
	{name: "D03 poison", stores: light, run: monitorPoison},
	{name: "D07 D08 backlog of many sources", stores: light, more: server, run: monitorBacklog},
	{name: "D09 all at once", stores: server, more: light, run: monitorMass},
	{name: "D10 clocks, replays and order", stores: light, more: server, run: monitorClocks},
	{name: "D12 router in trouble", stores: light, run: monitorRouter},
	{name: "D13 one consumer twice", stores: light, run: monitorConsumers},
}

// inBackground has all sources of a beater beat until the returned function is
// called.
func inBackground(b *fault.Beater) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { b.All(ctx); close(over) }()
	return sync.OnceFunc(func() { cancel(); <-over })
}

// ves is a heartbeat as a VES collector passes it on.
func ves(event, source string, sequence int, sent time.Time) string {
	return fmt.Sprintf(`{"event":{"commonEventHeader":{"domain":"heartbeat","eventName":%q,"sourceName":%q,"sequence":%d,"lastEpochMicrosec":%d}}}`,
		event, source, sequence, sent.UnixMicro())
}

// poisons are bodies and messages that must harm nobody but themselves.
func poisons() []string {
	good := ves("odd", "poisoned", 1, time.Now())
	with := func(old, is string) string { return strings.Replace(good, old, is, 1) }
	return []string{
		"", " ", "\n\n", "null", "true", "12", `"text"`, "[]", "{}", "[[]]", "[null]", `[1,"2",{}]`, `{"event":`, `<event/>`, "\x00\x01\x02", "\xff\xfe",
		`{"event":{}}`, `{"event":{"commonEventHeader":null}}`, `{"event":{"commonEventHeader":[]}}`,
		with(`"sequence":1,`, ""), with(`"sourceName":"poisoned",`, ""), with(`"eventName":"odd",`, ""),
		with(`"sequence":1`, `"sequence":"x"`), with(`"sequence":1`, `"sequence":1e999`), with(`"sequence":1`, `"sequence":-99999999999999999999`),
		with(`"poisoned"`, `""`), with(`"poisoned"`, `17`), with(`"poisoned"`, `"a\u0000b"`), with(`"poisoned"`, `"a\nb"`), with(`"poisoned"`, `"\ud800"`),
		with(`"poisoned"`, `"`+strings.Repeat("x", 5000)+`"`), with(`"poisoned"`, `"'; DROP TABLE source; --"`), with(`"poisoned"`, `"<script>"`),
		with(`"odd"`, `"x-unheard-of"`), with(`"odd"`, `"`+strings.Repeat("é", 300)+`"`),
		with(`"lastEpochMicrosec":`, `"lastEpochMicrosec":"now","other":`), with(`"lastEpochMicrosec":`, `"lastEpochMicrosec":-1,"other":`),
		with(`"lastEpochMicrosec":`, `"lastEpochMicrosec":1e300,"other":`), with(`"lastEpochMicrosec":`, `"lastEpochMicrosec":{},"other":`),
		`{"event":"odd","source":"poisoned","signal":"explode"}`, `{"event":"odd","source":"poisoned","code":99999}`, `{"event":"odd","source":"poisoned","sent":"noon"}`,
		`{"event":"odd","source":"poisoned","sent":99999999999999999999}`, `{"event":"odd","source":"poisoned","seq":1.5}`,
		`{"event":"odd","event":7,"source":{},"source":"poisoned"}`, `{"mrstatus":3001,"status":404,"message":"mrstatus"}`,
		strings.Repeat("[", 20_000), strings.Repeat(`{"event":`, 5000), "[" + strings.Repeat(`{"event":"odd"},`, 3000) + "0]",
	}
}

// monitorPoison sends every kind of poison, by every way, to a monitor that others
// rely on meanwhile.
func monitorPoison(t *testing.T, p fault.Programs, db fault.Database) {
	router := fakerouter.New(t)
	m := monitorsOf(t, p, db, 1, 1, "--event", "routed,interval=1h", "--event", "odd,interval=1h", "--router-in", router.URL("IN"))
	m.Start()
	one := m.Named("m1")
	pid := one.PID()
	b := beaterOf(m, 6, 0)
	stop := inBackground(b)
	defer stop()
	for i, bad := range poisons() {
		for _, path := range []string{"/v1/beats", "/eventListener/v7", "/eventListener/v7/eventBatch"} {
			if status, text := one.Ask("POST", path, bad); status == 0 || status >= 500 {
				t.Errorf("%s of %.60q: %d %s", path, bad, status, text)
			}
		}
		quoted, _ := json.Marshal(bad)
		router.Publish("IN", bad, string(quoted), ves("routed", fmt.Sprint(i), i, time.Now()))
	}
	for _, path := range []string{"/v1/ping/hb", "/v1/ping/", "/v1/ping/hb/%00", "/v1/ping/hb/a%0Ab", "/v1/ping/hb/x/999", "/v1/ping/hb/x/explode", "/v1/ping/no/x",
		"/v1/ping/hb/" + strings.Repeat("y", 3000), "/v1/ping/%2e%2e/%2e%2e"} {
		if status, text := one.Ask("GET", path, ""); status < 300 || status >= 500 {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	address := strings.TrimPrefix(one.URL, "http://")
	for _, raw := range []string{
		"\x16\x03\x01\x02\x00", "GET", "POST /v1/beats HTTP/1.1\r\n\r\n", "POST /v1/beats HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"event\"",
		"POST /v1/beats HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n",
		"POST /v1/beats HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\nabcd",
		"GET /" + strings.Repeat("x", 1<<20) + " HTTP/1.1\r\n\r\n",
	} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, raw)
		defer c.Close() // only now: some of them say nothing more, and wait
	}
	realserver.Eventually(t, 2*patience, "what came amid the poison has arrived", func() error {
		if n := len(m.Sources("routed")); n < len(poisons()) {
			return fmt.Errorf("%d of %d", n, len(poisons()))
		}
		return nil
	})
	if status, text := one.Ask("GET", "/v1/monitor/rejected", ""); status != 200 || !strings.Contains(text, "cause") {
		t.Errorf("nobody is told of what was bad: %d %.300s", status, text)
	}
	if one.Exited() || one.PID() != pid {
		t.Error("it has ended")
	}
	stop()
	monitorJudged(t, fault.JudgeMonitor(b.RollCall(t, 2*patience)))
}

// monitorBacklog starts instances on a router where much has waited, of many sources.
func monitorBacklog(t *testing.T, p fault.Programs, db fault.Database) {
	const messages, sources = 20_000, 2000
	router := fakerouter.New(t)
	var all []string
	for n := range messages {
		all = append(all, ves("routed", fmt.Sprint("s", n%sources), n, time.Now()))
	}
	router.Publish("IN", all...)
	m := monitorsOf(t, p, db, 2, 0, "--event", "routed,interval=1h", "--router-in", router.URL("IN"))
	begun := time.Now()
	m.Start()
	realserver.Eventually(t, 3*patience, "all is read", func() error {
		if n := router.Offset("IN", "understudy"); n < messages {
			return fmt.Errorf("%d of %d", n, messages)
		}
		return nil
	})
	t.Logf("%d messages of %d sources were read within %v of the start", messages, sources, time.Since(begun).Round(time.Millisecond))
	realserver.Eventually(t, patience, "all is stored", func() error {
		records, sum := m.Sources("routed"), int64(0)
		for _, r := range records {
			sum += r.Beats
		}
		if sum != messages || len(records) != sources {
			return fmt.Errorf("%d beats of %d sources", sum, len(records))
		}
		return nil
	})
	m.Stop()
}

// monitorMass has many sources fall silent at once.
func monitorMass(t *testing.T, p fault.Programs, db fault.Database) {
	const sources = 1000
	m := fault.NewMonitors(t, fault.MonitorsConfig{Programs: p, Database: db, Sinks: sinksOf(t, 1),
		Options: []string{"--event", "mass,interval=2s,missed=2"}}, instances(2)...)
	m.Start()
	var all []string
	for i := range sources {
		all = append(all, fmt.Sprintf(`{"event":"mass","source":"%d"}`, i))
	}
	beat := func() {
		t.Helper()
		if status, text := m.Named("m1").Ask("POST", "/v1/beats", "["+strings.Join(all, ",")+"]"); status != 200 && status != 202 {
			t.Fatalf("%d %s", status, text)
		}
	}
	beat()
	beat()
	quiet := time.Now().Add(4 * time.Second)
	told := func(want int) {
		t.Helper()
		realserver.Eventually(t, 4*patience, "all are told of", func() error {
			if n := m.Sinks[0].Messages(); n < want {
				return fmt.Errorf("%d of %d", n, want)
			}
			return nil
		})
	}
	told(sources)
	alarms, first, last := m.Alarms(), time.Now(), time.Time{}
	for _, a := range alarms {
		if a.Raised.Before(first) {
			first = a.Raised
		}
		if a.Raised.After(last) {
			last = a.Raised
		}
	}
	t.Logf("%d sources: all were found silent within %v, %v after their limit, and all told of %v after it", len(alarms),
		last.Sub(first).Round(time.Millisecond), last.Sub(quiet).Round(time.Millisecond), time.Since(quiet).Round(time.Millisecond))
	if len(alarms) != sources {
		t.Errorf("%d alarms of %d sources", len(alarms), sources)
	}
	if spread := last.Sub(first); spread > patience {
		t.Errorf("the first was found %v before the last", spread)
	}
	beat()
	told(2 * sources)
	m.Stop()
}

// monitorClocks has senders whose clocks are wrong by hours, whose beats come in no
// order, and one that only ever sends the same.
func monitorClocks(t *testing.T, p fault.Programs, db fault.Database) {
	m := monitorsOf(t, p, db, 1, 1)
	m.Start()
	one := m.Named("m1")
	skews := map[string]time.Duration{"behind": -5 * time.Hour, "ahead": 5 * time.Hour, "long-ago": -50 * 365 * 24 * time.Hour, "far-ahead": 200 * 365 * 24 * time.Hour}
	random := rand.New(rand.NewPCG(1, 1))
	replay := fmt.Sprintf(`{"event":%q,"source":"replayed","sent":%q,"seq":7}`, hb, time.Now().UTC().Format(time.RFC3339Nano))
	var last time.Time
	var worst time.Duration
	begun := time.Now()
	for n := 0; time.Since(begun) < 6*time.Second || !m.Sinks[0].Stands("replayed"); n++ {
		if time.Since(begun) > 2*patience {
			t.Fatal("a source of which only replays come is never told of")
		}
		all := []string{replay}
		for name, skew := range skews {
			all = append(all, ves(hb, name, n, time.Now().Add(skew)))
		}
		all = append(all, ves(hb, "shuffled", random.IntN(1000), time.Now().Add(time.Duration(random.IntN(7200)-3600)*time.Second)))
		sent := time.Now()
		if status, text := one.Ask("POST", "/v1/beats", "["+strings.Join(all, ",")+"]"); status != 200 && status != 202 {
			t.Fatalf("%d %s", status, text)
		}
		if !last.IsZero() {
			worst = max(worst, time.Since(last))
		}
		last = sent
		<-time.After(hbEvery - min(hbEvery, time.Since(sent)))
	}
	for _, a := range m.Alarms() {
		// They have fallen silent meanwhile.
		if a.Source != "replayed" && worst < hbLimit && a.Raised.Before(last.Add(hbLimit)) {
			t.Errorf("%s beat every %v, and an alarm was raised", a.Source, worst)
		}
	}
	names := append([]string{"shuffled"}, "behind", "ahead", "long-ago", "far-ahead")
	realserver.Eventually(t, patience, "all are told of when they fall silent", func() error {
		if i := slices.IndexFunc(names, func(s string) bool { return !m.Sinks[0].Stands(s) }); i >= 0 {
			return fmt.Errorf("%s is not", names[i])
		}
		return nil
	})
	m.Stop()
}

// monitorRouter breaks the router in all ways, and kills who reads it.
func monitorRouter(t *testing.T, p fault.Programs, db fault.Database) {
	router := fakerouter.New(t)
	m := monitorsOf(t, p, db, 2, 1, "--event", "routed,interval=3s,missed=2", "--router-in", router.URL("IN"))
	m.Start()
	b := beaterOf(m, 4, 0)
	stop := inBackground(b)
	defer stop()
	sources := []string{"r1", "r2", "r3"}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	publishing := make(chan struct{})
	go func() {
		defer close(publishing)
		for n := 0; ctx.Err() == nil; n++ {
			for _, s := range sources {
				router.Publish("IN", ves("routed", s, n, time.Now()))
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
	readsAgain := func(what string, again func()) {
		t.Helper()
		router.Publish("IN", ves("routed", what, 1, time.Now()))
		realserver.Eventually(t, 2*patience, "they read on after: "+what, func() error {
			if !slices.Contains(names(m, "routed"), what) {
				again()
				return fmt.Errorf("it did not arrive; %d of %d are read", router.Offset("IN", "understudy"), len(router.Messages("IN")))
			}
			return nil
		})
	}
	reads := func(what string) { t.Helper(); readsAgain(what, func() {}) }
	reads("nothing")
	for _, f := range []fakerouter.Fault{
		// That there is no more is a lie that nobody can see through: it comes first, while
		// nothing waits.
		{Method: "GET", Body: "[]", Header: map[string][]string{"Content-Type": {"text/html"}}},
		{Method: "GET", Status: 409, Code: 5012}, {Method: "GET", Status: 503, Code: 3002}, {Method: "GET", Status: 404, Code: 3001},
		{Method: "GET", Body: `{"mrstatus":5008,"status":500,"message":"x"}`}, {Method: "GET", Body: "<html>"}, {Method: "GET", Body: "[\"half"},
		{Method: "GET", Cut: true},
	} {
		router.Fail(f, f)
	}
	reads("errors")
	router.Slow(time.Second)
	reads("slow")
	router.Slow(0)
	router.Fail(fakerouter.Fault{Method: "GET", Hang: true})
	reads("hanging")
	router.Down()
	<-time.After(2 * time.Second)
	router.Up()
	reads("down")
	m.Named("m1").Kill()
	// What the router hands to a poll whose process has just died is lost: it hands out once. A
	// source beats again.
	readsAgain("one is dead", func() { router.Publish("IN", ves("routed", "one is dead", 2, time.Now())) })
	m.Named("m1").Start()
	reads("it is back")
	for _, a := range m.Alarms() {
		if slices.Contains(sources, a.Source) {
			t.Errorf("%s never fell silent, and an alarm was raised at %v", a.Source, a.Raised)
		}
	}
	end()
	<-publishing
	realserver.Eventually(t, 3*patience, "what is silent is told of", func() error {
		for _, s := range sources {
			if !m.Sinks[0].Stands(s) {
				return fmt.Errorf("%s is not", s)
			}
		}
		return nil
	})
	stop()
	monitorJudged(t, fault.JudgeMonitor(b.RollCall(t, 2*patience)))
}

func names(m *fault.Monitors, event string) (all []string) {
	for _, r := range m.Sources(event) {
		all = append(all, r.Source)
	}
	return all
}

// monitorConsumers gives two instances one consumer's id: the router refuses one of
// them at a time, both live, and nothing is lost or counted twice.
func monitorConsumers(t *testing.T, p fault.Programs, db fault.Database) {
	const messages = 200
	router := fakerouter.New(t)
	m := monitorsOf(t, p, db, 2, 0, "--event", "routed,interval=1h", "--router-in", router.URL("IN"), "--consumer", "the-same")
	m.Start()
	for n := range messages {
		router.Publish("IN", ves("routed", fmt.Sprint("s", n%10), n, time.Now()))
	}
	realserver.Eventually(t, 2*patience, "all is read", func() error {
		sum := int64(0)
		for _, r := range m.Sources("routed") {
			sum += r.Beats
		}
		if sum != messages {
			return fmt.Errorf("%d beats of %d", sum, messages)
		}
		return nil
	})
	realserver.Eventually(t, 2*patience, "one of them says why it does not read", func() error {
		for _, one := range m.All() {
			if one.Exited() {
				t.Fatalf("%s has ended", one.Name)
			}
			if strings.Contains(one.Output(), "409") || strings.Contains(one.Output(), "5012") {
				return nil
			}
		}
		return fmt.Errorf("nobody does")
	})
	m.Stop()
}

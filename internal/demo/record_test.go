package demo

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Work that is seen again and again is one stretch, until its process ends or nobody is seen for a while.
func TestRecordOfWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecord()
		r.addLanes("role", "anna", "ben")
		began := time.Now().UnixMilli()
		saw := func(name string, every time.Duration, times int) {
			for range times {
				r.saw("role", name)
				time.Sleep(every)
			}
		}
		spans := func(lane int) (out [][3]int64) {
			lanes, _, _ := r.read("role")
			for _, s := range lanes[lane].Spans {
				open := int64(0)
				if s.Open {
					open = 1
				}
				out = append(out, [3]int64{s.From - began, s.To - began, open})
			}
			return out
		}
		expect := func(lane int, want ...[3]int64) {
			t.Helper()
			if diff := cmp.Diff(want, spans(lane)); diff != "" {
				t.Error(diff)
			}
		}
		saw("anna", 100*time.Millisecond, 3)
		expect(0, [3]int64{0, 200, 1})
		time.Sleep(joined)
		expect(0, [3]int64{0, 200, 0})
		saw("anna", 100*time.Millisecond, 1) // after a pause: another stretch
		expect(0, [3]int64{0, 200, 0}, [3]int64{1500, 1500, 1})
		r.mark(ended, "", "anna")
		expect(0, [3]int64{0, 200, 0}, [3]int64{1500, 1500, 0}) // dead, however lately it was seen
		r.saw("role", "nobody")                                 // who has no lane is not shown
		r.start("role", "ben")
		time.Sleep(10 * time.Second)
		expect(1, [3]int64{1600, 1600, 1})
		r.stop("role", "ben")
		expect(1, [3]int64{1600, 11600, 0}) // it does not seem to go on because it was lately
		time.Sleep(recordFor)
		r.start("role", "ben")
		time.Sleep(time.Millisecond)
		r.start("role", "ben")
		if got := spans(1); len(got) != 2 { // the old one is forgotten
			t.Errorf("%v", got)
		}
		time.Sleep(recordFor)
		r.stop("role", "ben")
		r.start("role", "ben")
		if got := spans(1); len(got) != 3 { // what goes on is not, however old
			t.Errorf("%v", got)
		}
	})
}

func TestRecordIsBounded(t *testing.T) {
	r := newRecord()
	r.addLanes("role", "anna")
	r.addLanes("queue", "anna")
	r.addLanes("shard", "redis-1")
	for range 3 * mostMarks {
		r.mark(ended, "", "anna")
		r.mark(asked, "role", "anna")
		r.outcome(outcome{part: "role", what: "taken over", took: 30 * time.Millisecond, worst: 6 * time.Second})
	}
	for part, want := range map[string][2]int{"role": {mostMarks, mostMarks}, "queue": {mostMarks / 2, 0}, "shard": {0, 0}} {
		_, marks, outcomes := r.read(part)
		if len(marks) != want[0] || len(outcomes) != want[1] {
			t.Errorf("%s: %d marks, %d outcomes, want %v", part, len(marks), len(outcomes), want)
		}
	}
	_, _, outcomes := r.read("role")
	if o := outcomes[0]; o.Took != 30 || o.Promised != 6000 || !o.Kept || o.Text != "taken over" {
		t.Errorf("%+v", o)
	}
}

// fakeAct is an act around one process.
type fakeAct struct {
	act
	d *demo
	p *process
}

func (s *fakeAct) part() string { return "role" }
func (s *fakeAct) offers() []offer {
	return []offer{s.d.kill(s.p, "primary", offer{ID: "role-kill", Text: "a standby takes over"}, 6*time.Second)}
}

// The page kills and freezes real processes, is told when that is not possible, and with --auto may do nothing.
func TestPageActs(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{name: "anna", pid: cmd.Process.Pid}
	failed := make(chan string, 1)
	d := &demo{voice: newPrinter(t.Output()), record: newRecord(), onFailure: func(p *process) { failed <- p.name }}
	d.cfg.Timing.Interval = time.Second
	d.record.addLanes("role", "anna")
	d.acts = []act{&fakeAct{d: d, p: p}}
	ask := func(method, path string) (int, string) {
		out := httptest.NewRecorder()
		d.handler().ServeHTTP(out, httptest.NewRequest(method, path, nil))
		return out.Code, out.Body.String()
	}
	seen := func() partView {
		_, body := ask("GET", "/v1/demo")
		var v view
		if err := json.Unmarshal([]byte(body), &v); err != nil || len(v.Parts) != 1 {
			t.Fatalf("%v: %s", err, body)
		}
		return v.Parts[0]
	}
	if o := seen().Offers; len(o) != 1 || o[0].Title != "Kill anna" || o[0].Promised != 6000 || o[0].Off != "" || !strings.HasPrefix(o[0].Command, "kill -9 ") {
		t.Errorf("offers %+v", o)
	}
	if code, body := ask("POST", "/v1/demo/nothing"); code != http.StatusConflict || !strings.Contains(body, "is not offered") {
		t.Errorf("%d %s", code, body)
	}

	if err := p.freeze(d); err != nil || <-failed != "anna" {
		t.Fatal(err)
	}
	if err := p.freeze(d); err == nil {
		t.Error("it was frozen twice")
	}
	if v := seen(); len(v.Marks) != 1 || v.Marks[0].Kind != frozen || v.Offers[0].Off != "anna is not back yet" {
		t.Errorf("while it is frozen: %+v", v)
	}
	if code, body := ask("POST", "/v1/demo/role-kill"); code != http.StatusConflict || !strings.Contains(body, "not back yet") {
		t.Errorf("a frozen one: %d %s", code, body)
	}
	p.frozen = false
	d.cfg.Auto = true
	if code, _ := ask("POST", "/v1/demo/role-kill"); code != http.StatusConflict || len(seen().Offers) != 0 {
		t.Errorf("with --auto: %d, %+v", code, seen().Offers)
	}
	d.cfg.Auto = false
	if code, body := ask("POST", "/v1/demo/role-kill"); code != http.StatusNoContent {
		t.Errorf("%d %s", code, body)
	}
	_ = cmd.Wait()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended so: %v", cmd.ProcessState)
	}
	d.noteFailure(p, ended, "ended")
	if v := seen(); v.Marks[len(v.Marks)-1].Kind != ended || <-failed != "anna" {
		t.Errorf("after its end: %+v", v)
	}
}

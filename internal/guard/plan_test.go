package guard

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestPlan replays the scripts of testdata/plan.txt.
func TestPlan(t *testing.T) {
	text, err := os.ReadFile("testdata/plan.txt")
	if err != nil {
		t.Fatal(err)
	}
	scripts := strings.Split(string(text), "\n== ")[1:]
	if len(scripts) == 0 {
		t.Fatal("no scripts")
	}
	for _, script := range scripts {
		name, body, _ := strings.Cut(script, "\n")
		t.Run(name, func(t *testing.T) { replay(t, strings.Split(strings.TrimSpace(body), "\n")) })
	}
}

func replay(t *testing.T, lines []string) {
	head := strings.Fields(lines[0])
	m := machine{plan: innerPlan(duration(t, head[1])), deadline: duration(t, head[2])}
	if head[0] == "outer" {
		m.plan = outerPlan(duration(t, head[1]))
	}
	events := map[string]event{"tick": tick, "extend": tick, "crowd": tick, "stop": stopRequested, "gone": guardGone, "ended": programEnded}
	actions := map[action]string{nothing: "nothing", terminate: "ask", kill: "kill"}
	judged := false
	for _, line := range lines[1:] {
		if want, ok := strings.CutPrefix(line, "reason "); ok {
			judged = true
			if string(m.reason) != want {
				t.Errorf("reason is %q, want %q", m.reason, want)
			}
			continue
		}
		in, want, ok := strings.Cut(line, " => ")
		fields := strings.Fields(in)
		ev, known := events[fields[1]]
		if !ok || !known {
			t.Fatalf("bad line %q", line)
		}
		switch fields[1] {
		case "extend":
			m.extend(duration(t, fields[2]))
		case "crowd":
			n, err := strconv.Atoi(fields[2])
			if err != nil {
				t.Fatal(err)
			}
			m.countProcesses(n)
		}
		got := actions[m.step(duration(t, fields[0]), ev)] + " " + m.wake().String()
		if w := strings.Fields(want); got != w[0]+" "+duration(t, w[1]).String() {
			t.Errorf("%s\n got %s", line, got)
		}
	}
	if !judged {
		t.Error("the script ends without a reason")
	}
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestPlanKeepsOrder checks for any grace what the scripts show for some: first
// SIGTERM, then the inner watcher's SIGKILL, then the outer one's, then the
// deadline.
func TestPlanKeepsOrder(t *testing.T) {
	for _, grace := range []time.Duration{0, time.Millisecond, 39 * time.Millisecond, time.Second, time.Hour} {
		in, out := innerPlan(grace), outerPlan(grace)
		if !(in.terminate >= in.kill && in.kill > out.kill && out.kill >= leastMargin/2) {
			t.Errorf("grace %v: inner %+v, outer %+v", grace, in, out)
		}
		if out.grace <= in.grace {
			t.Errorf("grace %v: the outer watcher waits %v, the inner one %v", grace, out.grace, in.grace)
		}
	}
}

package guard

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// guardProcess is a guard in a process of its own, which a test may stop and kill.
type guardProcess struct {
	t            *testing.T
	process      *os.Process
	gone         chan struct{}
	mark         string
	outer, inner int

	mu       sync.Mutex
	deadline time.Duration // the last that it may have told the watchers
	exit     string
}

const (
	faultGrace = 2 * time.Second
	faultAhead = 6 * time.Second // the T of tests that wait for the deadline
	longAhead  = time.Minute     // and of those in which all must end long before
)

func startGuard(t *testing.T, ahead time.Duration, argv ...string) *guardProcess {
	t.Helper()
	g := &guardProcess{t: t, mark: watched(t)}
	cmd := exec.Command(os.Args[0], append([]string{"program-guard", g.mark, faultGrace.String(), ahead.String()}, argv...)...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	g.gone = make(chan struct{})
	if err := startLocked(cmd, g.gone); err != nil {
		t.Fatal(err)
	}
	g.process = cmd.Process
	w.Close()
	started := make(chan struct{})
	heard := make(chan struct{})
	go g.hear(r, started, heard)
	t.Cleanup(func() { g.end(); <-heard })
	select {
	case <-started:
	case <-time.After(time.Minute):
		t.Fatal("the guard has not started its program")
	}
	g.outer, g.inner = watchersOf(t, g.process.Pid)
	return g
}

func (g *guardProcess) signal(s syscall.Signal) { _ = g.process.Signal(s) }

func (g *guardProcess) end() {
	g.signal(syscall.SIGKILL)
	<-g.gone
}

func (g *guardProcess) hear(r *os.File, started, heard chan<- struct{}) {
	defer close(heard)
	defer r.Close()
	for in := bufio.NewScanner(r); in.Scan(); {
		word, rest, _ := strings.Cut(in.Text(), " ")
		g.mu.Lock()
		switch word {
		case "deadline":
			ns, _ := strconv.ParseInt(rest, 10, 64)
			g.deadline = time.Duration(ns)
		case "exit":
			g.exit = rest
		case "started":
			close(started)
		}
		g.mu.Unlock()
	}
}

func (g *guardProcess) lastDeadline() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.deadline
}

// says waits until the guard reports the end of its program.
func (g *guardProcess) says(want string) {
	g.t.Helper()
	realserver.Eventually(g.t, time.Minute, "the guard reports "+want, func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.exit != want {
			return fmt.Errorf("it said %q", g.exit)
		}
		return nil
	})
}

// allDead waits until nothing that the guard started is alive.
func (g *guardProcess) allDead() {
	g.t.Helper()
	realserver.Eventually(g.t, time.Minute, "all are dead", func() error {
		if left := marked(g.mark); len(left) > 0 {
			return fmt.Errorf("alive: %v", left)
		}
		return nil
	})
}

func send1(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("signal %v to %d: %v", s, pid, err)
	}
}

// writing waits until all programs have been seen alive.
func writing(t *testing.T, file string, writers int) {
	t.Helper()
	realserver.Eventually(t, time.Minute, "all programs write", func() error {
		if _, err := os.Stat(file); err != nil {
			return err
		}
		if _, n := stamps(t, file); n < writers {
			return fmt.Errorf("%d of %d", n, writers)
		}
		return nil
	})
}

// A guard that was stopped, alone or together with one of its watchers, cannot
// keep its program alive past the deadline, and says so when it continues.
func TestGuardIsStopped(t *testing.T) {
	const scattered = 3
	for _, tc := range []struct {
		name    string
		also    func(g *guardProcess) int
		grace   time.Duration // that the program has
		reports string
	}{
		{"alone", nil, faultGrace, "137 deadline <nil>"},
		{"with the inner watcher", func(g *guardProcess) int { return g.inner }, faultGrace, "137 deadline <nil>"},
		{"with the outer watcher", func(g *guardProcess) int { return g.outer }, faultGrace, "137 deadline <nil>"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "stamps")
			g := startGuard(t, faultAhead, os.Args[0], "program-scatter", file, strconv.Itoa(scattered))
			writing(t, file, scattered+1)
			g.signal(syscall.SIGSTOP)
			if tc.also != nil {
				pid := tc.also(g)
				send1(t, pid, syscall.SIGSTOP)
				// Otherwise it would stay, with nobody to kill it.
				defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
			}
			began := now()
			realserver.Eventually(t, 3*faultAhead, "the deadline passes", func() error {
				if at := g.lastDeadline(); now() < at {
					return fmt.Errorf("%v to go", at-now())
				}
				return nil
			})
			deadline := g.lastDeadline()
			if deadline < began {
				t.Fatal("the guard was not ahead of time: the test shows nothing")
			}
			checkStamps(t, file, deadline, tc.grace, scattered+1)
			g.signal(syscall.SIGCONT)
			g.says(tc.reports)
			g.allDead()
		})
	}
}

// A guard that was killed takes everything with it, also when one of its watchers
// is stopped.
func TestGuardIsKilled(t *testing.T) {
	const scattered = 3
	for _, tc := range []struct {
		name string
		stop func(g *guardProcess) int
	}{
		{"alone", nil},
		{"while the inner watcher is stopped", func(g *guardProcess) int { return g.inner }},
		{"while the outer watcher is stopped", func(g *guardProcess) int { return g.outer }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "stamps")
			ahead := faultAhead
			if tc.stop == nil {
				ahead = longAhead
			}
			g := startGuard(t, ahead, os.Args[0], "program-scatter", file, strconv.Itoa(scattered))
			writing(t, file, scattered+1)
			stopped := 0
			if tc.stop != nil {
				stopped = tc.stop(g)
				send1(t, stopped, syscall.SIGSTOP)
			}
			g.end()
			killed, deadline := now(), g.lastDeadline()
			if stopped == g.outer {
				// It cannot end while it is stopped; the programs can.
				realserver.Eventually(t, 2*faultAhead, "the deadline passes", func() error {
					if now() < deadline {
						return fmt.Errorf("%v to go", deadline-now())
					}
					return nil
				})
				send1(t, stopped, syscall.SIGCONT)
			}
			g.allDead()
			last, n := stamps(t, file)
			if n != scattered+1 {
				t.Errorf("%d programs wrote", n)
			}
			checkDead(t, file, deadline, faultGrace)
			if tc.stop == nil && last > deadline-faultGrace {
				t.Error("the programs ended because of the deadline, not at once")
			}
			t.Logf("the last sign of life was %v after the guard's end, %v before the deadline", last-killed, deadline-last)
		})
	}
}

// The end of the guard is no reason to be rough: the program is asked first.
func TestProgramIsAskedWhenGuardIsKilled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "asked")
	g := startGuard(t, longAhead, "sh", "-c", `trap 'echo yes >"$1"; exit' TERM; : >"$1"; while :; do sleep 0.02; done`, "sh", file)
	realserver.Eventually(t, time.Minute, "the program runs", func() error {
		_, err := os.Stat(file)
		return err
	})
	g.end()
	g.allDead()
	if due := g.lastDeadline() - faultGrace; now() > due {
		t.Error("the program ended because of the deadline, not at once")
	}
	if text, _ := os.ReadFile(file); string(text) != "yes\n" {
		t.Errorf("the program wrote %q", text)
	}
}

func TestWatcherIsKilled(t *testing.T) {
	const scattered = 3
	for name, which := range map[string]func(g *guardProcess) int{
		"inner": func(g *guardProcess) int { return g.inner },
		"outer": func(g *guardProcess) int { return g.outer },
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "stamps")
			g := startGuard(t, longAhead, os.Args[0], "program-scatter", file, strconv.Itoa(scattered))
			writing(t, file, scattered+1)
			send1(t, which(g), syscall.SIGKILL)
			g.says("137 watcher lost <nil>")
			g.allDead()
		})
	}
}

// A watcher that is stopped while the guard lives does no harm by itself: it is
// the deadline, or Stop, that the other one enforces. Nobody is warned of what was to end.
func TestWatcherIsStopped(t *testing.T) {
	for _, which := range []string{"inner", "outer"} {
		t.Run(which, func(t *testing.T) {
			mark := watched(t)
			var warned bytes.Buffer
			p := ready(t, mark, Config{
				Argv: shell(`trap '' TERM; setsid sleep 1000 & echo ready; while :; do sleep 0.05; done`), StopGrace: time.Second,
				Logger: slog.New(slog.NewTextHandler(&warned, &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			pid, inner := watchersOf(t, os.Getpid())
			if which == "inner" {
				pid = inner
			}
			send1(t, pid, syscall.SIGSTOP)
			p.Stop()
			ends(t, p, mark, 137, Stopped)
			if warned.Len() > 0 {
				t.Errorf("a program was stopped, and that is a warning: %s", warned.String())
			}
		})
	}
}

func TestWatcherIsAskedToEnd(t *testing.T) {
	mark := watched(t)
	p := ready(t, mark, Config{Argv: shell(`echo ready; exec sleep 1000`), StopGrace: time.Minute})
	_, inner := watchersOf(t, os.Getpid())
	send1(t, inner, syscall.SIGTERM)
	ends(t, p, mark, 143, GuardGone)
}

// When both watchers are killed the program dies, and the guard does not pretend
// to know more.
func TestBothWatchersAreKilled(t *testing.T) {
	mark := watched(t)
	p := ready(t, mark, Config{Argv: shell(`echo ready; exec sleep 1000`), StopGrace: time.Second})
	outer, inner := watchersOf(t, os.Getpid())
	// Stopped, neither can react to the end of the other.
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		send1(t, inner, s)
		send1(t, outer, s)
	}
	if _, err := p.Wait(); err == nil {
		t.Error("no error")
	}
	realserver.Eventually(t, time.Minute, "the program is dead", func() error {
		if left := marked(mark); len(left) > 0 {
			return fmt.Errorf("alive: %v", left)
		}
		return nil
	})
}

// Orders to watchers that do not read are never waited for.
func TestWatchersDoNotRead(t *testing.T) {
	mark := watched(t)
	p := ready(t, mark, Config{Argv: shell(`echo ready; exec sleep 1000`), StopGrace: time.Minute, Deadline: now() + 5*time.Minute})
	outer, inner := watchersOf(t, os.Getpid())
	send1(t, outer, syscall.SIGSTOP)
	send1(t, inner, syscall.SIGSTOP)
	began := now()
	for range 20000 {
		p.Extend(began + 10*time.Minute)
	}
	if took := now() - began; took > time.Minute {
		t.Errorf("20,000 orders took %v", took)
	}
	if err := p.Signal(syscall.SIGHUP); err == nil {
		t.Error("a signal was passed on to nobody")
	}
	p.Stop()
	send1(t, inner, syscall.SIGCONT)
	ends(t, p, mark, 143, Stopped)
}

// When the guard was killed, and nothing is alive that could still act for it, a watcher does what is left. It does
// nothing when the guard is there to do it.
func TestAfterwards(t *testing.T) {
	const scattered = 3
	for name, tc := range map[string]struct {
		end  func(*guardProcess)
		done bool
	}{
		"guard killed": {func(g *guardProcess) { g.end() }, true},
		"guard and inner watcher killed": {func(g *guardProcess) {
			g.end()
			send1(t, g.inner, syscall.SIGKILL) // the program ignores SIGTERM, so that it still waits
		}, true},
		"watcher asked to end": {func(g *guardProcess) { send1(t, g.outer, syscall.SIGTERM) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, note := filepath.Join(dir, "stamps"), filepath.Join(dir, "note")
			t.Setenv("GUARD_TEST_AFTERWARDS", note)
			g := startGuard(t, longAhead, os.Args[0], "program-scatter", file, strconv.Itoa(scattered))
			writing(t, file, scattered+1)
			tc.end(g)
			var at time.Duration
			if tc.done {
				// Not by looking for processes: one that is being replaced by another program has no environment, and
				// so no mark, for a moment.
				at = noted(t, note)
			}
			g.allDead()
			if !tc.done {
				if _, err := os.Stat(note); err == nil {
					t.Error("it was done although the guard was there")
				}
				return
			}
			if last, _ := stamps(t, file); last >= at {
				t.Errorf("the program lived %v longer", last-at)
			}
		})
	}
}

// noted waits for what is done afterwards, and returns when that was.
func noted(t *testing.T, note string) (at time.Duration) {
	t.Helper()
	realserver.Eventually(t, time.Minute, "it is done", func() error {
		text, err := os.ReadFile(note)
		if err == nil {
			var n int64
			n, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			at = time.Duration(n)
		}
		return err
	})
	return at
}

// A guard that is killed closes its files one after the other, and ends after that. Meanwhile the program may be dead, and the
// signal of the guard's end is still to come.
func TestAfterwardsOfASlowEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		lingers string // seconds that the outer watcher's pipe stays open
		before  func(*guardProcess)
	}{
		"a pipe closed late": {"0.3", func(*guardProcess) {}},
		"the end itself late": {"", func(g *guardProcess) {
			g.signal(syscall.SIGUSR1)
			realserver.Eventually(t, time.Minute, "the program has ended", func() error {
				if err := syscall.Kill(g.inner, 0); err != syscall.ESRCH {
					return fmt.Errorf("the inner watcher is alive: %v", err)
				}
				return nil
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			note := filepath.Join(t.TempDir(), "note")
			t.Setenv("GUARD_TEST_AFTERWARDS", note)
			t.Setenv("GUARD_TEST_LINGERS", tc.lingers)
			g := startGuard(t, longAhead, "sleep", "1000")
			tc.before(g)
			at := now()
			g.end()
			if done := noted(t, note); done < at {
				t.Errorf("it was done %v before the guard's end", at-done)
			}
			g.allDead()
		})
	}
}

// Once the program was reaped, its process id may be that of a stranger's group: no signal goes there.
func TestReusedProcessIDIsLeftAlone(t *testing.T) {
	watched(t)
	in, toStranger, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromStranger, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll([]*os.File{toStranger, fromStranger}) // which ends the stranger
	// Its parent ends at once: it is not below this process.
	cmd := exec.Command("sh", "-c", "setsid sh -c 'echo $$; exec cat' <&3 >&4 2>/dev/null &")
	cmd.ExtraFiles = []*os.File{in, out}
	err = cmd.Run()
	closeAll([]*os.File{in, out})
	if err != nil {
		t.Fatal(err)
	}
	if err := fromStranger.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(fromStranger)
	line, err := answers.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || descendsFrom(os.Getpid(), stranger) {
		t.Fatalf("the stranger is %q, below this process: %v", line, err)
	}
	w := &watcher{child: stranger, ended: true}
	w.signalTree(terminate)
	w.signalTree(kill)
	if _, err := toStranger.WriteString("alive\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := answers.ReadString('\n'); line != "alive\n" {
		t.Errorf("the stranger was signalled: it says %q, %v", line, err)
	}
}

func descendsFrom(root, pid int) bool {
	return slices.ContainsFunc(descendants(root), func(p process) bool { return p.pid == pid })
}

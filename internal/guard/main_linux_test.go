package guard

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// The test binary is also the watcher, the programs that are guarded, and a guard
// that can be stopped and killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "afterwards" {
		os.Exit(noteEnd())
	}
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case WatcherArg:
			os.Exit(Watch(os.Args[2:]))
		case "program-stamp":
			stamp(os.Args[2])
		case "program-detach":
			spawn("program-stamp", os.Args[2])
			os.Exit(0)
		case "program-scatter":
			n, _ := strconv.Atoi(os.Args[3])
			for range n {
				spawn("program-detach", os.Args[2])
			}
			stamp(os.Args[2])
		case "program-guard":
			os.Exit(guardProgram(os.Args[2:]))
		}
	}
	os.Exit(m.Run())
}

// stamp appends the time to a file every millisecond, and ignores SIGTERM.
func stamp(file string) {
	signal.Ignore(syscall.SIGTERM)
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		os.Exit(1)
	}
	for range time.Tick(time.Millisecond) {
		fmt.Fprintf(f, "%d %d\n", os.Getpid(), now())
	}
}

// noteEnd writes the time to the file that its input names.
func noteEnd() int {
	file, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = os.WriteFile(string(file)+".new", fmt.Appendln(nil, int64(now())), 0o600)
	}
	if err == nil {
		err = os.Rename(string(file)+".new", string(file))
	}
	if err != nil {
		return 1
	}
	return 0
}

// spawn starts this binary again, in a session of its own, and forgets it.
func spawn(args ...string) {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// guardProgram guards a program: MARK GRACE AHEAD ARGV…. It keeps the deadline
// AHEAD of now, and prints each deadline before it says so to the watchers.
func guardProgram(args []string) int {
	grace, _ := time.ParseDuration(args[1])
	ahead, _ := time.ParseDuration(args[2])
	deadline := now() + ahead
	fmt.Println("deadline", int64(deadline))
	cfg := Config{Argv: args[3:], Env: environ(args[0]), StopGrace: grace, Deadline: deadline}
	if file := os.Getenv("GUARD_TEST_AFTERWARDS"); file != "" {
		cfg.Afterwards = &Afterwards{Arg: "afterwards", Input: []byte(file)}
	}
	p, err := Start(context.Background(), cfg)
	if err != nil {
		fmt.Println("failed", err)
		return 1
	}
	if err := linger(p, args[0], os.Getenv("GUARD_TEST_LINGERS")); err != nil {
		fmt.Println("failed", err)
		return 1
	}
	hangUp := make(chan os.Signal, 1)
	signal.Notify(hangUp, syscall.SIGUSR1) // before the test can send it: else it is lost
	fmt.Println("started", p.pid)
	for tick := time.Tick(50 * time.Millisecond); ; {
		select {
		case <-tick:
			deadline = now() + ahead
			fmt.Println("deadline", int64(deadline))
			p.Extend(deadline)
		case <-hangUp:
			closeAll(p.orders)
		case <-p.Done():
			exit, err := p.Wait()
			fmt.Println("exit", exit.Code, exit.Reason, err)
			return 0
		}
	}
}

// linger starts a process that keeps the pipe to the outer watcher open, that many seconds longer than this one lives.
func linger(p *Process, mark, seconds string) error {
	if seconds == "" {
		return nil
	}
	cmd := exec.Command("sh", "-c", "cat; exec sleep "+seconds)
	cmd.Env, cmd.ExtraFiles = environ(mark), p.orders[:1]
	if _, err := cmd.StdinPipe(); err != nil {
		return err
	}
	return cmd.Start()
}

const markEnv = "GUARD_TEST_MARK="

// environ marks all processes of a test, and keeps the race detector from
// sleeping at the end of each.
func environ(mark string) []string {
	return append(os.Environ(), markEnv+mark, "GORACE=atexit_sleep_ms=0")
}

// watched makes sure, when the test ends, that nothing is left over: no process
// with the mark that it returns in its environment, no zombie, no open file.
func watched(t *testing.T) (mark string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts programs and waits for their ends, which -short leaves out")
	}
	mark = fmt.Sprintf("%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))
	r, w, err := os.Pipe() // the runtime opens its own files with the first pipe
	if err != nil {
		t.Fatal(err)
	}
	closeAll([]*os.File{r, w})
	before := openFiles(t)
	t.Cleanup(func() {
		defer killMarked(mark) // what a failed test has left
		realserver.Eventually(t, 5*time.Minute, "nothing is left over", func() error {
			if left := marked(mark); len(left) > 0 {
				return fmt.Errorf("alive: %v", left)
			}
			if z := zombies(); len(z) > 0 {
				return fmt.Errorf("zombies: %v", z)
			}
			if n := openFiles(t); n > before {
				return fmt.Errorf("%d open files, before %d", n, before)
			}
			return nil
		})
	})
	return mark
}

func killMarked(mark string) {
	for pid := range marked(mark) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// marked returns the living processes with the mark, and their command lines.
func marked(mark string) map[int]string {
	found := map[int]string{}
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environs {
		env, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(append(env, 0), []byte(markEnv+mark+"\x00")) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		found[pid] = string(bytes.ReplaceAll(line, []byte{0}, []byte{' '}))
	}
	return found
}

func zombies() []int {
	var found []int
	for _, p := range descendants(os.Getpid()) {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
		if p.parent == os.Getpid() && bytes.Contains(stat, []byte(") Z ")) {
			found = append(found, p.pid)
		}
	}
	return found
}

func openFiles(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// run starts a program with a generous deadline unless cfg has one.
func run(t *testing.T, mark string, cfg Config) *Process {
	t.Helper()
	if cfg.Deadline == 0 {
		cfg.Deadline = now() + 10*time.Minute
	}
	cfg.Env = environ(mark)
	p, err := Start(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func shell(script string) []string { return []string{"sh", "-c", script} }

// ends waits for the end and checks it. What Wait promises is checked at once:
// nothing is alive.
func ends(t *testing.T, p *Process, mark string, code int, why Reason) Exit {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(5 * time.Minute):
		t.Fatalf("not ended; alive: %v", marked(mark))
	}
	left := marked(mark)
	exit, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("alive when Wait returned: %v", left)
	}
	if exit.Code != code || exit.Reason != why {
		t.Errorf("exit is %d, %s; want %d, %s", exit.Code, exit.Reason, code, why)
	}
	return exit
}

// watchersOf returns the outer and the inner watcher of a guard.
func watchersOf(t *testing.T, guard int) (outer, inner int) {
	t.Helper()
	for _, p := range descendants(guard) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
		if !bytes.Contains(line, []byte("\x00"+WatcherArg+"\x00")) {
			continue
		}
		if p.parent == guard {
			outer = p.pid
		} else if p.parent == outer {
			inner = p.pid
		}
	}
	if outer == 0 || inner == 0 {
		t.Fatalf("watchers of %d are %d and %d", guard, outer, inner)
	}
	return outer, inner
}

// stamps returns the last time that was written, and how many processes wrote.
func stamps(t *testing.T, file string) (last time.Duration, writers int) {
	t.Helper()
	seen := map[string]bool{}
	eachStamp(t, file, func(pid string, at time.Duration) {
		seen[pid] = true
		last = max(last, at)
	})
	return last, len(seen)
}

// awake is how long of a time the machine ran: a pause in which no program wrote counts as 20 ms.
func awake(t *testing.T, file string, from, to time.Duration) (ran time.Duration) {
	t.Helper()
	const step = 20 * time.Millisecond
	all := []time.Duration{from, to}
	eachStamp(t, file, func(_ string, at time.Duration) {
		if at > from && at < to {
			all = append(all, at)
		}
	})
	slices.Sort(all)
	for i, at := range all[1:] {
		ran += min(at-all[i], step)
	}
	return ran
}

func eachStamp(t *testing.T, file string, do func(pid string, at time.Duration)) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		pid, at, _ := strings.Cut(in.Text(), " ")
		ns, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			continue // killed in the middle of a line
		}
		do(pid, time.Duration(ns))
	}
}

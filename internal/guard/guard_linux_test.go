package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

func TestExitPassesThrough(t *testing.T) {
	for _, tc := range []struct {
		script string
		code   int
	}{
		{"exit 0", 0},
		{"exit 7", 7},
		{"kill -KILL $$", 137},
		{"kill -USR1 $$", 138},
		{"kill -TERM $$", 143},
	} {
		t.Run(tc.script, func(t *testing.T) {
			mark := watched(t)
			p := run(t, mark, Config{Argv: shell(tc.script), StopGrace: time.Second})
			before := now()
			if exit := ends(t, p, mark, tc.code, Exited); exit.At <= 0 || exit.At > now() || exit.At < before-time.Minute {
				t.Errorf("ended at %v, now %v", exit.At, now())
			}
			p.Extend(now() + time.Hour)
			p.Stop()
			if err := p.Signal(syscall.SIGHUP); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("signal after the end: %v", err)
			}
		})
	}
}

func TestFilesEnvironmentAndDirectory(t *testing.T) {
	mark := watched(t)
	dir := t.TempDir()
	in, out, errs := filepath.Join(dir, "in"), filepath.Join(dir, "out"), filepath.Join(dir, "err")
	if err := os.WriteFile(in, []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := make([]*os.File, 3)
	for i, name := range []string{in, out, errs} {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = f
	}
	p := run(t, mark, Config{
		Argv:  []string{"sh", "-c", `cat; echo "$GUARD_TEST_MARK" "$1"; pwd; echo oops >&2`, "sh", "an argument"},
		Stdin: files[0], Stdout: files[1], Stderr: files[2],
	})
	closeAll(files)
	ends(t, p, mark, 0, Exited)
	got, _ := os.ReadFile(out)
	own, err := os.Getwd()
	if diff := cmp.Diff("hello\n"+mark+" an argument\n"+own+"\n", string(got)); err != nil || diff != "" {
		t.Error(diff)
	}
	if got, _ := os.ReadFile(errs); string(got) != "oops\n" {
		t.Errorf("stderr is %q", got)
	}
}

func TestProgramInheritsNothingElse(t *testing.T) {
	mark := watched(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := run(t, mark, Config{
		Argv:   shell(`cut -d' ' -f5 /proc/$$/stat; grep SigIgn /proc/$$/status; echo; exec sleep 1000`),
		Stdout: w, StopGrace: time.Minute, Afterwards: &Afterwards{Arg: "afterwards", Input: []byte("a secret")},
	})
	w.Close()
	text := make([]byte, 0, 100)
	for !bytes.HasSuffix(text, []byte("\n\n")) && err == nil {
		var n int
		_ = r.SetReadDeadline(time.Now().Add(time.Minute))
		n, err = r.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
	}
	var group int
	var ignored uint64
	if _, err := fmt.Sscanf(string(text), "%d\nSigIgn: %x", &group, &ignored); err != nil || group != p.pid || ignored&^ignoredSignals(t) != 0 {
		t.Errorf("process %d is not in a group of its own, or ignores signals that this process does not ignore: %q, %v", p.pid, text, err)
	}
	has := map[string]bool{}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.pid))
	for _, f := range files {
		target, _ := os.Readlink(f)
		has[target] = true
	}
	outer, inner := watchersOf(t, os.Getpid())
	for _, watcher := range []int{outer, inner} {
		files := []int{ordersFD, reportFD}
		if watcher == outer {
			files = append(files, task{further: layers - 1}.lastFD())
		}
		for _, fd := range files {
			target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", watcher, fd))
			if err != nil || !strings.HasPrefix(target, "pipe:") || has[target] {
				t.Errorf("file %d of a watcher is %q, %v; the program has %v", fd, target, err, has)
			}
		}
	}
	p.Stop()
	ends(t, p, mark, 143, Stopped)
}

// A reader of the program's output sees its end when the program closes it.
func TestNobodyElseKeepsTheOutputOpen(t *testing.T) {
	mark := watched(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := run(t, mark, Config{Argv: shell("echo done; exec 0<&- 1>&- 2>&-; exec sleep 1000"), Stdout: w, Stderr: w})
	w.Close()
	_ = r.SetReadDeadline(time.Now().Add(time.Minute))
	if text, err := io.ReadAll(r); err != nil || string(text) != "done\n" {
		t.Errorf("read %q, %v", text, err)
	}
	select {
	case <-p.Done():
		t.Error("the program has ended")
	default:
	}
	p.Stop()
	ends(t, p, mark, 137, Stopped)
}

func TestStartFails(t *testing.T) {
	dir := t.TempDir()
	plain, noise := filepath.Join(dir, "plain"), filepath.Join(dir, "noise")
	for name, mode := range map[string]fs.FileMode{plain: 0o600, noise: 0o700} {
		if err := os.WriteFile(name, []byte("\x00\x01"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		program string
		code    int
		is      error
	}{
		{"no-such-program-anywhere", 127, fs.ErrNotExist},
		{"/no/such/program", 127, fs.ErrNotExist},
		{plain, 126, fs.ErrPermission},
		{dir, 126, fs.ErrPermission},
		{noise, 126, syscall.ENOEXEC},
	} {
		t.Run(filepath.Base(tc.program), func(t *testing.T) {
			mark := watched(t)
			_, err := Start(context.Background(), Config{
				Argv: []string{tc.program}, Env: environ(mark), Deadline: now() + time.Minute,
			})
			var start *StartError
			if !errors.As(err, &start) || start.Code != tc.code || !errors.Is(err, tc.is) {
				t.Errorf("got %v, want code %d and %v", err, tc.code, tc.is)
			}
		})
	}
	for name, tc := range map[string]struct {
		cfg Config
		is  error
	}{
		"nothing":     {Config{Deadline: 1}, ErrConfig},
		"no deadline": {Config{Argv: shell("exit")}, ErrConfig},
		"negative":    {Config{Argv: shell("exit"), Deadline: 1, StopGrace: -1}, ErrConfig},
		"late":        {Config{Argv: shell("exit"), Deadline: now() + time.Second, StopGrace: time.Minute}, ErrTooLate},
		"past":        {Config{Argv: shell("exit"), Deadline: 1}, ErrTooLate},
	} {
		t.Run(name, func(t *testing.T) {
			watched(t)
			if _, err := Start(context.Background(), tc.cfg); !errors.Is(err, tc.is) {
				t.Errorf("got %v, want %v", err, tc.is)
			}
		})
	}
}

func TestStartIsCancelled(t *testing.T) {
	mark := watched(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	cancel(why)
	_, err := Start(ctx, Config{Argv: shell("sleep 1000"), Env: environ(mark), Deadline: now() + time.Minute})
	if !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	if left := marked(mark); len(left) > 0 {
		t.Errorf("alive: %v", left)
	}
}

func TestStop(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		grace        time.Duration
		code         int
	}{
		{"obeys", `trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done`, time.Minute, 3},
		{"dies of it", `echo ready; exec sleep 1000`, time.Minute, 143},
		{"stopped itself", `echo ready; kill -STOP $$; sleep 1000`, time.Minute, 143},
		{"ignores", `trap '' TERM; echo ready; while :; do sleep 0.05; done`, time.Second, 137},
		{"ignores and stopped itself", `trap '' TERM; echo ready; kill -STOP $$; kill -STOP $$; sleep 1000`, time.Second, 137},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mark := watched(t)
			p := ready(t, mark, Config{Argv: shell(tc.script), StopGrace: tc.grace})
			began := now()
			p.Stop()
			p.Stop()
			ends(t, p, mark, tc.code, Stopped)
			if took := now() - began; tc.code == 137 && took < tc.grace {
				t.Errorf("killed after %v, before the grace of %v", took, tc.grace)
			} else if took > 50*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestProgramLeavesOthersBehind(t *testing.T) {
	mark := watched(t)
	p := run(t, mark, Config{
		Argv: shell(`(trap '' TERM; while :; do sleep 0.05; done) & setsid sleep 1000 & exit 5`), StopGrace: time.Second,
	})
	ends(t, p, mark, 5, Exited)
}

// ready runs a program and waits until it has said so.
func ready(t *testing.T, mark string, cfg Config) *Process {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cfg.Stdout = w
	p := run(t, mark, cfg)
	w.Close()
	_ = r.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := r.Read(make([]byte, 16)); err != nil {
		t.Fatalf("not ready: %v", err)
	}
	return p
}

func TestSignalsPassOn(t *testing.T) {
	mark := watched(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	script := `n=0; for s in HUP QUIT USR1 USR2 WINCH CONT INT; do trap "echo $s" $s; done; echo go; while :; do sleep 0.02; done`
	p := run(t, mark, Config{Argv: shell(script), Stdout: w})
	w.Close()
	_ = r.SetReadDeadline(time.Now().Add(time.Minute))
	var got []string
	next := func() {
		buf := make([]byte, 16)
		n, err := r.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(bytes.TrimSpace(buf[:n])))
	}
	next()
	for _, s := range append(Forwarded(), os.Interrupt) {
		if err := p.Signal(s); err != nil {
			t.Fatal(err)
		}
		next()
	}
	if diff := cmp.Diff([]string{"go", "HUP", "QUIT", "USR1", "USR2", "WINCH", "CONT", "INT"}, got); diff != "" {
		t.Error(diff)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ends(t, p, mark, 137, Stopped)
}

func TestDeadlineIsKept(t *testing.T) {
	mark := watched(t)
	file := filepath.Join(t.TempDir(), "stamps")
	const grace = 2 * time.Second
	deadline := now() + 10*time.Second
	p := run(t, mark, Config{
		Argv: []string{os.Args[0], "program-scatter", file, "4"}, StopGrace: grace, Deadline: deadline,
	})
	exit := ends(t, p, mark, 137, Deadline)
	checkStamps(t, file, deadline, grace, 5)
	t.Logf("all were reaped %v before the deadline", deadline-exit.At)
}

// checkStamps proves that programs which ignore SIGTERM ran on into the grace, and
// not past the deadline.
func checkStamps(t *testing.T, file string, deadline, grace time.Duration, writers int) {
	t.Helper()
	last, n := stamps(t, file)
	if n != writers {
		t.Errorf("%d programs wrote, want %d: the test shows nothing", n, writers)
	}
	checkDead(t, file, deadline, grace)
	if last < deadline-grace {
		t.Errorf("dead %v before the deadline, the grace is %v", deadline-last, grace)
	}
	t.Logf("the last sign of life was %v before the deadline", deadline-last)
}

// checkDead proves that nothing wrote past the deadline. A machine that stood still while the watchers
// were to kill continues for the milliseconds that they need (doc.go): only time in which it ran counts.
func checkDead(t *testing.T, file string, deadline, grace time.Duration) {
	t.Helper()
	last, _ := stamps(t, file)
	if last < deadline {
		return
	}
	margin := outerPlan(grace).kill // that the last of the watchers has at least
	if ran := awake(t, file, deadline-margin, last); ran >= margin {
		t.Errorf("alive %v after the deadline", last-deadline)
	} else {
		t.Logf("the machine stood still: it ran for %v of the last %v before the last sign of life", ran, last-deadline+margin)
	}
}

func TestExtensionKeepsAlive(t *testing.T) {
	mark := watched(t)
	const grace, ahead = 3 * time.Second, 8 * time.Second
	p := run(t, mark, Config{Argv: shell("exec sleep 1000"), StopGrace: grace, Deadline: now() + ahead})
	began := now()
	var last time.Duration
	every := time.NewTicker(40 * time.Millisecond)
	defer every.Stop()
	for now() < began+ahead+time.Second {
		<-every.C
		last = now() + ahead
		p.Extend(last)
	}
	select {
	case <-p.Done():
		t.Fatalf("ended after %v", now()-began)
	default:
	}
	exit := ends(t, p, mark, 143, Deadline)
	if exit.At >= last || exit.At < last-grace-time.Second {
		t.Errorf("ended %v before the last deadline", last-exit.At)
	}
}

// ignoredSignals are those that this process was told to ignore before it began: a shell's
// background jobs ignore SIGINT.
func ignoredSignals(t *testing.T) (set uint64) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if n, _ := fmt.Sscanf(line, "SigIgn: %x", &set); n == 1 {
			return set
		}
	}
	t.Fatal("no SigIgn in /proc/self/status")
	return 0
}

func TestDeadlineMovedBack(t *testing.T) {
	mark := watched(t)
	p := ready(t, mark, Config{Argv: shell("trap '' TERM; echo; while :; do sleep 0.05; done"), StopGrace: time.Hour, Deadline: now() + 24*time.Hour})
	p.Extend(now())
	ends(t, p, mark, 137, Deadline)
}

func TestForkBomb(t *testing.T) {
	mark := watched(t)
	// 31 shells that ignore SIGTERM and fork for ever, half of it into new
	// sessions; a killed one is replaced by its parent.
	script := `
bomb() {
	trap '' TERM
	if [ $1 -gt 0 ]; then bomb $(($1-1)) & bomb $(($1-1)) & fi
	while :; do setsid sh -c 'sleep 0.05 & sleep 0.02' & sleep 0.02 & wait $!; done
}
echo ready
bomb 4`
	p := ready(t, mark, Config{Argv: shell(script), StopGrace: 2 * time.Second})
	realserver.Eventually(t, 5*time.Minute, "the bomb has gone off", func() error {
		if n := len(marked(mark)); n < 2+31 { // the watchers, and the shells that stay
			return errors.New("few processes yet")
		}
		return nil
	})
	p.Stop()
	ends(t, p, mark, 137, Stopped)
}

// None of a thousand processes runs past the deadline.
func TestThousandDescendants(t *testing.T) {
	mark := watched(t)
	const grace, scattered = 4 * time.Second, 3
	file := filepath.Join(t.TempDir(), "stamps")
	script := `trap '' TERM; i=0; while [ $i -lt 1000 ]; do sleep 1000 & i=$((i+1)); done; echo ready; exec "$@"`
	p := ready(t, mark, Config{
		Argv:      []string{"sh", "-c", script, "sh", os.Args[0], "program-scatter", file, strconv.Itoa(scattered)},
		StopGrace: grace,
	})
	writing(t, file, scattered+1)
	if n := len(marked(mark)); n < 1000+scattered+1 {
		t.Fatalf("%d processes", n)
	}
	deadline := now() + 8*time.Second
	p.Extend(deadline)
	exit := ends(t, p, mark, 137, Deadline)
	checkStamps(t, file, deadline, grace, scattered+1)
	// How long the kernel takes to take the dead apart is the machine's matter: see doc.go.
	t.Logf("all were reaped %v before the deadline", deadline-exit.At)
}

// Guarding leaves other children of the same process alone.
func TestOtherChildren(t *testing.T) {
	mark := watched(t)
	other := exec.Command("sh", "-c", "read x; exit 9")
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	var all []*Process
	for range 5 {
		all = append(all, run(t, mark, Config{Argv: shell("setsid sleep 1000 & sleep 1000"), StopGrace: time.Minute}))
	}
	for _, p := range all {
		p.Stop()
	}
	for _, p := range all {
		<-p.Done()
		if exit, err := p.Wait(); err != nil || exit.Code != 143 {
			t.Errorf("got %+v, %v", exit, err)
		}
	}
	in.Close()
	var exit *exec.ExitError
	if err := other.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 9 {
		t.Errorf("the other child: %v", err)
	}
}

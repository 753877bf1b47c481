package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a process of the demonstration that comes back when it ends.
type process struct {
	name string
	argv []string
	env  []string       // nil is that of the demonstration
	dir  string         // that it runs in; "" is where the demonstration does
	log  string         // file that its output goes to
	stop syscall.Signal // that ends it

	mu     sync.Mutex
	pid    int       // 0 while it does not run
	frozen bool      // it runs, but is stopped
	failed time.Time // when it ended or froze the last time
}

// keepRunning runs the process until ctx ends, again and again.
func (p *process) keepRunning(ctx context.Context, d *demo) {
	for again := false; ctx.Err() == nil; again = true {
		err := p.run(ctx, d, again)
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		p.failed, p.frozen = time.Now(), false
		p.mu.Unlock()
		d.noteFailure(p, ended, fmt.Sprintf("ended (%v); it comes back in %v%s", err, d.downTime(), p.lastOutput()))
		pause(ctx, d.downTime())
		for d.held.Load() && ctx.Err() == nil {
			pause(ctx, 20*time.Millisecond)
		}
	}
}

// run runs it once.
func (p *process) run(ctx context.Context, d *demo, again bool) error {
	runtime.LockOSThread() // the death signal in ownGroup follows this thread
	defer runtime.UnlockOSThread()
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.dir, p.env, out, out
	// Its own process group: Ctrl-C in the terminal is for the demonstration, which
	// then stops the others in order.
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error {
		defer func() { _ = cmd.Process.Signal(syscall.SIGCONT) }() // one that is frozen hears nothing else
		return cmd.Process.Signal(p.stop)
	}
	cmd.WaitDelay = stopWait
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	d.minder.watch(pid)
	defer d.minder.unwatch(pid)
	p.set(pid)
	defer p.set(0)
	d.record.start("monitor", p.name)
	defer d.record.stop("monitor", p.name)
	if again {
		d.record.mark(back, "", p.name)
		d.voice.event("process", "%s is back", p.name)
		d.killHint(p)
	}
	return cmd.Wait()
}

// lastOutput are the last that a process said that ended by itself.
func (p *process) lastOutput() string {
	f, err := os.Open(p.log)
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 400
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, end-most), io.SeekStart)
	}
	text, _ := io.ReadAll(io.LimitReader(f, most))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last := lines[len(lines)-1]; strings.HasPrefix(last, "understudy: ") {
		return ": " + strings.TrimPrefix(last, "understudy: ")
	}
	return ""
}

func (p *process) set(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = pid
}

// running returns its process id; 0 while it does not run.
func (p *process) running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// isServing reports whether it runs, and is not frozen.
func (p *process) isServing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid != 0 && !p.frozen
}

// failedAt is when it ended or froze the last time.
func (p *process) failedAt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// kill kills it, as kill -9 does in a terminal: it comes back after a while.
func (p *process) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		return fmt.Errorf("%s does not run now", p.name)
	}
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	return nil
}

// freeze stops it for a while, as a long pause would, and tells everyone.
func (p *process) freeze(d *demo) error {
	if err := p.stopFor(d.downTime(), func() { d.record.mark(back, "", p.name) }); err != nil {
		return err
	}
	d.noteFailure(p, frozen, fmt.Sprintf("is frozen; it goes on in %v", d.downTime()))
	return nil
}

func (p *process) stopFor(length time.Duration, thawed func()) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 || p.frozen {
		return fmt.Errorf("%s is not back yet", p.name)
	}
	pid := p.pid
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("freeze %s: %w", p.name, err)
	}
	p.frozen, p.failed = true, time.Now()
	time.AfterFunc(length, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.pid == pid && p.frozen { // else it was killed meanwhile
			p.frozen = false
			_ = syscall.Kill(pid, syscall.SIGCONT)
			thawed()
		}
	})
	return nil
}

// minder is a process that outlives the demonstration for a moment, whatever ends
// it: it ends what was left running, and removes the folder.
type minder struct {
	mu  sync.Mutex
	in  *os.File // its standard input, which ends with the demonstration
	cmd *exec.Cmd
}

// minderScript reads "+PID" and "-PID", and when nothing more comes, ends these process groups:
// politely first. Then it removes the folder. It is a shell's, so that it has no part in
// what the demonstration shows.
const minderScript = `trap "" INT TERM HUP
pids=" "
while read -r sign pid; do
	case $sign in
	+) pids="$pids$pid " ;;
	-) pids="${pids%% $pid *} ${pids#* $pid }" ;;
	esac
done
for pid in $pids; do kill -TERM -$pid 2>/dev/null; kill -CONT -$pid 2>/dev/null; done
n=0
while [ $n -lt 50 ]; do
	left=
	for pid in $pids; do kill -0 -$pid 2>/dev/null && left=1; done
	[ -n "$left" ] || break
	sleep 0.1
	n=$((n + 1))
done
for pid in $pids; do kill -KILL -$pid 2>/dev/null; done
rm -rf -- "$1"`

func startMinder(dir string) (*minder, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd := exec.Command("sh", "-c", minderScript, "understudy-demo-minder", dir)
	cmd.Stdin, cmd.Dir = r, filepath.Dir(dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, fmt.Errorf("what cleans up: %w", err)
	}
	return &minder{in: w, cmd: cmd}, nil
}

func (m *minder) watch(pid int)   { m.send('+', pid) }
func (m *minder) unwatch(pid int) { m.send('-', pid) }

func (m *minder) send(sign rune, pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprintf(m.in, "%c %d\n", sign, pid) // without it the death signal is left
}

// close lets it clean up what is left, and waits for it.
func (m *minder) close() {
	m.in.Close()
	_ = m.cmd.Wait()
}

//go:build linux || darwin || freebsd || openbsd

package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// watcherLog is what a watcher has reported.
type watcherLog struct{ started, failed, ended *report }

// isSilent reports that a watcher ended without a report.
func (a watcherLog) isSilent() bool { return a.failed == nil && a.ended == nil }

// endedInner reports that a watcher ended the one further in, or never started it: it failed
// itself, or had to kill because the inner one was late. Exited is what it says when the other ended by itself.
func (a watcherLog) endedInner() bool {
	return a.failed != nil || a.ended != nil && a.ended.Reason != Exited
}

// watcherReport is a report of a watcher, or nil when the watcher is gone.
type watcherReport struct {
	watcher int
	report  *report
}

// wakePause is how often a watcher that should be ending gets SIGCONT, in case it was
// stopped (SIGSTOP).
const wakePause = 100 * time.Millisecond

// collect reads the watchers' reports until they are gone, and derives the exit. gone
// is closed when the outer one was reaped.
func (p *Process) collect(cmd *exec.Cmd, reports []*os.File, gone <-chan struct{}) {
	news := make(chan watcherReport)
	for i, f := range reports {
		go readReports(i, f, news)
	}
	inner := len(reports) - 1
	accounts := make([]watcherLog, len(reports))
	hangUp := p.hangUp
	var wake *time.Ticker
	var wakeUp <-chan time.Time
	for left := len(reports); left > 0 || gone != nil; {
		ending := false
		select {
		case n := <-news:
			switch {
			case n.report == nil:
				left--
				ending = n.watcher == inner
			case n.report.Kind == reportStarted:
				accounts[n.watcher].started = n.report
				if n.watcher == inner {
					p.pid = n.report.Pid
					close(p.started)
				}
			case n.report.Kind == reportFailed:
				accounts[n.watcher].failed = n.report
			case n.report.Kind == reportEnded:
				accounts[n.watcher].ended = n.report
			}
		case <-gone:
			gone = nil
		case <-hangUp:
			hangUp, ending = nil, true
		case <-wakeUp:
			_ = cmd.Process.Signal(syscall.SIGCONT)
		}
		if ending && wake == nil {
			wake = time.NewTicker(wakePause)
			defer wake.Stop()
			wakeUp = wake.C
		}
	}
	p.finish(accounts)
}

func readReports(watcher int, f *os.File, news chan<- watcherReport) {
	defer f.Close()
	for in := json.NewDecoder(f); ; {
		r := new(report)
		if in.Decode(r) != nil {
			news <- watcherReport{watcher: watcher}
			return
		}
		news <- watcherReport{watcher: watcher, report: r}
	}
}

// finish publishes the result.
func (p *Process) finish(accounts []watcherLog) {
	p.mu.Lock()
	closeAll(p.orders)
	p.orders = nil
	asked := p.stopped
	p.mu.Unlock()
	for i, a := range accounts {
		switch {
		case !a.isSilent():
		case i > 0 && accounts[0].endedInner():
			p.log.Debug("the outer watcher ended the inner one with the program", "program", p.program, "pid", p.pid)
		default:
			p.log.Warn("a watcher died before its work was done", "program", p.program, "pid", p.pid, "watcher", i)
		}
	}
	p.exit, p.err = p.exitOf(accounts[0], accounts[len(accounts)-1], asked)
	close(p.done)
}

// exitOf derives how the program ended. asked: Stop was called.
func (p *Process) exitOf(outer, inner watcherLog, asked bool) (Exit, error) {
	for _, f := range []*report{inner.failed, outer.failed} {
		switch {
		case f == nil:
		case f.Errno != 0:
			errno := syscall.Errno(f.Errno)
			return Exit{}, &StartError{Program: p.program, Code: shellCode(errno), Err: errno}
		case f.Late:
			return Exit{}, fmt.Errorf("%w %q", ErrTooLate, p.program)
		default:
			return Exit{}, errors.New(f.Error)
		}
	}
	if inner.started == nil {
		return Exit{}, fmt.Errorf("guard: a watcher died before %q was started", p.program)
	}
	var exit Exit
	switch {
	case inner.ended != nil:
		exit = Exit{Code: inner.ended.Code, Reason: inner.ended.Reason, At: inner.ended.At - ahead()}
	case outer.ended != nil:
		exit = Exit{Code: 128 + int(syscall.SIGKILL), Reason: outer.ended.Reason, At: outer.ended.At - ahead()}
	default:
		return Exit{}, ErrEscaped
	}
	switch {
	case inner.ended == nil && exit.Reason == Exited: // it was the inner watcher that did
		exit.Reason = WatcherLost
	case exit.Reason == GuardGone && asked:
		exit.Reason = Stopped
	case exit.Reason == GuardGone && outer.ended == nil:
		exit.Reason = WatcherLost
	}
	return exit, nil
}

//go:build linux || darwin || freebsd || openbsd

package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Files of a watcher besides the standard ones, which are the program's. Those of
// the watchers further in follow in the same order.
const (
	ordersFD = 3
	reportFD = 4
	innerFD  = 5
)

// task is what a watcher's arguments say.
type task struct {
	further  int // watchers between this one and the program
	grace    time.Duration
	deadline time.Duration
	// afterwards is the argument of [Afterwards], "" if nothing is to be done. Only the outermost watcher has it, and
	// one file more.
	afterwards string
	path       string // of the program
	argv       []string
}

// lastFD is the file of what is done afterwards.
func (j task) lastFD() int { return innerFD + 2*j.further }

// filesEnd is one more than the last file that the watcher is started with.
func (j task) filesEnd() int {
	if j.afterwards != "" {
		return j.lastFD() + 1
	}
	return j.lastFD()
}

func (j task) args() []string {
	return append([]string{
		strconv.Itoa(j.further), strconv.FormatInt(int64(j.grace), 10),
		strconv.FormatInt(int64(j.deadline), 10), j.afterwards, j.path,
	}, j.argv...)
}

func parseTask(args []string) (task, error) {
	if len(args) < 6 {
		return task{}, fmt.Errorf("%d arguments are too few", len(args))
	}
	further, err1 := strconv.Atoi(args[0])
	grace, err2 := strconv.ParseInt(args[1], 10, 64)
	deadline, err3 := strconv.ParseInt(args[2], 10, 64)
	if further < 0 || further >= layers {
		err1 = fmt.Errorf("%d further watchers", further)
	}
	return task{
		further: further, grace: time.Duration(grace), deadline: time.Duration(deadline),
		afterwards: args[3], path: args[4], argv: args[5:],
	}, errors.Join(err1, err2, err3)
}

// Watch is the main function of a watcher. It returns the code to exit with, when
// nothing that it started is alive. It is called with the arguments after
// [WatcherArg], by a process that [Start] has started, and takes that process
// over: its standard files, signals and children.
func Watch(args []string) int {
	j, err := parseTask(args)
	if err == nil {
		err = setCloseOnExec(j)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "guard: %s is for internal use: %v\n", WatcherArg, err)
		return 2
	}
	reserveThreads()
	// The kernel sends a parent-death signal when the *thread* that started the child
	// ends: keep it.
	runtime.LockOSThread()
	w := &watcher{
		machine: machine{plan: innerPlan(j.grace), deadline: j.deadline},
		task:    j,
		parent:  os.Getppid(),
		reports: json.NewEncoder(os.NewFile(reportFD, "report")),
		signals: make(chan os.Signal, 1),
		died:    make(chan os.Signal, 1),
		ready:   make(chan struct{}),
	}
	if j.further > 0 {
		w.plan = outerPlan(j.grace)
	}
	// A handler, unlike an ignored signal, is not inherited by the program.
	signal.Notify(w.signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	signal.Notify(w.died, syscall.SIGCHLD)
	if err := w.start(); err != nil {
		w.report(failure(err))
		return 1
	}
	w.run()
	switch w.readOrders(); {
	case j.afterwards == "" && w.ordersClosed:
		return hungUp
	case j.afterwards == "" || !w.awaitGuardsEnd():
		return 0
	}
	// The guard is gone, and nothing is alive that could still act for it.
	signal.Ignore(syscall.SIGTERM) // which came with its end; what is pending would end the next program
	if unix.Dup2(j.lastFD(), 0) == nil {
		_ = syscall.Exec(selfPath(), []string{os.Args[0], j.afterwards}, os.Environ())
	}
	return 1
}

// hungUp is the exit code of an inner watcher whose orders have ended.
const hungUp = 3

// awaitGuardsEnd reports whether the guard is gone. It may need a moment more than the program: a process that is killed closes
// its files one after the other, while watchers run at a higher priority, and ends, with a signal to its children, after that.
// One that has only hung up is there when the deadline comes.
func (w *watcher) awaitGuardsEnd() bool {
	for w.ordersClosed || w.status.Exited() && w.status.ExitStatus() == hungUp {
		if w.ordersClosed && os.Getppid() != w.parent {
			return true
		}
		if now() >= w.deadline {
			return false
		}
		select {
		case <-w.ready:
			w.readOrders()
		case <-time.After(time.Millisecond):
		}
	}
	return false
}

// reserveThreads starts as many threads as the runtime can need. A runtime that needs one
// later and cannot have it, because the program has used up a limit on processes,
// crashes: the watcher must not.
func reserveThreads() {
	const running, spare = 2, 8
	runtime.GOMAXPROCS(running)
	var here, leave sync.WaitGroup
	here.Add(spare)
	leave.Add(1)
	for range spare {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			here.Done()
			leave.Wait()
		}()
	}
	here.Wait()
	leave.Done()
}

// setCloseOnExec makes sure that the pipes are there, and end here.
func setCloseOnExec(j task) error {
	for fd := ordersFD; fd < j.filesEnd(); fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil {
			return fmt.Errorf("file %d: %w", fd, err)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags|unix.FD_CLOEXEC); err != nil {
			return fmt.Errorf("file %d: %w", fd, err)
		}
	}
	return unix.SetNonblock(ordersFD, true)
}

// watcher is a watcher's state. One goroutine owns it.
type watcher struct {
	machine
	task         task
	parent       int // at the start
	reports      *json.Encoder
	alarm        *alarm
	signals      chan os.Signal // that ask this process to end
	died         chan os.Signal // SIGCHLD
	ready        chan struct{}  // orders or the alarm may be read
	ordersClosed bool           // the orders have ended

	child  int // the program, or the next watcher
	status unix.WaitStatus
	ended  bool // child was reaped
}

func (w *watcher) start() error {
	if err := adoptOrphans(); err != nil {
		return err
	}
	var err error
	if w.alarm, err = newAlarm(); err != nil {
		return err
	}
	if now() >= w.deadline-w.terminate {
		return ErrTooLate
	}
	files := []uintptr{0, 1, 2}
	attr := &syscall.ProcAttr{Env: os.Environ(), Sys: programAttr()}
	path, argv := w.task.path, w.task.argv
	if w.task.further > 0 {
		inner := w.task
		inner.further--
		inner.afterwards = ""
		path, argv = selfPath(), append([]string{os.Args[0], WatcherArg}, inner.args()...)
		attr.Sys = watcherAttr()
		for fd := uintptr(innerFD); fd < uintptr(innerFD+2*w.task.further); fd++ {
			files = append(files, fd)
		}
	}
	attr.Files = files
	if w.child, err = syscall.ForkExec(path, argv, attr); err != nil {
		if w.task.further > 0 {
			return fmt.Errorf("guard: starting the inner watcher: %w", err)
		}
		return &StartError{Program: w.task.path, Err: err}
	}
	w.report(report{Kind: reportStarted, Pid: w.child})
	w.closeInherited()
	return nil
}

func failure(err error) report {
	r := report{Kind: reportFailed, Error: err.Error(), Late: errors.Is(err, ErrTooLate)}
	var start *StartError
	if errno := syscall.Errno(0); errors.As(err, &start) && errors.As(err, &errno) {
		r.Errno = int(errno)
	}
	return r
}

// closeInherited closes inherited files that would keep other processes' pipes open, and
// leaves the working directory, which would stay busy.
func (w *watcher) closeInherited() {
	for fd := innerFD; fd < innerFD+2*w.task.further; fd++ {
		_ = unix.Close(fd)
	}
	// Without a null device the files stay open, which is not worth a failure.
	if null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for fd := range 3 {
			_ = unix.Dup2(null, fd)
		}
		_ = unix.Close(null)
	}
	_ = unix.Chdir("/")
}

func (w *watcher) run() {
	raisePriority()
	go w.awaitOrders()
	for {
		w.readOrders()
		reaped := w.reap()
		if reaped && !leftBehind(w.child) {
			break
		}
		happened := tick
		if w.ended {
			happened = programEnded // and left others behind
		}
		w.signalTree(w.step(now(), happened))
		wake := w.wake()
		if reaped { // no SIGCHLD will tell that the rest has ended
			wake = min(wake, now()+laterPause)
		}
		w.alarm.set(wake)
		select {
		case <-w.ready:
		case <-w.alarm.late:
		case <-w.died:
		case <-w.signals:
			w.signalTree(w.step(now(), guardGone))
		}
	}
	reason := w.reason
	if w.phase == running {
		reason = Exited
	}
	w.report(report{Kind: reportEnded, Code: exitCode(w.status), Reason: reason, At: now()})
}

// awaitOrders reports when orders can be read. run reads them itself, because it must know
// the latest deadline whenever it decides.
func (w *watcher) awaitOrders() {
	runtime.LockOSThread()
	raisePriority()
	fds := []unix.PollFd{{Fd: ordersFD, Events: unix.POLLIN}, {Fd: w.alarm.fd, Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil {
			continue // a signal came in
		}
		if fds[0].Revents&^unix.POLLIN != 0 {
			fds[0] = unix.PollFd{Fd: -1} // the end of the orders would be ready for ever
		}
		w.ready <- struct{}{}
	}
}

// readOrders applies all orders that have arrived.
func (w *watcher) readOrders() {
	// A multiple of an order's size: none is read in part.
	var buf [64 * orderSize]byte
	for !w.ordersClosed {
		n, err := unix.Read(ordersFD, buf[:])
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return
		case err != nil || n == 0:
			// The guard has died or hung up: the deadline will not move again.
			w.ordersClosed = true
			w.signalTree(w.step(now(), guardGone))
			return
		}
		for b := buf[:n]; len(b) >= orderSize; b = b[orderSize:] {
			w.applyOrder(decodeOrder(b))
		}
	}
}

func (w *watcher) applyOrder(o order) {
	switch o.kind {
	case orderExtend:
		w.extend(time.Duration(o.value))
	case orderStop:
		w.signalTree(w.step(now(), stopRequested))
	case orderSignal:
		if w.task.further == 0 && !w.ended {
			_ = unix.Kill(w.child, unix.Signal(o.value))
		}
	}
}

func (w *watcher) signalTree(a action) {
	switch a {
	case terminate:
		// Only the inner watcher sends SIGTERM; the outer one would only repeat it.
		if w.task.further == 0 {
			w.countProcesses(terminateAll(w.program()))
		}
	case kill:
		killAll(w.program())
	case nothing:
	}
}

// program is the process whose group is to be signalled, whatever else is: 0 once it was reaped, when its number may be that of
// another program's group.
func (w *watcher) program() int {
	if w.ended && !groupIsKept {
		return 0
	}
	return w.child
}

// reap records children that have ended, and reports whether none is left. Then there is
// no descendant either: a subreaper inherits orphans as children.
func (w *watcher) reap() bool {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case err == unix.ECHILD:
			return true
		case err == unix.EINTR:
		case err != nil || pid == 0:
			return false
		case pid == w.child:
			w.status, w.ended = status, true
		}
	}
}

// report sends a report to the guard, if that still exists.
func (w *watcher) report(r report) { _ = w.reports.Encode(r) }

func exitCode(s unix.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}

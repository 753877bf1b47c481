//go:build linux

package fault

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

// queueName is the queue of every [Fleet].
const queueName = "q"

// FleetConfig describes a [Fleet].
type FleetConfig struct {
	Programs Programs
	// Database that has the queue. Required.
	Database Database
	// Windows of the claims. Default 1.5 s and 4 s.
	Windows claim.Windows
	// Submit is the deadline of a submission. Default 1 s.
	Submit time.Duration
	// Target is where batches go. Required.
	Target *QueueTarget
	// Options of every worker, besides those.
	Options []string
	// Seed of the links' randomness.
	Seed uint64
}

// Fleet is a number of instances that deliver one queue.
type Fleet struct {
	FleetConfig
	tb      testing.TB
	dir     string
	links   map[string]*Proxy
	workers []*Worker
	store   store.Store
	desk    dispatch.Admin
}

// Worker is one run of an instance.
type Worker struct {
	Name string
	// Gate at which it kills or stops itself: STEP:kill|stop:N, or "".
	Gate string
	Link *Proxy // see Node

	cmd    *exec.Cmd
	log    string
	done   chan struct{}
	paused time.Time // until when; zero when it is not
}

// NewFleet makes a queue without instances. When the test ends, so do those that
// were started meanwhile, and tell what they did if the test failed.
func NewFleet(tb testing.TB, cfg FleetConfig) *Fleet {
	tb.Helper()
	if cfg.Windows == (claim.Windows{}) {
		cfg.Windows = claim.Windows{First: 1500 * time.Millisecond, Second: 4 * time.Second}
	}
	if cfg.Submit == 0 {
		cfg.Submit = time.Second
	}
	f := &Fleet{FleetConfig: cfg, tb: tb, dir: tb.TempDir(), links: map[string]*Proxy{}}
	tb.Cleanup(f.kill)
	realserver.Eventually(tb, patience, "opening the store", func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		f.store, err = open.Open(ctx, cfg.Database.URL, open.Options{})
		return err
	})
	tb.Cleanup(func() { _ = f.store.Close() })
	f.desk = f.store.(store.Queues).QueueAdmin()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f.desk.CreateQueue(ctx, queueName); err != nil {
		tb.Fatal(err)
	}
	return f
}

// Start starts an instance.
func (f *Fleet) Start(name, gate string, options ...string) *Worker {
	f.tb.Helper()
	w := &Worker{Name: name, Gate: gate, done: make(chan struct{}), log: filepath.Join(f.dir, name+".log")}
	url := f.Database.URL
	if f.Database.Addr != "" {
		if f.links[name] == nil {
			f.links[name] = NewProxy(f.tb, f.Database.Addr, f.Seed+uint64(len(f.links)))
		}
		w.Link = f.links[name]
		url = f.Database.through(f.tb, w.Link.Addr)
	}
	args := []string{"-store", url, "-name", name, "-queue", queueName, "-first", f.Windows.First.String(),
		"-second", f.Windows.Second.String(), "-submit", f.Submit.String(), "-grace", f.Submit.String()}
	args = append(append(append(args, f.Target.options()...), f.Options...), options...)
	w.cmd = exec.Command(f.Programs.QueueWorker, args...)
	w.cmd.Dir, w.cmd.Env = f.dir, append(os.Environ(), "UNDERSTUDY_FAULT="+f.dir, "UNDERSTUDY_GATE="+gate)
	start(f.tb, w.cmd, w.log, w.done)
	f.workers = append(f.workers, w)
	return w
}

// Signal sends a signal to the worker.
func (w *Worker) Signal(s syscall.Signal) { _ = w.cmd.Process.Signal(s) }

// Exited reports whether the worker has ended.
func (w *Worker) Exited() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// killed reports whether a worker that has ended was killed. Of those with a gate, nobody else kills one before it comes there.
func (w *Worker) killed() bool {
	status, ok := w.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// Pause stops the worker where it is, save in the middle of a write to a file;
// see [Node.Pause].
func (w *Worker) Pause(d time.Duration) bool {
	if !stopOutsideWrites(w.cmd.Process.Pid, w.Signal) {
		return false
	}
	w.paused = time.Now().Add(d)
	return true
}

// Resume lets it continue.
func (w *Worker) Resume() {
	w.paused = time.Time{}
	w.Signal(syscall.SIGCONT)
}

// stops reports whether the worker is stopped.
func (w *Worker) stops() bool {
	fields := statFields(fmt.Sprintf("/proc/%d/stat", w.cmd.Process.Pid))
	return len(fields) > 0 && fields[0] == "T"
}

// Stop ends the workers in order.
func (f *Fleet) Stop(within time.Duration) {
	f.tb.Helper()
	for _, w := range f.workers {
		w.Signal(syscall.SIGTERM)
		w.Signal(syscall.SIGCONT)
	}
	end := time.After(within)
	for _, w := range f.workers {
		select {
		case <-w.done:
		case <-end:
			f.tb.Errorf("%s did not stop within %v", w.Name, within)
			w.Signal(syscall.SIGKILL)
			<-w.done
		}
	}
}

func (f *Fleet) kill() {
	for _, w := range f.workers {
		w.Signal(syscall.SIGKILL)
		<-w.done
	}
	if !f.tb.Failed() {
		return
	}
	said := map[string]bool{}
	for _, w := range f.workers {
		if text, _ := os.ReadFile(w.log); !said[w.log] {
			said[w.log] = true
			lines := strings.Split(string(text), "\n")
			f.tb.Logf("%s said at last:\n%s", w.Name, strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	}
}

// Records are all batches, whole.
func (f *Fleet) Records() []dispatch.Record {
	f.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	var all []dispatch.Record
	for q := (dispatch.MessageQuery{Queue: queueName}); ; {
		page, err := f.desk.Messages(ctx, q)
		if err != nil {
			f.tb.Fatalf("listing the batches: %v", err)
		}
		for _, r := range page {
			whole, err := f.desk.Message(ctx, queueName, r.ID)
			if err != nil {
				f.tb.Fatalf("looking at %s: %v", r.ID, err)
			}
			all = append(all, whole)
			q.AfterKey, q.AfterSeq = r.Key, r.Seq
		}
		if len(page) < dispatch.MaxPage {
			return all
		}
	}
}

// Blocked are the keys that wait for a person.
func (f *Fleet) Blocked() ([]dispatch.KeyRecord, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return f.desk.Keys(ctx, dispatch.KeyQuery{Queue: queueName, Blocked: true})
}

// Add enqueues a batch.
func (f *Fleet) Add(key int, name string) {
	f.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := f.desk.Add(ctx, []dispatch.Message{f.Target.batch(key, name)}); err != nil {
		f.tb.Fatal(err)
	}
}

// Holds waits until a worker has joined and holds at least so many keys.
func (f *Fleet) Holds(name string, keys int) {
	f.tb.Helper()
	realserver.Eventually(f.tb, patience, fmt.Sprintf("%s holds %d keys", name, keys), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		queues, err := f.desk.Queues(ctx)
		if err != nil {
			return err
		}
		for _, h := range queues[0].Holders {
			if h.Instance.Name == name && h.Keys >= keys {
				return nil
			}
		}
		return fmt.Errorf("the holders are %v", queues[0].Holders)
	})
}

// Settled waits until every key has nothing to do, or waits for a person.
func (f *Fleet) Settled(within time.Duration) {
	f.tb.Helper()
	realserver.Eventually(f.tb, within, "all is delivered or shown to a person", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		queues, err := f.desk.Queues(ctx)
		if err != nil || len(queues) != 1 {
			return fmt.Errorf("%d queues: %w", len(queues), err)
		}
		if q := queues[0]; q.Keys > q.Blocked || q.Scheduled > 0 {
			return fmt.Errorf("%d keys with %d batches, of which %d are in a step, %d pending, %d delayed, %d blocked; the oldest waits for %v; %d are scheduled",
				q.Keys, q.Depth, q.InStep, q.Pending, q.Delayed, q.Blocked, q.Oldest, q.Scheduled)
		}
		return nil
	})
}

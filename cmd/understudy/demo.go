package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// demoRole is what the instances of the demonstration compete for.
const demoRole = "billing"

// demoNames are the instances of the demonstration.
var demoNames = [...]string{"anna", "ben", "clara"}

// demoReturn is how long an instance that was killed stays away.
const demoReturn = 8 * time.Second

func (a *app) demoCommand() *cobra.Command {
	var listen string
	var timing lease.Timing
	c := &cobra.Command{
		Use:   "demo",
		Short: "Three instances on this machine that compete for a role: kill one and see",
		Long: `Start three instances as processes of their own, which compete for the role
"billing", each to run a small program while it is primary. Kill the primary as
printed, and see who takes over, here and on the page. An instance that was killed
comes back after a while. Ctrl-C ends everything and leaves nothing behind: without
--store, the store is an SQLite file in a temporary directory.`,
		Example: `  understudy demo
  understudy demo --store postgres://localhost/test`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := timing.Validate(elect.DefaultStopGrace); err != nil {
				return err
			}
			d := &demo{app: a, timing: timing, listen: listen, pids: map[string]int{}}
			if !c.Flags().Changed("store") && os.Getenv("UNDERSTUDY_STORE") == "" {
				dir, err := os.MkdirTemp("", "understudy-demo-")
				if err != nil {
					return err
				}
				defer os.RemoveAll(dir)
				a.storeURL = "sqlite:" + filepath.Join(dir, "demo.db")
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGHUP) // the terminal went away
			defer stop()
			return d.run(ctx)
		},
	}
	c.Flags().StringVar(&listen, "listen", defaultListen, "`ADDRESS` of the page")
	c.Flags().DurationVar(&timing.Interval, "interval", lease.DefaultInterval, "renew every `I`")
	c.Flags().DurationVar(&timing.Timeout, "timeout", lease.DefaultTimeout, "lapse after `T`")
	return c
}

// demo runs the instances and tells what happens to them.
type demo struct {
	app    *app
	timing lease.Timing
	listen string

	mu   sync.Mutex
	pids map[string]int // of the instances, by name
}

func (d *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cfg := &serveConfig{Listen: d.listen, Name: "page"}
	cfg.Interval, cfg.Timeout = duration(d.timing.Interval), duration(d.timing.Timeout)
	if err := cfg.complete(); err != nil {
		return err
	}
	l, err := listen(cfg)
	if err != nil {
		return fmt.Errorf("%w; another address can be chosen with --listen", err)
	}
	quiet := *d.app
	quiet.log = quietLog()
	page := openDoor(l, quiet.log, "the store has not been reached yet")
	defer page.close(ctx)
	st, err := quiet.open(ctx)
	if err != nil {
		return err
	}
	defer st.Close()

	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel(nil)
	for _, name := range demoNames {
		parts.Go(func() { d.keepInstance(ctx, name) })
	}
	parts.Go(func() { d.narrate(ctx, st) })
	parts.Go(func() {
		err := quiet.withKeeper(ctx, st, cfg.instance(), func(ctx context.Context, k *lease.Keeper) error {
			return quiet.serveOn(ctx, cfg, page, st, k)
		})
		if ctx.Err() == nil {
			cancel(err)
		}
	})
	d.welcome(page.addr)
	<-ctx.Done()
	d.say("stopping everything …")
	parts.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (d *demo) welcome(addr string) {
	d.say(`Understudy: three instances, %s, compete for the role %q.

  look     http://%s
  ask      %s role who %s --store %s
  kill     the primary, with the command that is printed below: a standby takes over
           after %v, when its session has lapsed
  resign   %s role resign %s --store %s
           a standby takes over within milliseconds
  end      Ctrl-C; nothing is left behind
`, strings.Join(demoNames[:], ", "), demoRole, addr, os.Args[0], demoRole, d.app.storeURL, d.timing.Timeout,
		os.Args[0], demoRole, d.app.storeURL)
}

func (d *demo) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.app.stdout, format+"\n", args...)
}

// keepInstance runs one instance, and again some time after it ended.
func (d *demo) keepInstance(ctx context.Context, name string) {
	for ctx.Err() == nil {
		err := d.runInstance(ctx, name)
		if ctx.Err() != nil {
			return
		}
		d.say("%s  %s ended (%v); it comes back in %v", stamp(time.Now()), name, err, demoReturn)
		select {
		case <-ctx.Done():
		case <-time.After(demoReturn):
		}
	}
}

func (d *demo) runInstance(ctx context.Context, name string) error {
	runtime.LockOSThread() // the death signal in ownGroup follows this thread
	defer runtime.UnlockOSThread()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "role", "run", demoRole, "--store", d.app.storeURL, "--name", name,
		"--address", name+".example:8080", "--restart", "--log-level", "error",
		"--interval", d.timing.Interval.String(), "--timeout", d.timing.Timeout.String(),
		"--", "sh", "-c", `echo "              $UNDERSTUDY_NAME works as primary of $UNDERSTUDY_ROLE, term $UNDERSTUDY_TERM"; while :; do sleep 1; done`)
	cmd.Stdout, cmd.Stderr = d.app.stdout, d.app.stderr
	// Its own process group: Ctrl-C in the terminal is for this process, which
	// then stops the instances one by one.
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 2 * d.timing.Timeout
	if err := cmd.Start(); err != nil {
		return err
	}
	d.mu.Lock()
	d.pids[name] = cmd.Process.Pid
	d.mu.Unlock()
	return cmd.Wait()
}

// narrate tells each change of hands as it happens, and how to make the next.
func (d *demo) narrate(ctx context.Context, st store.Store) {
	feed := history.NewFeed(st, 0, elect.Space, demoRole)
	_ = follow(ctx, st, quietLog(), feed, func(events []history.Event) error {
		for _, e := range events {
			d.say("%s  %s", stamp(e.At), clean(e.String()))
			name, _, _ := strings.Cut(e.To, "/")
			if pid := d.pid(name); pid != 0 && e.From != e.To {
				d.say("              to kill %s:  kill -9 %d", name, pid)
			}
		}
		return nil
	})
}

func (d *demo) pid(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pids[name]
}

func stamp(t time.Time) string { return t.Local().Format("15:04:05.000") }

// quietLog lets only errors through: the demonstration tells the story itself.
func quietLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

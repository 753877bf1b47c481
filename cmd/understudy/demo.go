package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
)

const (
	// demoReturn is how long a process that was killed stays away at least.
	demoReturn = 8 * time.Second
	// demoStopWait is how long a process may take to stop before it is killed.
	demoStopWait = 10 * time.Second
)

type demoFlags struct {
	listen        string
	timing        lease.Timing
	auto, noShard bool
	slack         time.Duration
}

func (a *app) demoCommand() *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use:   "demo",
		Short: "Three instances on this machine with roles, queues, monitor, cache and a shard: kill them and see",
		Long: `Start three instances as processes of their own, which compete for a role, deliver batches
in order, raise an alarm when a source falls silent and fetch slow values once for all; and, where
redis-server is installed, a shard of three nodes under a writer that counts what it loses. Kill any
process as printed, and see here and on the page what the others do. What was killed comes back
after a while. Ctrl-C ends everything and leaves nothing behind: without --store, the store is an
SQLite file in a temporary directory, which is in memory where the host has room for that.

With --auto the demonstration kills by itself, act by act, measures, and ends with a table: exit 0 if
all that is promised was kept, 1 if not.`,
		Example: `  understudy demo
  understudy demo --auto
  understudy demo --store postgres://localhost/test`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.timing.Validate(demoGrace(f.timing)); err != nil {
				return err
			}
			if f.slack < 0 {
				return usagef("--slack %v: it cannot be negative", f.slack)
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGHUP) // the terminal went away
			defer stop()
			own := !c.Flags().Changed("store") && os.Getenv("UNDERSTUDY_STORE") == ""
			return a.demo(ctx, f, own)
		},
	}
	fs := c.Flags()
	fs.StringVar(&f.listen, "listen", defaultListen, "`ADDRESS` of the page; if it is taken, another one is found")
	fs.DurationVar(&f.timing.Interval, "interval", lease.DefaultInterval, "renew every `I`")
	fs.DurationVar(&f.timing.Timeout, "timeout", lease.DefaultTimeout, "lapse after `T`")
	fs.BoolVar(&f.auto, "auto", false, "kill, show and measure by itself, act by act, and end")
	fs.BoolVar(&f.noShard, "no-shard", false, "leave the shard out")
	fs.DurationVar(&f.slack, "slack", 2*time.Second, "with --auto: a busy machine may be later by so much")
	c.AddCommand(a.demoSensorCommand())
	return c
}

// demoGrace is how long the programs of roles have to stop.
func demoGrace(t lease.Timing) time.Duration { return min(elect.DefaultStopGrace, t.Timeout/5) }

// demo is what all acts share.
type demo struct {
	app   *app
	flags demoFlags
	voice *demoVoice
	dir   string // of everything that it writes
	run   string // tells this demonstration from others on the same store
	self  string // path of this program

	minder *demoMinder
	world  *demoWorld
	fleet  *demoFleet
	page   *client.Client
	url    string // of the page

	works bool              // the store keeps queues, and sources for the monitor
	peers []cachePeerConfig // of the cache; the page's is the last
	hosts []string          // addresses of the instances

	acts  []demoAct
	procs []*demoProc
}

// demoAct is a part of the demonstration.
type demoAct interface {
	// run goes on until ctx ends.
	run(ctx context.Context)
	// ended tells that a process of the demonstration has.
	ended(p *demoProc)
	// settled tells whether nothing is under way that a death has caused.
	settled(ctx context.Context) bool
	// try says what people may do, in lines.
	try() []string
	// play does it by itself: it kills, shows what happens, and tells what came of it.
	play(ctx context.Context) ([]demoOutcome, error)
}

func (a *app) demo(ctx context.Context, f demoFlags, ownStore bool) (err error) {
	d := &demo{app: a, flags: f, voice: newDemoVoice(a.stdout), run: fmt.Sprintf("%x", time.Now().UnixMilli())}
	if d.self, err = os.Executable(); err != nil {
		return err
	}
	if d.dir, err = makeDemoDir(); err != nil {
		return err
	}
	defer os.RemoveAll(d.dir)
	if ownStore {
		a.storeURL = "sqlite:" + filepath.Join(d.dir, "demo.db")
	}
	if d.minder, err = startDemoMinder(d.dir); err != nil {
		return err
	}
	defer d.minder.close()
	if d.world, err = newDemoWorld(d); err != nil {
		return err
	}
	defer d.world.close()
	return d.open(ctx)
}

func makeDemoDir() (string, error) {
	const pattern = "understudy-demo-"
	if base := demoBase(); base != "" {
		if dir, err := os.MkdirTemp(base, pattern); err == nil {
			return dir, nil
		}
	}
	return os.MkdirTemp("", pattern)
}

// ended tells everybody that a process has.
func (d *demo) ended(p *demoProc, err error, planned bool) {
	if !planned {
		d.voice.event("process", "%s ended (%v); it comes back in %v%s", p.name, err, d.away(), p.words())
	}
	for _, act := range d.acts {
		act.ended(p)
	}
}

// away is how long a process that was killed stays away: a source until its silence was told.
func (d *demo) away() time.Duration { return max(demoReturn, demoMissed*d.beats()+3*time.Second) }

// welcome says what to try.
func (d *demo) welcome(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	d.voice.say("\nTry, in another terminal; what is killed comes back after %v:\n", d.away())
	for _, act := range d.acts {
		for _, line := range act.try() {
			d.voice.say("  %s", line)
		}
	}
	d.voice.say("  end      Ctrl-C; nothing is left behind\n")
}

// command is one of this program's that asks the page's server. It does not say where the store
// is, which can be a secret.
func (d *demo) command(words ...string) string {
	return strings.Join(append(append([]string{os.Args[0]}, words...), "--server", d.url), " ")
}

// await waits until done says so, and calls it again and again. what is for the error.
func (d *demo) await(ctx context.Context, what string, done func() bool) error {
	patience := demoPatience + 4*d.flags.timing.Timeout + d.flags.slack
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %s", patience, what)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// quietLog lets only errors through: the demonstration tells the story itself.
func quietLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

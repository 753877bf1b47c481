package demo

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

const (
	// callTimeout bounds each request.
	callTimeout = 5 * time.Second
	// stopWait is how long a process may take to stop before it is killed.
	stopWait = 10 * time.Second
)

// Config says what is shown, and how fast.
type Config struct {
	// Out gets the story.
	Out io.Writer
	// Self is the path of this program, of which the instances are processes.
	Self string
	// StoreURL is an empty store for the demonstration alone. Default: an SQLite file of its own.
	StoreURL string
	// Listen is where the page is served, HOST:PORT; elsewhere if that is taken.
	Listen string
	// Timing of the instances.
	Timing lease.Timing
	// Auto takes all offers itself, act by act, and ends; NoShard leaves the shard out.
	Auto, NoShard bool
	// Slack is how much later than promised a busy machine may be, with Auto.
	Slack time.Duration
	// OpenPage makes the server of the page.
	OpenPage PageOpener
}

// Validate refuses timings that cannot be kept.
func (c Config) Validate() error {
	if err := c.Timing.Validate(stopGrace(c.Timing)); err != nil {
		return err
	}
	if c.Slack < 0 {
		return usererr.Errorf("--slack %v: it cannot be negative", c.Slack)
	}
	return nil
}

// stopGrace is how long the programs of roles have to stop.
func stopGrace(t lease.Timing) time.Duration { return min(elect.DefaultStopGrace, t.Timeout/5) }

// PageOpener listens for a page with the settings of a server, as its file would have them, on a store. What
// goes wrong later goes to log.
type PageOpener func(settings []byte, storeURL string, log *slog.Logger) (Page, error)

// Page is the server of the demonstration's page. It answers from the beginning, and has something
// to say from Serve on.
type Page interface {
	// Addr is where it listens, HOST:PORT.
	Addr() string
	// Open opens its store, for the demonstration to look into, too: who called closes it.
	Open(ctx context.Context) (store.Store, error)
	// Serve serves the store until ctx ends; acts answers what is asked of the demonstration itself, at /v1/demo.
	Serve(ctx context.Context, st store.Store, acts http.Handler) error
	// Close lets go of the address.
	Close(ctx context.Context)
}

// demo is what all acts share.
type demo struct {
	cfg    Config
	voice  *printer
	record *record
	dir    string // of everything that it writes
	run    string // tells this demonstration from others on the same store

	minder *minder
	world  *world
	fleet  *fleet
	page   *client.Client
	url    string // of the page

	works bool // the store keeps queues, and checks of the monitor
	ports ports
	peers []peer   // of the cache; the page's is the last
	hosts []string // addresses of the instances

	failures  atomic.Int64     // how many processes ended or froze, so far
	onFailure func(p *process) // is called for each of them. Set before they start
	held      atomic.Bool      // who has ended does not come back now

	acts  []act
	procs []*process
}

// act is a part of the demonstration.
type act interface {
	// part is the name of what it shows.
	part() string
	// run continues until ctx ends.
	run(ctx context.Context)
	// settled reports whether nothing is under way that a failure has caused.
	settled(ctx context.Context) bool
	// offers are what can be done now: in a terminal, on the page, and with Auto. Each has an outcome of this part.
	offers() []offer
}

// Run runs the demonstration until ctx ends, or with Auto until everything was shown. It leaves nothing behind.
func Run(ctx context.Context, c Config) (err error) {
	d := &demo{cfg: c, voice: newPrinter(c.Out), record: newRecord(), run: fmt.Sprintf("%x", time.Now().UnixMilli()), onFailure: func(*process) {}}
	if d.dir, err = makeDir(); err != nil {
		return err
	}
	defer os.RemoveAll(d.dir)
	if c.StoreURL == "" {
		d.cfg.StoreURL = "sqlite:" + filepath.Join(d.dir, "demo.db")
	}
	if d.minder, err = startMinder(d.dir); err != nil {
		return err
	}
	defer d.minder.close()
	if d.world, err = newWorld(d); err != nil {
		return err
	}
	defer d.world.close()
	return d.open(ctx)
}

func makeDir() (string, error) {
	const pattern = "understudy-demo-"
	if base := baseDir(); base != "" {
		if dir, err := os.MkdirTemp(base, pattern); err == nil {
			return dir, nil
		}
	}
	return os.MkdirTemp("", pattern)
}

// noteFailure tells everyone that a process ended or froze.
func (d *demo) noteFailure(p *process, kind, text string) {
	d.failures.Add(1)
	d.record.mark(kind, "", p.name)
	d.voice.event("process", "%s %s", p.name, text)
	d.onFailure(p)
}

// announce says what came of a promise, in the terminal and on the page.
func (d *demo) announce(o outcome) {
	o.slack = d.cfg.Slack
	d.voice.outcome(o)
	d.record.outcome(o)
}

// killHint says how a process is killed that is there now.
func (d *demo) killHint(p *process) {
	if !d.cfg.Auto {
		d.voice.hint("to kill %s: kill -9 %d", p.name, p.running())
	}
}

// downTime is how long a process that was killed stays away, or one that is frozen stays so: longer than any takeover takes.
func (d *demo) downTime() time.Duration {
	_, worstDelivery := d.windows().WorstTakeover()
	return max(d.worstRole(), worstDelivery, d.worstAlarm()) + 2*time.Second
}

// welcome says what to try.
func (d *demo) welcome(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	d.voice.printf("\nTry it on the page, or in another terminal; what is killed comes back after %v:\n", d.downTime())
	for _, act := range d.acts {
		for i, o := range act.offers() {
			part := act.part()
			if i > 0 {
				part = ""
			}
			d.voice.printf("  %-8s %s    (%s)", part, o.Command, o.promise())
		}
	}
	d.voice.printf("  end      Ctrl-C; nothing is left behind\n")
}

// command is one of this program's that asks the page's server. It does not say where the store
// is, which can be a secret.
func (d *demo) command(words ...string) string {
	return strings.Join(append(append([]string{os.Args[0]}, words...), "--server", d.url), " ")
}

// await waits until done says so, and calls it again and again. what is for the error.
func (d *demo) await(ctx context.Context, what string, done func() bool) error {
	patience := patience + 4*d.cfg.Timing.Timeout + d.cfg.Slack
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %s", patience, what)
		}
		if pause(ctx, 20*time.Millisecond); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// pause waits so long, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// quietLog lets only errors through: the demonstration tells the story itself.
func quietLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

package instance

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/guard"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// The test binary is also the watcher of the programs that it starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == guard.WatcherArg {
		os.Exit(guard.Watch(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// A session that the store refuses before its end (its clock was stepped) leaves the program the grace
// that it has until the end of trust.
func TestRefusedSessionLeavesTheGrace(t *testing.T) {
	st, dir := memory.New(nil), t.TempDir()
	k, err := lease.NewKeeper(lease.KeeperConfig{
		Store: st, Roster: st, Instance: lease.NewInstance("a", ""), Timing: lease.Timing{Interval: 200 * time.Millisecond, Timeout: 30 * time.Second},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	kept := make(chan error)
	go func() { kept <- k.Run(ctx) }()
	defer func() { stop(); <-kept }()
	program := &Program{Argv: []string{"sh", "-c", `trap "sleep 0.2; echo saved >saved; exit 0" TERM; echo >ready; while :; do sleep 0.05; done`}, StopGrace: 10 * time.Second}
	t.Chdir(dir)
	err = elect.Campaign(ctx, elect.Config{Keeper: k, Role: "r", StopGrace: program.StopGrace}, func(ctx context.Context, term elect.Term) error {
		go func() {
			for _, err := os.Stat("ready"); err != nil && ctx.Err() == nil; _, err = os.Stat("ready") {
				time.Sleep(5 * time.Millisecond)
			}
			_ = st.EndSession(ctx, term.Session.ID(), "the clock was stepped")
		}()
		return program.Run(ctx, term)
	})
	if !errors.Is(err, lease.ErrLost) {
		t.Errorf("the campaign returned %v, want ErrLost", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "saved")); err != nil {
		t.Errorf("the program was killed before it had stopped: %v", err)
	}
}

// Only a program that was alive after the end of trust is reported, and each such program is.
func TestOverrunIsWhatTheWatcherSaw(t *testing.T) {
	const deadline = time.Hour
	for name, c := range map[string]struct {
		exit  guard.Exit
		err   error
		after time.Duration // until this process hears of its end
		want  string
	}{
		"killed in time, heard late": {exit: guard.Exit{At: deadline - 1}, after: time.Second},
		"died too late":              {exit: guard.Exit{At: deadline + 1}, want: "was alive after"},
		"nobody saw it die":          {exit: guard.Exit{}, want: "was alive after"},
		"processes may have escaped": {exit: guard.Exit{At: deadline - 1}, err: guard.ErrEscaped, want: "was alive after"},
		"it runs on":                 {exit: guard.Exit{At: deadline - 1}, after: time.Hour, want: "still runs"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				g := &Program{Log: slog.New(slog.NewTextHandler(&log, nil))}
				r := &run{ended: make(chan struct{}), exit: c.exit, err: c.err}
				r.process.Store(&guard.Process{})
				r.deadline.Store(int64(deadline))
				g.current.Store(r)
				go func() { time.Sleep(c.after); close(r.ended) }()
				g.Overrun()
				if got := log.String(); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
					t.Errorf("logged %q, want %q", got, c.want)
				}
				time.Sleep(c.after)
			})
		})
	}
}

//go:build unix

// Command worker is what the nodes of package fault guard: it appends effects to
// a ledger for as long as it lives, and so does a grandchild of it that has left
// its session and ignores SIGTERM.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/fault/worker/ledger"
	"github.com/understudy-ha/understudy/lease"
)

func main() {
	path := flag.String("ledger", "", "`FILE` to append effects to")
	every := flag.Duration("every", 5*time.Millisecond, "time between two effects of a process")
	nested := flag.Bool("nested", true, "start a grandchild in a session of its own")
	depth := flag.Int("depth", 0, "internal: how far below the guarded program")
	flag.Parse()
	if err := run(*path, *every, *nested, *depth); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

const grandchild = 2

func run(path string, every time.Duration, nested bool, depth int) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	if depth == grandchild {
		stop = nil
	}
	if nested && depth < grandchild {
		if err := startBelow(depth); err != nil {
			return err
		}
	}
	if nested && depth == grandchild-1 {
		return nil // the grandchild is now nobody's but the watcher's
	}
	return act(path, every, stop)
}

// startBelow starts this program once more, in a session of its own. A child
// that ends when it has started the grandchild is waited for.
func startBelow(depth int) error {
	args := append(slices.Clone(os.Args[1:]), "-depth", strconv.Itoa(depth+1)) // the last one counts
	cmd := exec.Command(os.Args[0], args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil || depth > 0 {
		return err
	}
	return cmd.Wait()
}

// act has effects until it is told to stop.
func act(path string, every time.Duration, stop <-chan os.Signal) error {
	e, err := identity()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	clock := lease.BootClock()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		e.At = clock.Now()
		if err := ledger.Append(f, e); err != nil {
			return err
		}
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
	}
}

// identity is what the guard tells its program about its time in office.
func identity() (ledger.Effect, error) {
	term, err := strconv.ParseInt(os.Getenv("UNDERSTUDY_TERM"), 10, 64)
	if err != nil {
		return ledger.Effect{}, fmt.Errorf("UNDERSTUDY_TERM: %w", err)
	}
	who := lease.Instance{ID: os.Getenv("UNDERSTUDY_ID"), Name: os.Getenv("UNDERSTUDY_NAME")}
	role := os.Getenv("UNDERSTUDY_ROLE")
	if who.ID == "" || who.Name == "" || role == "" {
		return ledger.Effect{}, errors.New("UNDERSTUDY_ROLE, UNDERSTUDY_ID or UNDERSTUDY_NAME is not set")
	}
	return ledger.Effect{Subject: role, Holder: who.Label(), Term: term, PID: os.Getpid()}, nil
}

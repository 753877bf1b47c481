//go:build unix

// Command worker is what the nodes of package fault guard: it appends effects to
// a ledger for as long as it lives, and so does a grandchild of it that has left
// its session and ignores SIGTERM. As the program of a job it also tells which run it
// starts, and that it has come to its end.
package main

import (
	"bufio"
	"cmp"
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
	length := flag.Duration("for", 0, "end after so long; 0 is never")
	deaf := flag.Bool("deaf", false, "ignore SIGTERM")
	babble := flag.Int64("babble", 0, "bytes to write before anything else")
	flag.Parse()
	if *depth > 0 {
		*length, *babble = 0, 0
	}
	if err := run(*path, *every, *nested, *depth, *deaf, *babble, *length); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

const grandchild = 2

func run(path string, every time.Duration, nested bool, depth int, deaf bool, babble int64, length time.Duration) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	if depth == grandchild || deaf {
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
	var over <-chan time.Time
	if length > 0 {
		over = time.After(length)
	}
	return act(path, every, depth == 0, babble, stop, over)
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

// act has effects until it is told to stop, or its time is over. Only the program itself tells of its run.
func act(path string, every time.Duration, program bool, babble int64, stop <-chan os.Signal, over <-chan time.Time) error {
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
	if at := os.Getenv("UNDERSTUDY_SCHEDULED"); program && at != "" {
		e.Run = at + "/" + os.Getenv("UNDERSTUDY_ATTEMPT")
	}
	run := e.Run
	for {
		e.At = clock.Now()
		if err := ledger.Append(f, e); err != nil {
			return err
		}
		if e.Ended {
			return nil
		}
		if err := write(babble); err != nil {
			return err
		}
		e.Run, babble = "", 0
		select {
		case <-stop:
			return nil
		case <-over:
			e.Run, e.Ended = run, true
		case <-tick.C:
		}
	}
}

// write writes so many bytes: lines of 64 that are numbered.
func write(bytes int64) error {
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	for n := range bytes / 64 {
		if _, err := fmt.Fprintf(out, "%063d\n", n); err != nil {
			return err
		}
	}
	return out.Flush()
}

// identity is what the guard tells its program about its time in office.
func identity() (ledger.Effect, error) {
	term, err := strconv.ParseInt(os.Getenv("UNDERSTUDY_TERM"), 10, 64)
	if err != nil {
		return ledger.Effect{}, fmt.Errorf("UNDERSTUDY_TERM: %w", err)
	}
	who := lease.Instance{ID: os.Getenv("UNDERSTUDY_ID"), Name: os.Getenv("UNDERSTUDY_NAME")}
	subject := cmp.Or(os.Getenv("UNDERSTUDY_ROLE"), os.Getenv("UNDERSTUDY_JOB"))
	if who.ID == "" || who.Name == "" || subject == "" {
		return ledger.Effect{}, errors.New("UNDERSTUDY_ROLE or UNDERSTUDY_JOB, UNDERSTUDY_ID or UNDERSTUDY_NAME is not set")
	}
	return ledger.Effect{Subject: subject, Holder: who.Label(), Term: term, PID: os.Getpid()}, nil
}

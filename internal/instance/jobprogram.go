package instance

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/job"
)

// RunJob is the work of a job: the program, dead before trust ends. What it writes goes to the outputs of this process, and
// its end is kept with the run.
func (p *Program) RunJob(ctx context.Context, t job.Task) error {
	out, outEnded, err := tee(os.Stdout, t.Output)
	if err != nil {
		return err
	}
	errOut, errOutEnded, err := tee(os.Stderr, t.Output)
	if err != nil {
		_ = out.Close()
		return err
	}
	err = p.runUnder(ctx, t.Session, nil, nil, out, errOut,
		"UNDERSTUDY_JOB="+t.Job,
		"UNDERSTUDY_SCHEDULED="+t.Scheduled.UTC().Format(time.RFC3339Nano),
		"UNDERSTUDY_ATTEMPT="+strconv.Itoa(t.Attempt),
		"UNDERSTUDY_ID="+t.Instance.ID,
		"UNDERSTUDY_NAME="+t.Instance.Name,
		"UNDERSTUDY_TERM="+strconv.FormatInt(t.Term, 10))
	_, _ = out.Close(), errOut.Close()
	outEnded()
	errOutEnded()
	return err
}

// drainTime is how long what a program has written is waited for after its end. Only a process that got away from both
// watchers can have the pipe longer.
const drainTime = 2 * time.Second

// tee is a file of which everything that is written to it goes to two writers. Close it, and then wait with ended.
func tee(first, second io.Writer) (file *os.File, ended func(), err error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("a pipe for the program's output: %w", err)
	}
	var copying sync.WaitGroup
	copying.Go(func() {
		defer from.Close()
		_, _ = io.Copy(tolerant{first, second}, from)
	})
	return to, func() {
		_ = from.SetReadDeadline(time.Now().Add(drainTime))
		copying.Wait()
	}, nil
}

// tolerant writes to both: a terminal that is gone does not end the program, whose pipe would break.
type tolerant [2]io.Writer

// Write implements [io.Writer].
func (w tolerant) Write(p []byte) (int, error) {
	for _, to := range w {
		_, _ = to.Write(p)
	}
	return len(p), nil
}

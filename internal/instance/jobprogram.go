package instance

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/understudy-ha/understudy/job"
)

// output is an output of this process, to which the programs of several jobs may write. Its reader may read nothing for hours
// (a terminal after Ctrl-S, a log driver that is stuck), and nothing ends a write that waits for it: so only the program whose
// turn it is writes, and the others wait where they can give up.
type output struct {
	io.Writer
	turn chan struct{} // holds one
}

func newOutput(to io.Writer) output { return output{to, make(chan struct{}, 1)} }

var stdout, stderr = newOutput(os.Stdout), newOutput(os.Stderr)

// RunJob is the work of a job: the program, dead before trust ends. What it writes goes to the outputs of this process, and
// its end is kept with the run.
func (p *Program) RunJob(ctx context.Context, t job.Task) error {
	out, outEnded, err := tee(t.Output, stdout)
	if err != nil {
		return err
	}
	errOut, errOutEnded, err := tee(t.Output, stderr)
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
	t.MarkEnded()
	_, _ = out.Close(), errOut.Close()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	outEnded(drain)
	errOutEnded(drain)
	return err
}

// drainTime is how long what a program has written is waited for after its end. Only a process that got away from both
// watchers can have the pipe longer, and only a reader that has stopped reading can leave something in it longer.
const drainTime = 2 * time.Second

// tee is a file of which everything that is written to it is kept, and goes to an output of this process. Close it, and then
// wait with ended, until its context ends at the latest: a run must end whoever reads its output.
func tee(kept io.Writer, shown output) (file *os.File, ended func(context.Context), err error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("a pipe for the program's output: %w", err)
	}
	copied, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(copied)
		defer from.Close()
		_, _ = io.Copy(tolerant{kept, shown, gone}, from)
	}()
	return to, func(ctx context.Context) {
		select {
		case <-copied:
		case <-ctx.Done():
			// It ends now, or, if it is in the middle of a write to the output, when that does.
			close(gone)
			_ = from.Close()
		}
	}, nil
}

// tolerant writes to both: a terminal that is gone does not end the program, whose pipe would break.
type tolerant struct {
	kept  io.Writer
	shown output
	gone  <-chan struct{} // the run has ended, and no longer waits for its turn
}

// Write implements [io.Writer].
func (w tolerant) Write(p []byte) (int, error) {
	_, _ = w.kept.Write(p) // first: it does not wait
	select {
	case w.shown.turn <- struct{}{}:
		_, _ = w.shown.Write(p)
		<-w.shown.turn
	case <-w.gone:
	}
	return len(p), nil
}

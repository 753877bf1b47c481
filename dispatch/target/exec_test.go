package target

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/lease"
)

func writeFile(t *testing.T, path, text string, changed time.Time) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, changed, changed); err != nil {
		t.Fatal(err)
	}
}

func shell(t *testing.T, script string) *Exec {
	t.Helper()
	e, err := NewExec(ExecConfig{Argv: []string{"/bin/sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func run(t *testing.T, e *Exec) dispatch.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return e.Submit(ctx, dispatch.Assignment{
		Message: dispatch.Message{Queue: "orders", Key: "the key", ID: "id-1", ContentType: "text/plain", Payload: []byte("payload\n")},
		Seq:     7, Term: 1234, Attempt: 2,
	})
}

func TestExecTable(t *testing.T) {
	for script, want := range map[string]dispatch.Answer{
		"exit 0":                               {Outcome: dispatch.Done},
		"cat":                                  {Outcome: dispatch.Done, Detail: "payload"},
		"echo bad >&2; exit 65":                {Outcome: dispatch.InvalidMessage, Code: 65, Detail: "exit status 65: bad"},
		"exit 75":                              {Outcome: dispatch.Busy, Code: 75, Detail: "exit status 75"},
		"exit 77":                              {Outcome: dispatch.Misconfigured, Code: 77, Detail: "exit status 77"},
		"exit 78":                              {Outcome: dispatch.Misconfigured, Code: 78, Detail: "exit status 78"},
		"exit 1":                               {Outcome: dispatch.Uncertain, RequestEnded: true, Code: 1, Detail: "exit status 1"},
		"no-such-program-anywhere 2>/dev/null": {Outcome: dispatch.Uncertain, RequestEnded: true, Code: 127, Detail: "exit status 127"},
		"kill -9 $$":                           {Outcome: dispatch.Uncertain, RequestEnded: true, Detail: "signal: killed"},
		"exec <&-; exit 0":                     {Outcome: dispatch.Done},
		`test "$UNDERSTUDY_QUEUE $UNDERSTUDY_KEY $UNDERSTUDY_MESSAGE_ID $UNDERSTUDY_TERM $UNDERSTUDY_ATTEMPT $UNDERSTUDY_SEQUENCE $UNDERSTUDY_CONTENT_TYPE" = "orders the key id-1 1234 2 7 text/plain"`: {Outcome: dispatch.Done},
		`test "$UNDERSTUDY_BATCH" = id-1`: {Outcome: dispatch.Done}, // the old name of _MESSAGE_ID
	} {
		if diff := cmp.Diff(want, run(t, shell(t, script))); diff != "" {
			t.Errorf("%s: %s", script, diff)
		}
	}
}

func TestExecNotStarted(t *testing.T) {
	for _, argv := range [][]string{{"/nowhere/at/all"}, {"/etc/passwd"}} {
		e, err := NewExec(ExecConfig{Argv: argv})
		if err != nil {
			t.Fatal(err)
		}
		if got := run(t, e); got.Outcome != dispatch.Misconfigured {
			t.Errorf("%v: %+v", argv, got)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if got := shell(t, "exit 0").Submit(over, dispatch.Assignment{}); got.Outcome != dispatch.Busy {
		t.Errorf("stopped before it began: %+v", got)
	}
	for _, lacking := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE} {
		if got := startOutcome(&os.PathError{Op: "fork/exec", Path: "x", Err: lacking}); got != dispatch.Busy {
			t.Errorf("%v: %s", lacking, got)
		}
	}
}

// TestExecDeadline: the whole group dies at the deadline, or with the instance, and the reason says which it was.
func TestExecDeadline(t *testing.T) {
	for reason, cause := range map[string]error{
		"killed at its deadline":           context.DeadlineExceeded,
		"killed: the instance was stopped": errors.New("the instance was stopped"),
	} {
		pipe := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		// The grandchild holds the pipe open, until it dies.
		e := shell(t, `sleep 600 > "`+pipe+`" & echo started; wait`)
		ctx, cancel := context.WithCancelCause(t.Context())
		answer := make(chan dispatch.Answer, 1)
		go func() { answer <- e.Submit(ctx, dispatch.Assignment{}) }()
		f, err := os.Open(pipe) // until the grandchild has it open
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cancel(cause)
		if n, err := f.Read(make([]byte, 1)); n != 0 {
			t.Errorf("read %d, %v", n, err) // the end of the file: nobody holds it any more
		}
		got := <-answer
		if got.Outcome != dispatch.Uncertain || !strings.HasPrefix(got.Detail, reason) {
			t.Errorf("got %+v", got)
		}
	}
}

// TestExecLeftovers: what a program leaves running does not keep its message.
func TestExecLeftovers(t *testing.T) {
	e := shell(t, `sleep 600 & echo $!; exit 0`)
	got := run(t, e)
	if got.Outcome != dispatch.Done || got.Detail == "" {
		t.Errorf("got %+v", got)
	}
	var pid int
	for _, c := range got.Detail {
		pid = 10*pid + int(c-'0')
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("the leftover %s: %v", got.Detail, err)
	}
}

func TestExecEnvironment(t *testing.T) {
	t.Setenv("UNDERSTUDY_STORE", "postgres://u:hidden@host/")
	t.Setenv("UNDERSTUDY_TOKEN", "hidden-too")
	t.Setenv("UNDERSTUDY_OTHER", "passed on")
	if got := run(t, shell(t, `echo "$UNDERSTUDY_STORE$UNDERSTUDY_TOKEN,$UNDERSTUDY_OTHER"`)); got.Detail != ",passed on" {
		t.Errorf("got %+v", got)
	}
	e, err := NewExec(ExecConfig{Argv: []string{"/bin/sh", "-c", "pwd; echo $A$UNDERSTUDY_OTHER"}, Env: []string{"A=b"}, Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, e); got.Detail != "/ b" {
		t.Errorf("got %+v", got)
	}
}

// TestExecMany has more programs at once than there are processors, under one environment.
func TestExecMany(t *testing.T) {
	env := append(make([]string, 0, 100), "PATH="+os.Getenv("PATH")) // with room for what must not be shared
	e, err := NewExec(ExecConfig{Argv: []string{"/bin/sh", "-c", `cat > /dev/null; echo $UNDERSTUDY_MESSAGE_ID`}, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan [2]string, 50)
	for i := range cap(answers) {
		id := strings.Repeat("x", i+1)
		go func() {
			got := e.Submit(t.Context(), dispatch.Assignment{Message: dispatch.Message{ID: id, Payload: make([]byte, 1<<20)}})
			answers <- [2]string{id, got.Detail}
		}()
	}
	for range cap(answers) {
		if got := <-answers; got[0] != got[1] {
			t.Errorf("message %s said %q", got[0], got[1])
		}
	}
}

func TestExecConfig(t *testing.T) {
	for _, argv := range [][]string{nil, {""}, {"a", "b\x00c"}} {
		if _, err := NewExec(ExecConfig{Argv: argv}); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%q: %v", argv, err)
		}
	}
	e, err := NewExec(ExecConfig{Argv: []string{"/usr/bin/apply", "--password", "hidden"}})
	if err != nil || e.Name() != "exec apply" {
		t.Error(e.Name(), err)
	}
	if got := e.Semantics(); !got.Resend || got.HasStatus || !got.NeedsSecondWindow() {
		t.Errorf("%+v", got)
	}
}

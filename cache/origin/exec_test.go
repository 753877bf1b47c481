package origin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/internal/untrusted"
	"github.com/understudy-ha/understudy/lease"
)

// childEnv makes the test's own binary fetch until it is killed.
const childEnv = "UNDERSTUDY_SOURCE_CHILD"

func TestMain(m *testing.M) {
	if pipe := os.Getenv(childEnv); pipe != "" {
		s, err := Exec(script(`exec sleep 600 > "` + pipe + `"`))
		if err == nil {
			_, err = s(context.Background(), cache.Fetch{Key: "k"})
		}
		fmt.Println("ended:", err)
		return
	}
	goleak.VerifyTestMain(m)
}

func fetchExec(t *testing.T, c ExecConfig, key string) (cache.Value, error) {
	t.Helper()
	s, err := Exec(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return s(ctx, cache.Fetch{Key: key, Term: 1234})
}

func script(text string, more ...string) ExecConfig {
	return ExecConfig{Command: append([]string{"/bin/sh", "-c", text}, more...)}
}

func TestExecValues(t *testing.T) {
	for text, want := range map[string]string{
		"exit 0":                                 "",
		`printf 'a\0b\377'`:                      "a\x00b\xff",
		`echo "$UNDERSTUDY_KEY"`:                 "the key\n",
		`printf %s "$UNDERSTUDY_TERM"`:           "1234",
		"echo noise >&2; printf value":           "value",
		"cat; printf 'nothing to read'":          "nothing to read",
		"exec 2>&-; printf x":                    "x",
		"head -c 3000000 /dev/zero | tr '\\0' x": strings.Repeat("x", 3_000_000),
	} {
		v, err := fetchExec(t, script(text), "the key")
		if err != nil || string(v.Data) != want || v.TTL != 0 {
			t.Errorf("%s: %.40q (%d bytes), %v", text, v.Data, len(v.Data), err)
		}
		if cap(v.Data) > len(v.Data)+len(v.Data)/8 {
			t.Errorf("%s: %d bytes keep %d in memory", text, len(v.Data), cap(v.Data))
		}
	}
}

func TestExecFailures(t *testing.T) {
	for text, want := range map[string]string{
		"printf half; exit 1":                     "origin: sh: exit status 1",
		"echo busy >&2; exit 75":                  "origin: sh: exit status 75: busy",
		"echo 'no such' >&2; exit 66":             "origin: sh: cache: the origin has no such key: no such",
		"kill -9 $$":                              "origin: sh: signal: killed",
		"printf '\\033[31mred\\n\\a' >&2; exit 2": "origin: sh: exit status 2: [31mred",
	} {
		_, err := fetchExec(t, script(text), "k")
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
		if missing := strings.HasSuffix(text, "exit 66"); errors.Is(err, cache.ErrNotFound) != missing {
			t.Errorf("%s: not found: %t", text, !missing)
		}
	}
	_, err := fetchExec(t, script("i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1"), "k")
	if text := err.Error(); len(text) > untrusted.MaxWords+100 || !strings.HasSuffix(text, "line 2998 line 2999") {
		t.Errorf("of a long output is told %q", text)
	}
}

// TestExecArguments: a key is one argument, or a part of one, whatever it says.
func TestExecArguments(t *testing.T) {
	printArgs := []string{"/bin/sh", "-c", `for a; do printf '<%s>' "$a"; done`, "--", "{key}", "--name={key}", "{key}/{key}"}
	for _, key := range []string{"k", "two words", "a'b\"c", "$(touch /nowhere)", "`x`", "*", "\n", ";", "-rf", "--", "{key}", "\xff", "é", "%s"} {
		want := "<" + key + "><--name=" + key + "><" + key + "/" + key + ">"
		if v, err := fetchExec(t, ExecConfig{Command: printArgs}, key); err != nil || string(v.Data) != want {
			t.Errorf("%q: %q, %v", key, v.Data, err)
		}
	}
	if _, err := fetchExec(t, ExecConfig{Command: printArgs}, "a\x00b"); err == nil {
		t.Error("a key with a zero byte was given to a program")
	}
	bare := ExecConfig{Command: []string{"echo", "{key}"}}
	if _, err := fetchExec(t, bare, "-n"); err == nil || !strings.Contains(err.Error(), "write -- before {key}") {
		t.Errorf("a key that is an option: %v", err)
	}
	if v, err := fetchExec(t, bare, "n-"); err != nil || string(v.Data) != "n-\n" {
		t.Errorf("%q, %v", v.Data, err)
	}
}

func TestExecTooLong(t *testing.T) {
	c := script("trap '' PIPE; exec 2>&-; printf 0123456789; while :; do printf x; done")
	c.MaxValue = 10
	if _, err := fetchExec(t, c, "k"); !errors.Is(err, errLong) || !strings.Contains(err.Error(), "more than 10 bytes") {
		t.Errorf("an endless value: %v", err)
	}
	c = script("printf 0123456789")
	c.MaxValue = 10
	if v, err := fetchExec(t, c, "k"); err != nil || len(v.Data) != 10 {
		t.Errorf("the longest value: %q, %v", v.Data, err)
	}
}

// TestExecStopped: the whole group dies, and is reaped, when its context ends.
func TestExecStopped(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	// Both ignore what is not SIGKILL; the grandchild holds the pipe and the output open.
	s, err := Exec(script(`trap '' TERM INT HUP; sleep 600 > "` + pipe + `" & sleep 600 & echo $$ >&2; wait; wait`))
	if err != nil {
		t.Fatal(err)
	}
	lost := errors.New("somebody else may fetch")
	ctx, cancel := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() {
		_, err := s(ctx, cache.Fetch{Key: "k"})
		result <- err
	}()
	f, err := os.Open(pipe) // until the grandchild has it open
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cancel(lost)
	if n, err := f.Read(make([]byte, 1)); n != 0 {
		t.Errorf("read %d, %v", n, err) // the end of the file: nobody holds it any more
	}
	err = <-result
	if !errors.Is(err, lost) || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("got %v", err)
	}
	before, stop := context.WithCancel(t.Context())
	stop()
	if _, err := s(before, cache.Fetch{Key: "k"}); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped before it began: %v", err)
	}
}

// TestExecDiesWithUs: when the peer is killed, another may fetch at once.
func TestExecDiesWithUs(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("programs outlive this process on " + runtime.GOOS)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	peer := exec.Command(self)
	peer.Env = append(os.Environ(), childEnv+"="+pipe)
	if err := peer.Start(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(pipe) // until the program has it open
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_ = peer.Process.Kill()
	_ = peer.Wait()
	if n, err := f.Read(make([]byte, 1)); n != 0 {
		t.Errorf("read %d, %v", n, err) // the end of the file: the program is dead
	}
}

// TestExecLeftovers: what holds the output open might have gone on writing; what
// holds only the standard error does no harm.
func TestExecLeftovers(t *testing.T) {
	for redirect, whole := range map[string]bool{"2>/dev/null": false, ">/dev/null": true} {
		file := filepath.Join(t.TempDir(), "pid")
		v, err := fetchExec(t, script(`sleep 600 `+redirect+` & echo $! > "`+file+`"; printf value`), "k")
		if whole && (err != nil || string(v.Data) != "value") || !whole && (err == nil || !strings.Contains(err.Error(), "cut off")) {
			t.Errorf("%s: %q, %v", redirect, v.Data, err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pid := 0
		for _, c := range strings.TrimSpace(string(text)) {
			pid = 10*pid + int(c-'0')
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("the leftover %d: %v", pid, err)
		}
	}
}

func TestExecEnvironment(t *testing.T) {
	t.Setenv("UNDERSTUDY_STORE", "postgres://u:hidden@host/")
	t.Setenv("UNDERSTUDY_TOKEN", "hidden-too")
	t.Setenv("UNDERSTUDY_OTHER", "passed on")
	if v, err := fetchExec(t, script(`printf %s "$UNDERSTUDY_STORE$UNDERSTUDY_TOKEN,$UNDERSTUDY_OTHER"`), "k"); string(v.Data) != ",passed on" {
		t.Errorf("%q, %v", v.Data, err)
	}
	c := script("pwd; echo $A$UNDERSTUDY_OTHER")
	c.Env, c.Dir = []string{"A=b"}, "/"
	if v, err := fetchExec(t, c, "k"); string(v.Data) != "/\nb\n" {
		t.Errorf("%q, %v", v.Data, err)
	}
}

func TestExecConfig(t *testing.T) {
	for _, c := range []ExecConfig{
		{},
		{Command: []string{""}},
		{Command: []string{"echo", "a\x00"}},
		{Command: []string{"{key}"}},
		{Command: []string{"/usr/bin/{key}"}},
		{Command: []string{"echo"}, MaxValue: -1},
		{Command: []string{"no-such-program-anywhere", "{key}"}},
		{Command: []string{"/etc/passwd"}},
		{Command: []string{"sh", "-c", "echo {key}"}},
		{Command: []string{"/bin/bash", "-e", "-xc", "echo '{key}'"}},
		{Command: []string{"env", "A=b", "dash", "-c", "echo {key}"}},
		{Command: []string{"sh", "-ce", "echo {key}"}},
		{Command: []string{"sh", "-cx", "--", "echo {key}"}},
		{Command: []string{"sh", "-c", "-e", "+x", "echo {key}"}},
		{Command: []string{"bash", "-c", "--", "echo {key}"}},
		{Command: []string{"bash", "-ceuo", "pipefail", "echo {key}"}},
		{Command: []string{"bash", "--rcfile", "/dev/null", "-O", "extglob", "-ce", "echo {key}"}},
		{Command: []string{"env", "busybox", "sh", "-ce", "cat {key}/sh"}},
		{Command: []string{"env", "fish", "--command=echo {key}"}},
		{Command: []string{"su", "-s", "/bin/sh", "nobody", "-c", "echo {key}"}},
	} {
		if _, err := Exec(c); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, command := range [][]string{
		{"sh", "-c", `echo "$1"`, "--", "{key}"}, {"sh", "-c", "echo $UNDERSTUDY_KEY"}, {"sh", "-x", "/dev/null", "{key}"}, {"echo", "-c", "{key}"},
		{"sh", "-ceuo", "pipefail", `echo "$1"`, "--", "{key}"}, {"sh", "-ce", "--", `echo "$1"`, "-", "{key}"}, {"sh", "/dev/null", "-cache", "{key}"},
		{"sh", "-c", `exec "$@"`, "sh", "echo", "-c", "{key}"},
	} {
		if _, err := Exec(ExecConfig{Command: command}); err != nil {
			t.Errorf("%q: %v", command, err)
		}
	}
}

func TestSplit(t *testing.T) {
	for command, want := range map[string][]string{
		"prog {key}":                        {"prog", "{key}"},
		"  prog\t -- \n {key}  ":            {"prog", "--", "{key}"},
		`prog 'a b' "c d" e\ f`:             {"prog", "a b", "c d", "e f"},
		`prog '' ""`:                        {"prog", "", ""},
		`a'b'"c"d`:                          {"abcd"},
		`'$(x) \n "' "it's"`:                {`$(x) \n "`, "it's"},
		`"a\"b\\c\d" '\'`:                   {`a"b\c\d`, `\`},
		`\$HOME \'`:                         {"$HOME", "'"},
		"a\\\nb \"c\\\nd\"":                 {"ab", "cd"},
		"*.txt ~ ? [a] {a,b} # !":           {"*.txt", "~", "?", "[a]", "{a,b}", "#", "!"},
		`sh -c 'curl "$1" | jq .' -- {key}`: {"sh", "-c", `curl "$1" | jq .`, "--", "{key}"},
		"é \xff":                            {"é", "\xff"},
	} {
		got, err := Split(command)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v %s", command, err, diff)
		}
	}
	for _, command := range []string{
		"", "  ", `a 'b`, `a "b`, `a "b\"`, `a \`, "a | b", "a; b", "a & b", "a > b", "a < b", "$a", `"$a"`, "`a`", "\"`a`\"", "(a)", "a\x00b", "'a\x00b'",
	} {
		if got, err := Split(command); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%q: %q, %v", command, got, err)
		}
	}
}

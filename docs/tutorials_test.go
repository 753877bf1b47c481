// Package docs_test runs what the documentation says: the tutorials and the examples as they are
// printed, every link, and every command.
package docs_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// tutorialTime is what a tutorial may take on a machine that is busy; most need ten seconds.
const tutorialTime = 8 * time.Minute

// needs has the programs of a tutorial besides understudy and a shell.
var needs = map[string][]string{
	"cache.md":   {"curl"},
	"monitor.md": {"curl"},
	"shard.md":   {"redis-server", "redis-cli"},
}

// step is a block of commands, and what must be seen of it.
type step struct {
	line     int // in the page
	commands string
	prints   []string // each is in what is printed
	shows    string   // all that is printed, with ... for anything; "" if the page does not say
}

// TestRuns does what the pages say, with a program that is built once.
func TestRuns(t *testing.T) {
	t.Parallel()
	program := build(t)
	t.Run("tutorials", func(t *testing.T) { t.Parallel(); tutorials(t, filepath.Dir(program)) })
	t.Run("examples", func(t *testing.T) { t.Parallel(); examples(t, filepath.Dir(program)) })
	t.Run("commands", func(t *testing.T) { t.Parallel(); commandsExist(t, program) })
}

func tutorials(t *testing.T, bin string) {
	pages, err := filepath.Glob("tutorials/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("tutorials: %v, %v; there is one for each part", pages, err)
	}
	for _, page := range pages {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			for _, program := range needs[filepath.Base(page)] {
				realserver.Find(t, program)
			}
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			steps := stepsOf(ported(t, string(text)))
			for i, printed := range follow(t, bin, steps) {
				if err := steps[i].judge(printed); err != nil {
					t.Errorf("%s:%d: %v", page, steps[i].line, err)
				}
			}
		})
	}
}

func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "understudy")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "github.com/understudy-ha/understudy/cmd/understudy")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building understudy: %v\n%s", err, out)
	}
	return path
}

var portOf = regexp.MustCompile(`127\.0\.0\.1:(\d{4})\b`)

// ported replaces the ports of a page, wherever they stand in it, with free ones: a reader's machine
// has 7600 free, that of a test may not.
func ported(t *testing.T, text string) string {
	for _, m := range portOf.FindAllStringSubmatch(text, -1) {
		if strings.Contains(text, m[0]) {
			text = regexp.MustCompile(`\b`+m[1]+`\b`).ReplaceAllString(text, strconv.Itoa(realserver.FreePort(t)))
		}
	}
	return text
}

// stepsOf finds the blocks marked sh, and blocks marked text that follow one.
func stepsOf(text string) (steps []step) {
	var kind string
	var block []string
	fresh := false // the last thing on the page, but for empty lines, was a block of commands
	for i, line := range strings.Split(text, "\n") {
		mark, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && kind == "":
			kind, block = mark+" ", nil
		case fence:
			content := strings.Join(block, "\n")
			switch {
			case kind == "sh ":
				steps = append(steps, stepOf(i-len(block), content))
			case kind == "text " && fresh:
				steps[len(steps)-1].shows = content
			}
			fresh, kind = kind == "sh ", ""
		case kind != "":
			block = append(block, line)
		case strings.TrimSpace(line) != "":
			fresh = false
		}
	}
	return steps
}

func stepOf(line int, commands string) step {
	s := step{line: line, commands: commands}
	for c := range strings.Lines(commands) {
		if text, ok := strings.CutPrefix(c, "# prints: "); ok {
			s.prints = append(s.prints, strings.TrimSpace(text))
		}
	}
	return s
}

// judge compares what a step printed with what the page says. Rows of tables are as wide as their
// contents, so that spaces count as one.
func (s step) judge(printed string) error {
	got := plain(killed.ReplaceAllString(printed, ""))
	for _, want := range s.prints {
		if !strings.Contains(got, strings.TrimSpace(plain(want))) {
			return fmt.Errorf("%q is not in what was printed:\n%s", want, printed)
		}
	}
	if s.shows != "" && !pattern(s.shows).MatchString(got) {
		return fmt.Errorf("it does not look like the page. Printed was:\n%s", printed)
	}
	return nil
}

// killed is what the shell says of a program that was killed: when it notices, which may be anywhere in a step.
var killed = regexp.MustCompile(`(?m)^.*: line \d+: +\d+ Killed .*\n`)

var spaces = regexp.MustCompile(`[ \t]+`)

func plain(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(spaces.ReplaceAllString(line, " "))
	}
	return strings.Join(lines, "\n") + "\n"
}

// pattern matches what a page shows: a line of ... is any number of lines, ... in a line anything.
func pattern(shown string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`\A`)
	for line := range strings.Lines(plain(shown)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "..." {
			b.WriteString(`(?:.*\n)*`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`) + `\n`)
	}
	return regexp.MustCompile(b.String() + `\z`)
}

// follow runs the steps in one shell, in a folder of their own, and returns what each printed. A
// command that fails where the page does not look at its exit code fails the test.
func follow(t *testing.T, bin string, steps []step) []string {
	t.Helper()
	dir := t.TempDir()
	return followIn(t, dir, environment(bin, dir), steps)
}

func followIn(t *testing.T, dir string, env []string, steps []step) []string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "tutorial")
	if err := os.WriteFile(script, []byte(scriptOf(steps)), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), tutorialTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", script)
	cmd.Dir = dir
	cmd.Env = env
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	endAll(t, dir)
	if err != nil {
		t.Fatalf("%v:\n%s\n%s", err, out.String(), logs(dir))
	}
	return printedBy(t, steps, out.String())
}

// mark stands between what two steps print.
const mark = "@@ next step @@"

func scriptOf(steps []step) string {
	var text strings.Builder
	text.WriteString("exec 2>&1\ntrap 'echo \"@@ failed with $? @@ $BASH_COMMAND\"; exit 1' ERR\n")
	for _, s := range steps {
		text.WriteString(s.commands + "\necho; echo '" + mark + "'\n")
	}
	return text.String()
}

// printedBy is what each step printed.
func printedBy(t *testing.T, steps []step, out string) []string {
	t.Helper()
	printed := strings.Split(out, mark)
	if len(printed) != len(steps)+1 || strings.Contains(out, "@@ failed") {
		t.Fatalf("%d of %d steps were done:\n%s", len(printed)-1, len(steps), out)
	}
	return printed[:len(steps)]
}

// environment has nothing of the tester's own settings.
func environment(bin, home string) []string {
	env := []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if name != "PATH" && name != "HOME" && name != "TMPDIR" && !strings.HasPrefix(name, "UNDERSTUDY_") && !strings.HasPrefix(name, "XDG_") {
			env = append(env, v)
		}
	}
	return env
}

// endAll ends what still runs in the folder: a tutorial that broke off may have left servers behind
// that are in a group of their own.
func endAll(t *testing.T, dir string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, cwd := range proc("cwd") {
		if in, err := os.Readlink(cwd); err != nil || in != dir && !strings.HasPrefix(in, dir+"/") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(cwd))); err == nil {
			t.Logf("process %d is still there", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func proc(what string) []string {
	found, _ := filepath.Glob("/proc/[0-9]*/" + what)
	return found
}

// logs is the end of each log that the tutorial's programs wrote.
func logs(dir string) string {
	var b strings.Builder
	files, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		fmt.Fprintf(&b, "%s: … %s\n", filepath.Base(f), text[max(0, len(text)-1500):])
	}
	return b.String()
}

func TestStepsAreJudged(t *testing.T) {
	t.Parallel()
	steps := stepsOf("# t\n```sh\necho a\n# prints: a\n```\n\n```text\na  b\n...\nat ... end\n```\n```sh\nx\n```\nwords\n```text\nno\n```\n")
	if len(steps) != 2 || steps[0].line != 2 || steps[0].shows == "" || steps[1].shows != "" {
		t.Fatalf("steps: %+v", steps)
	}
	for printed, want := range map[string]bool{
		"a b\nat 5 end\n":       true,
		"a    b\n\n\nat 5 end":  true,
		"a b\nx\ny\nat the end": true,
		"a b\nat 5 ends":        false,
		"c\na b\nat 5 end":      false,
		"b\nat 5 end":           false,
		"":                      false,
	} {
		if err := steps[0].judge(printed); (err == nil) != want {
			t.Errorf("judged %q: %v, want it right: %t", printed, err, want)
		}
	}
}

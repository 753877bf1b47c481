package deploy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// program is the image's, built once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "understudy")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "understudy")
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, "./cmd/understudy")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, os.Chmod(dir, 0o755)
})

func TestMain(m *testing.M) {
	code := realserver.Main(m)
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// container is a program as an engine would start it: with a root that nobody writes to, what is mounted into it, a user without
// capabilities, its own environment, and the network of its pod.
type container struct {
	argv   []string
	env    []string
	user   string            // UID:GID
	mounts map[string]string // from the path inside to that outside
	wrap   []string          // what enters the network
	debian bool              // the root has this host's programs, as the image of a database has its own
}

// start starts it until the test ends.
func (c container) start(t *testing.T) *realserver.Process {
	t.Helper()
	root := t.TempDir()
	script := "mount --make-rprivate /\nmount --bind \"$0\" \"$0\"\n"
	bind := func(outside, inside string) {
		at := filepath.Join(root, inside)
		info, err := os.Stat(outside)
		if err != nil {
			t.Fatal(err)
		}
		if info.IsDir() {
			err = os.MkdirAll(at, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(at), 0o755); err == nil {
			err = os.WriteFile(at, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		script += fmt.Sprintf("mount --rbind %s \"$0\"%s\n", outside, inside)
	}
	bind("/proc", "/proc")
	bind("/dev", "/dev")
	if c.debian {
		bind("/usr", "/usr")
		bind("/etc/passwd", "/etc/passwd")
		for _, link := range []string{"lib", "lib64", "bin"} {
			if err := os.Symlink("usr/"+link, filepath.Join(root, link)); err != nil {
				t.Fatal(err)
			}
		}
	} else {
		path, err := program()
		if err != nil {
			t.Fatal(err)
		}
		bind(path, "/understudy")
	}
	for inside, outside := range c.mounts {
		bind(outside, inside)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	script += "mount -o remount,bind,ro \"$0\"\nroot=$0\nuser=$1\nshift\nexec chroot --userspec=\"$user\" \"$root\" \"$@\"\n"
	argv := slices.Concat(c.wrap, []string{"unshare", "--mount", "setpriv", "--no-new-privs", "sh", "-ec", script, root, c.user}, c.argv)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(c.env, "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	return realserver.Start(t, cmd)
}

// stop stops a container as an engine does: SIGTERM, and an end within the grace.
func stop(t *testing.T, p *realserver.Process, grace time.Duration) {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	realserver.Eventually(t, grace, "an end within the grace of "+grace.String(), func() error {
		if !p.Exited() {
			return fmt.Errorf("it still runs")
		}
		return nil
	})
}

// get asks an address without any connection of before.
func get(url string, headers ...string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	return res.StatusCode, string(text), err
}

func wantStatus(t *testing.T, url string, status int, headers ...string) {
	t.Helper()
	realserver.Eventually(t, time.Minute, url, func() error {
		got, text, err := get(url, headers...)
		if err == nil && got != status {
			err = fmt.Errorf("%d, want %d: %s", got, status, text)
		}
		return err
	})
}

// folder has files that anybody may read.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// owned is a folder of a user's own.
func owned(t *testing.T, user int) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chown(dir, user, user); err != nil {
		t.Fatal(err)
	}
	return dir
}

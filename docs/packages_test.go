package docs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// TestPackages makes a release twice, in two checkouts and with two caches, and wants the same bytes. Then it does with the Debian
// package what an administrator does, on a Debian of its own under systemd: install, start, use, upgrade, remove, purge.
// It needs root, Debian's mirror and ten minutes, so it is run by UNDERSTUDY_PROVE=1 (make prove) alone.
func TestPackages(t *testing.T) {
	if os.Getenv("UNDERSTUDY_PROVE") != "1" {
		t.Skip("set UNDERSTUDY_PROVE=1: it makes a release twice and installs it on a Debian of its own")
	}
	for _, program := range []string{"mmdebstrap", "systemd-nspawn", "nsenter", "ar", "rpm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: apt-get install mmdebstrap systemd-container util-linux binutils rpm", err)
		}
	}
	if os.Geteuid() != 0 {
		t.Fatal("a system is installed and started as root only")
	}
	dist := release(t)
	debs, err := filepath.Glob(filepath.Join(dist, "*_"+goarch(t)+".deb"))
	if err != nil || len(debs) != 1 {
		t.Fatalf("%v, %v", debs, err)
	}
	image(t, filepath.Join(dist, "understudy-image-"+goarch(t)+".tar"))
	system := boot(t)
	before := system.files(t)
	system.put(t, earlier(t, debs[0]), "/root/earlier.deb")
	system.put(t, debs[0], "/root/understudy.deb")

	system.run(t, "dpkg -i /root/earlier.deb")
	if got := system.run(t, "stat -c '%U %G %a' /etc/understudy/understudy.yaml"); got != "root understudy 640\n" {
		t.Errorf("the file of configuration, and its folder's secrets, are %s", got)
	}
	system.run(t, "test -f /usr/share/man/man1/understudy-job-run.1.gz && bash -n /usr/share/bash-completion/completions/understudy")
	if got := system.run(t, "systemctl is-active understudy || true; systemctl is-enabled understudy || true"); got != "inactive\ndisabled\n" {
		t.Errorf("installing it did more than that: understudy is %s", got)
	}

	system.run(t, "systemctl enable --now understudy && understudy doctor --ready --server http://127.0.0.1:7600")
	system.run(t, "echo '# by hand' >>/etc/understudy/understudy.yaml")
	pid := system.run(t, "systemctl show -P MainPID understudy")
	if out := system.run(t, "dpkg -i --force-confold /root/understudy.deb"); !strings.Contains(out, "systemctl restart understudy.service") {
		t.Errorf("the upgrade does not say who runs the version from before:\n%s", out)
	}
	if now := system.run(t, "systemctl show -P MainPID understudy; grep -c 'by hand' /etc/understudy/understudy.yaml"); now != pid+"1\n" {
		t.Errorf("the upgrade restarted the server, or changed its file: %q, before %q", now, pid)
	}
	system.run(t, "systemctl restart understudy && understudy doctor --ready --server http://127.0.0.1:7600")
	// systemd starts it again after a crash, and the state is there.
	system.run(t, "kill -9 $(systemctl show -P MainPID understudy); until understudy doctor --ready --server http://127.0.0.1:7600; do sleep 0.2; done >/dev/null 2>&1")
	system.run(t, "test -f /var/lib/understudy/understudy.db && ! su -s /bin/sh nobody -c 'cat /var/lib/understudy/understudy.db' 2>/dev/null")
	system.demo(t)
	for _, page := range []string{"elect.md", "job.md"} {
		system.tutorial(t, page)
	}

	system.run(t, "dpkg -r understudy && ! systemctl is-active --quiet understudy && test -f /etc/understudy/understudy.yaml && test -d /var/lib/understudy")
	system.run(t, "dpkg --purge understudy && rm -rf /root/*.deb /root/.local /root/.cache && ! getent passwd understudy")
	rpms, err := filepath.Glob(filepath.Join(dist, "*."+map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[goarch(t)]+".rpm"))
	if err != nil || len(rpms) != 1 {
		t.Fatalf("%v, %v", rpms, err)
	}
	system.rpm(t, rpms[0])
	for _, left := range system.files(t) {
		if _, was := slices.BinarySearch(before, left); !was {
			t.Errorf("left behind: %s", left)
		}
	}
}

// rpm installs the RPM into the machine's root as its own package manager would, updates it, and removes it. The root is Debian's, so what the
// package needs is not asked of it.
func (m *machine) rpm(t *testing.T, file string) {
	t.Helper()
	rpm := func(args ...string) string {
		return must(t, exec.Command("rpm", append([]string{"--root", m.root, "--dbpath", "/var/lib/rpm"}, args...)...))
	}
	rpm("--initdb")
	rpm("-i", "--nodeps", file)
	if out := rpm("-V", "--nodeps", "understudy"); out != "" {
		t.Errorf("what is installed is not what the package says:\n%s", out)
	}
	if got := m.run(t, "stat -c '%U %G %a' /etc/understudy/understudy.yaml /var/lib/understudy"); got != "root understudy 640\nunderstudy understudy 700\n" {
		t.Errorf("the configuration and the state are %s", got)
	}
	m.run(t, "understudy config check /etc/understudy/understudy.yaml && echo '# by hand' >>/etc/understudy/understudy.yaml")
	rpm("-U", "--nodeps", "--replacepkgs", file)
	m.run(t, "grep -q 'by hand' /etc/understudy/understudy.yaml && understudy version")
	rpm("-e", "understudy")
	m.run(t, "! test -e /usr/bin/understudy && rm -rf /etc/understudy /var/lib/understudy /var/lib/rpm && userdel understudy")
}

// release makes a release twice, and returns the folder of one.
func release(t *testing.T) string {
	t.Helper()
	var folders, sums []string
	for i := range 2 {
		checkout := filepath.Join(t.TempDir(), strings.Repeat("deeper/", i), "understudy")
		must(t, exec.Command("git", "clone", "-q", "..", checkout))
		cmd := exec.Command("make", "dist")
		cmd.Dir = checkout
		cmd.Env = append(os.Environ(), fmt.Sprint("GOCACHE=", t.TempDir()))
		must(t, cmd)
		folders = append(folders, filepath.Join(checkout, "dist"))
		text, err := os.ReadFile(filepath.Join(folders[i], "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, string(text))
	}
	if sums[0] != sums[1] {
		t.Errorf("two releases of one commit differ:\n%s\n%s", sums[0], sums[1])
	}
	return folders[0]
}

// earlier is the package with an older version in its name. Its files stay as they are packed, with their owners.
func earlier(t *testing.T, deb string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", `ar x "$0"; mkdir control; tar -C control -xzf control.tar.gz
		sed -i 's/^Version: .*/Version: 0.0.9/' control/control
		tar -C control -czf control.tar.gz .; ar rc earlier.deb debian-binary control.tar.gz data.tar.gz`, deb)
	cmd.Dir = t.TempDir()
	must(t, cmd)
	return filepath.Join(cmd.Dir, "earlier.deb")
}

// image unpacks an image as `docker load` would, and starts what is in it with its user and nothing else.
func image(t *testing.T, tarball string) {
	t.Helper()
	dir, root := t.TempDir(), t.TempDir()
	must(t, exec.Command("tar", "-C", dir, "-xf", tarball))
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	var images []struct {
		Config string
		Layers []string
	}
	if err == nil {
		err = json.Unmarshal(text, &images)
	}
	if err != nil || len(images) != 1 {
		t.Fatalf("the image's manifest: %v\n%s", err, text)
	}
	for _, layer := range images[0].Layers {
		must(t, exec.Command("tar", "-C", root, "-xzf", filepath.Join(dir, layer)))
	}
	var config struct {
		Config struct {
			User            string
			Env, Entrypoint []string
		} `json:"config"`
	}
	text, err = os.ReadFile(filepath.Join(dir, images[0].Config))
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil || len(config.Config.Entrypoint) != 1 {
		t.Fatalf("the image's configuration: %v\n%s", err, text)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("chroot", "--userspec="+config.Config.User, root, config.Config.Entrypoint[0], "store", "migrate")
	cmd.Env = config.Config.Env
	must(t, cmd)
	if made, err := filepath.Glob(filepath.Join(root, "state/understudy/*.db")); err != nil || len(made) != 1 {
		t.Errorf("the image's user made no store in /state: %v, %v", made, err)
	}
}

// machine is a Debian with nothing but its base, under a systemd of its own, without a network.
type machine struct {
	root string
	init int // the process ID of its systemd
}

func boot(t *testing.T) *machine {
	t.Helper()
	m := &machine{root: filepath.Join(t.TempDir(), "root")}
	suite := strings.TrimSpace(must(t, exec.Command("sh", "-c", ". /etc/os-release && echo $VERSION_CODENAME")))
	must(t, exec.Command("mmdebstrap", "-q", "--variant=minbase", "--include=systemd-sysv,dbus,procps", suite, m.root))
	cmd := exec.Command("systemd-nspawn", "-q", "-D", m.root, "--boot", "--register=no", "--keep-unit", "--private-network", "--console=pipe")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if m.init != 0 {
			_ = syscall.Kill(m.init, syscall.SIGKILL) // with it, everything in its namespace
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	realserver.Eventually(t, time.Minute, "a system that is up", func() error {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		if err != nil {
			return err
		}
		if m.init, err = strconv.Atoi(strings.TrimSpace(string(children))); err != nil {
			return err
		}
		return m.try(t, "systemctl is-system-running --wait | grep -qE 'running|degraded'")
	})
	return m
}

// command is one within the machine.
func (m *machine) command(argv ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(m.init), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w",
		"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}, argv...)...)
}

func (m *machine) try(t *testing.T, script string) error {
	_, err := output(t, m.command("sh", "-c", script))
	return err
}

func (m *machine) run(t *testing.T, script string) string {
	t.Helper()
	return must(t, m.command("sh", "-ec", script))
}

func (m *machine) put(t *testing.T, file, at string) {
	t.Helper()
	must(t, exec.Command("cp", file, filepath.Join(m.root, at)))
}

// files lists what is on the machine, and its users, but for what every change leaves in a log or a cache.
func (m *machine) files(t *testing.T) []string {
	t.Helper()
	list := m.run(t, `find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log -o -path /var/cache \
		-o -path /var/lib/dpkg -o -path /var/lib/systemd \) -prune -o -print; getent passwd; getent group`)
	lines := strings.Split(strings.TrimSpace(list), "\n")
	slices.Sort(lines)
	return lines
}

// demo wants the demo of the installed program on its page within a minute, and nothing left of it afterwards.
func (m *machine) demo(t *testing.T) {
	t.Helper()
	m.run(t, `understudy demo >/tmp/demo.log 2>&1 & demo=$!
		until grep -o 'http://127.0.0.1:[0-9]*' /tmp/demo.log >/tmp/page; do sleep 0.1; kill -0 $demo || { cat /tmp/demo.log; exit 1; }; done
		kill $demo; wait $demo || { cat /tmp/demo.log; exit 1; }; rm -f /tmp/demo.log /tmp/page`)
}

// tutorial does what a page says, as printed.
func (m *machine) tutorial(t *testing.T, page string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("tutorials", page))
	if err != nil {
		t.Fatal(err)
	}
	steps := stepsOf(string(text))
	const script, folder = "/root/tutorial", "/root/empty"
	if err := os.WriteFile(filepath.Join(m.root, script), []byte(scriptOf(steps)), 0o600); err != nil {
		t.Fatal(err)
	}
	out := m.run(t, "mkdir "+folder+" && cd "+folder+" && bash "+script+"; cd /; rm -rf "+folder+" "+script)
	for i, printed := range printedBy(t, steps, out) {
		if err := steps[i].judge(printed); err != nil {
			t.Errorf("%s:%d: %v", page, steps[i].line, err)
		}
	}
}

func goarch(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(must(t, exec.Command("go", "env", "GOARCH")))
}

// must returns what a command printed, and fails the test where the command failed.
func must(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := output(t, cmd)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out[max(0, len(out)-4000):])
	}
	return out
}

// output runs a command to its end, or ends it after twenty minutes with all that it has started.
func output(t *testing.T, cmd *exec.Cmd) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	bounded := exec.CommandContext(ctx, cmd.Path, cmd.Args[1:]...)
	bounded.Dir, bounded.Env, bounded.SysProcAttr = cmd.Dir, cmd.Env, &syscall.SysProcAttr{Setpgid: true}
	bounded.Cancel = func() error { return syscall.Kill(-bounded.Process.Pid, syscall.SIGKILL) }
	out, err := bounded.CombinedOutput()
	return string(out), err
}

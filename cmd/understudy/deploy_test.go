package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/usererr"
)

func deployFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// wantCommand wants a command line that the program has: its command, its flags and their values.
func wantCommand(t *testing.T, argv []string) {
	t.Helper()
	if err := parses(argv); err != nil {
		t.Errorf("understudy %s: %v", strings.Join(argv, " "), err)
	}
}

func parses(argv []string) error {
	c, err := exists(argv)
	if err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}

// exists is parses without a look at arguments, which a page may leave out.
func exists(argv []string) (*cobra.Command, error) {
	a := &app{stdout: io.Discard, stderr: io.Discard, Host: instance.Host{Log: slog.New(slog.DiscardHandler)}}
	c, rest, err := a.root().Find(argv)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 && c.HasSubCommands() && !strings.HasPrefix(rest[0], "-") {
		return nil, usererr.Errorf("%q is not a command of %q", rest[0], c.CommandPath())
	}
	return c, c.ParseFlags(rest)
}

func TestDeployedCommandsAreChecked(t *testing.T) {
	for _, argv := range []string{"serf -c FILE", "serve --colour FILE", "serve FILE", "shard agent", "doctor --ready=maybe"} {
		if parses(strings.Fields(argv)) == nil {
			t.Errorf("understudy %s was accepted", argv)
		}
	}
}

// What the units start exists; systemd reads them without complaint.
func TestSystemdUnits(t *testing.T) {
	units, err := filepath.Glob("../../deploy/systemd/*.service")
	if err != nil || len(units) != 3 {
		t.Fatalf("%v, %v", units, err)
	}
	values := strings.NewReplacer("%i", "orders", "${NODE}", "127.0.0.1:6379", "$AGENT_ARGS", "--listen 127.0.0.1:8008",
		"$ROLE_ARGS", "--stop-grace 2s", "$PROGRAM", "/bin/true", "%S", "/var/lib")
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/understudy (.*)$`)
	for _, path := range units {
		text := deployFile(t, "systemd/"+filepath.Base(path))
		line := start.FindStringSubmatch(text)
		if line == nil {
			t.Errorf("%s starts nothing", path)
			continue
		}
		argv := strings.Fields(values.Replace(line[1]))
		wantCommand(t, argv)
		if c, err := exists(argv); err == nil && c.Name() == "agent" {
			if handsOver, err := c.Flags().GetBool("hand-over"); !handsOver {
				t.Errorf("%s: its stop leaves a primary without an agent: %v", path, err)
			}
		}
		if !strings.Contains(text, "\nUser=understudy\n") && strings.Contains(text, "-file /etc/understudy/") {
			t.Errorf("%s: its user cannot read files in /etc/understudy", path)
		}
		// The end of the main process, or of one program, must not be that of everything that runs beside it.
		for _, want := range []string{"NoNewPrivileges=yes", "ProtectSystem=strict", "StateDirectory=", "KillMode=process\n", "OOMPolicy=continue\n"} {
			if !strings.Contains(text, "\n"+want) {
				t.Errorf("%s has no %s", path, want)
			}
		}
		if notifies := strings.Contains(text, "\nType=notify\n"); notifies != strings.Contains(text, "\nWatchdogSec=") {
			t.Errorf("%s: a watchdog and Type=notify go together", path)
		}
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	if out := verify(t, units, func(s string) string { return s }); out != "" {
		t.Errorf("systemd-analyze verify:\n%s", out)
	}
	if out := verify(t, units, func(s string) string { return strings.Replace(s, "NoNewPrivileges", "NoNewPrivilege", 1) }); out == "" {
		t.Error("a misspelled setting was not found")
	}
}

// verify has systemd read copies of the units that start what is there, under a user that is there.
func verify(t *testing.T, units []string, change func(string) string) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"verify", "--man=no"}
	for _, path := range units {
		text := change(deployFile(t, "systemd/"+filepath.Base(path)))
		text = strings.NewReplacer("ExecStart=/usr/bin/understudy", "ExecStart=/bin/true", "User=redis", "User=root", "Group=redis", "Group=root", "User=understudy", "User=root").Replace(text)
		name := strings.Replace(filepath.Base(path), "@.", "@orders.", 1)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, filepath.Join(dir, name))
	}
	out, err := exec.Command("systemd-analyze", args...).CombinedOutput()
	if err != nil {
		return string(out) + err.Error()
	}
	return string(out)
}

// The file that the packages install starts a server, as it is and with every example in it.
func TestPackagedConfiguration(t *testing.T) {
	text := deployFile(t, "packages/understudy.yaml")
	path, token := filepath.Join(t.TempDir(), "understudy.yaml"), filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("s3cret", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	text = strings.ReplaceAll(text, "/etc/understudy/token", token)
	for _, text := range []string{text, regexp.MustCompile(`(?m)^#(\S| +\S+:| +- )`).ReplaceAllString(text, "$1")} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var errs strings.Builder
		if code := run(t.Context(), []string{"config", "check", path}, io.Discard, &errs); code != 0 {
			t.Errorf("%s\n%s", errs.String(), text)
		}
	}
}

// The changelog begins with the release that the program says it is.
func TestReleaseIsInTheChangelog(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$`).FindSubmatch(text)
	if newest == nil || string(newest[1]) != release {
		t.Errorf("the changelog's newest release is %s, the program's %s", newest, release)
	}
}

// A release is itself where its tag was built, and names the commit where something else was.
func TestVersionNamesTheCommit(t *testing.T) {
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-11-26T08:00:00Z"}, {Key: "vcs.modified", Value: "true"}}
	for _, c := range []struct {
		main     string
		settings []debug.BuildSetting
		want     string
	}{
		{"(devel)", nil, release},
		{"v" + release, vcs[:2], release},
		{"v0.0.0-20261126080000-0123456789ab", vcs[:2], release + "+0123456789ab"},
		{"v0.0.0-20261126080000-0123456789ab+dirty", vcs, release + "+0123456789ab.changed"},
	} {
		got := describe(&debug.BuildInfo{GoVersion: "go1.26", Main: debug.Module{Version: c.main}, Settings: c.settings})
		if got.Version != c.want || got.Go != "go1.26" {
			t.Errorf("%s: %+v, want %s", c.main, got, c.want)
		}
	}
}

// The image starts, and is asked for its health by, commands that exist.
func TestDockerfile(t *testing.T) {
	text := deployFile(t, "docker/Dockerfile")
	exe := regexp.MustCompile(`(?m)CMD (\[.*\])$`)
	found := exe.FindAllStringSubmatch(text, -1)
	if len(found) != 2 || !strings.Contains(text, "\nFROM scratch\n") || !strings.Contains(text, "\nUSER 65532:65532\n") || !strings.Contains(text, "ca-certificates.crt") ||
		!strings.Contains(text, "\nCOPY --from=build /out /\n") {
		t.Fatalf("not the image that it should be: %d commands", len(found))
	}
	for _, m := range found {
		var argv []string
		if err := json.Unmarshal([]byte(m[1]), &argv); err != nil {
			t.Fatal(err)
		}
		if argv[0] == "/understudy" {
			argv = argv[1:]
		}
		wantCommand(t, argv)
	}
}

// The files of secrets that the compose file has one write are in no layer of the image.
func TestDockerignore(t *testing.T) {
	ignored := strings.Fields(deployFile(t, "docker/Dockerfile.dockerignore"))
	written := regexp.MustCompile(`>>? ?([a-z./]+)`).FindAllStringSubmatch(deployFile(t, "docker/compose.yaml")[:700], -1)
	if len(written) != 2 {
		t.Fatalf("the compose file has %d files written, want 2", len(written))
	}
	for _, m := range written {
		if !slices.Contains(ignored, "**/"+m[1]) {
			t.Errorf("%s is not ignored: %q", m[1], ignored)
		}
	}
}

type composeFile struct {
	Services map[string]struct {
		Image   string   `yaml:"image"`
		Command []string `yaml:"command"`
		Network string   `yaml:"network_mode"`
		Pid     string   `yaml:"pid"`
		Secrets []string `yaml:"secrets"`
		Volumes []string `yaml:"volumes"`
		Configs []struct {
			Source, Target string
		} `yaml:"configs"`
	} `yaml:"services"`
	Configs map[string]struct {
		Content string `yaml:"content"`
	} `yaml:"configs"`
	Secrets map[string]any `yaml:"secrets"`
	Volumes map[string]any `yaml:"volumes"`
}

// The compose file names what exists: commands, flags, services, volumes; and its configuration is one.
func TestCompose(t *testing.T) {
	var c composeFile
	if err := yaml.Unmarshal([]byte(deployFile(t, "docker/compose.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for name, s := range c.Services {
		kinds[strings.SplitN(name, "-", 2)[0]]++
		if s.Image == "understudy:"+release {
			wantCommand(t, s.Command)
		}
		for _, of := range []string{s.Network, s.Pid} {
			if service, is := strings.CutPrefix(of, "service:"); is {
				if _, ok := c.Services[service]; !ok {
					t.Errorf("%s: no service %q", name, service)
				}
			}
		}
		for _, secret := range s.Secrets {
			if _, ok := c.Secrets[secret]; !ok {
				t.Errorf("%s: no secret %q", name, secret)
			}
		}
		for _, v := range s.Volumes {
			if _, ok := c.Volumes[strings.SplitN(v, ":", 2)[0]]; !ok {
				t.Errorf("%s: no volume %q", name, v)
			}
		}
		for _, from := range s.Configs {
			if c.Configs[from.Source].Content == "" {
				t.Errorf("%s: no config %q", name, from.Source)
			}
		}
	}
	if kinds["server"] != 2 || kinds["redis"] != 3 || kinds["agent"] != 3 || kinds["postgres"] != 1 || len(c.Services) != 9 {
		t.Errorf("the services are %v", slices.Sorted(maps.Keys(c.Services)))
	}
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	text := strings.ReplaceAll(c.Configs["server"].Content, "/run/secrets/token", token)
	for path, content := range map[string]string{token: "0123456789abcdef0123", filepath.Join(dir, "understudy.yaml"): text} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := settings.Read(filepath.Join(dir, "understudy.yaml")); err != nil {
		t.Errorf("its configuration: %v", err)
	}
}

// Commands that the pages for operators print exist, with their flags.
func TestOperatorsCommands(t *testing.T) {
	printed := regexp.MustCompile("(?m)`(understudy [^`\\n]+)`|^(understudy [^\\n]+)$")
	n := 0
	for _, page := range []string{"operations.md", "runbook.md", "backup.md", "capacity.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range printed.FindAllStringSubmatch(string(text), -1) {
			line, _, _ := strings.Cut(m[1]+m[2], " #")
			line = strings.NewReplacer("…", "X", `"$URL"`, "URL").Replace(line)
			n++
			if _, err := exists(strings.Fields(line)[1:]); err != nil {
				t.Errorf("%s: %s: %v", page, line, err)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d commands found", n)
	}
	for _, wrong := range []string{"shard retire orders", "batch keys orders --blockt", "rolle list"} {
		if _, err := exists(strings.Fields(wrong)); err == nil {
			t.Errorf("understudy %s was accepted", wrong)
		}
	}
}

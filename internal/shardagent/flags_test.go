package shardagent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/pflag"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store/memory"
)

// TestSentinelAddress: other agents name to clients what those can reach.
func TestSentinelAddress(t *testing.T) {
	for _, c := range []struct{ flag, announce, want string }{
		{"10.0.0.1:26379", "", "10.0.0.1:26379"},
		{"db-1:26379", "", "db-1:26379"},
		{"[2001:db8::1]:26379", "", "[2001:db8::1]:26379"},
		{":26379", "10.0.0.7:6379", "10.0.0.7:26379"},
		{"0.0.0.0:26379", "db-1.example:6379", "db-1.example:26379"},
		{"[::]:26379", "[2001:db8::7]:6379", "[2001:db8::7]:26379"},
		{"127.0.0.1:26379", "", "127.0.0.1:26379"}, // the node is for this host alone, too
		{"127.0.0.1:26379", "10.0.0.7:6379", ""},
		{"localhost:26379", "[2001:db8::7]:6379", ""},
	} {
		f := &Flags{}
		f.Sentinel, f.Config.Node, f.Config.Announced = c.flag, "127.0.0.1:6379", c.announce
		if got := f.sentinelAddress("[::]:26379"); got != c.want {
			t.Errorf("--sentinel %s, node at %s: %q, want %q", c.flag, c.announce, got, c.want)
		}
	}
}

// TestOwnPorts: the node would find its own port taken by its agent, which would then answer in its place.
func TestOwnPorts(t *testing.T) {
	for _, f := range []Flags{{Settings: Settings{Sentinel: "127.0.0.1:6379"}}, {Settings: Settings{Listen: "127.0.0.1:6379"}}} {
		f.Config.Node, f.Config.Dir = "127.0.0.1:6379", t.TempDir()
		if err := f.complete(nil); err == nil || !strings.Contains(err.Error(), "need other ports") {
			t.Errorf("%+v: %v", f.Settings, err)
		}
	}
}

// supervising is an agent that would start a node.
func supervising(t *testing.T, change func(*Flags)) (*Flags, error) {
	t.Helper()
	f := &Flags{}
	f.Node, f.Data = "127.0.0.1:1", t.TempDir()
	if change != nil {
		change(f)
	}
	strictyaml.ApplyDefaults(&f.Settings)
	return f, f.ForShard("orders", []string{"true"}, slog.New(slog.DiscardHandler))
}

// TestRefusedSettings: a refusal names the flag, and a timing that is named as safe is taken.
func TestRefusedSettings(t *testing.T) {
	parse := func(args ...string) error {
		var f Flags
		fs := pflag.NewFlagSet("agent", pflag.ContinueOnError)
		f.Register(fs)
		if err := fs.Parse(append([]string{"--node", "127.0.0.1:1", "--data", t.TempDir()}, args...)); err != nil {
			t.Fatal(err)
		}
		return f.ForShard("orders", []string{"true"}, slog.New(slog.DiscardHandler))
	}
	for flag, want := range map[string]string{
		"--hook-timeout=0s":         "it must be positive",
		"--restart-grace=-1s":       "it cannot be negative",
		"--stop-wait=-1s":           "it cannot be negative",
		"--priority=-1":             "it is at least 0",
		"--max-lag=-1":              "it is at least 0",
		"--parallel-syncs=0":        "it is at least 1",
		"--min-replicas=1000":       "members",
		"--private-address=nowhere": "use HOST:PORT",
		"--announce=nowhere":        "use HOST:PORT",
		"--agent-address=nowhere":   "use HOST:PORT",
	} {
		name, _, _ := strings.Cut(flag, "=")
		if err := parse(flag); err == nil || !strings.Contains(err.Error(), name+" ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", flag, err)
		}
	}
	for _, timing := range [][]string{{"--interval", "1s", "--timeout", "3s"}, {"--interval", "333333333ns", "--timeout", "1s"}} {
		_, safe, named := strings.Cut(fmt.Sprint(parse(timing...)), "safe are ")
		if !named {
			t.Errorf("%v is taken", timing)
		}
		for one := range strings.SplitSeq(safe, ", or ") {
			f := append(slices.Clone(timing), strings.Fields(one)...)
			if err := parse(f...); err != nil {
				t.Errorf("%v names %q: %v", timing, one, err)
			}
		}
	}
}

// TestSentinelPassword: its file is read with the other flags, before anything is touched.
func TestSentinelPassword(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	change := func(f *Flags) { f.Sentinel, f.SentinelPasswordFile = "127.0.0.1:2", file }
	if _, err := supervising(t, change); err == nil || !strings.Contains(err.Error(), "--sentinel-password-file") {
		t.Errorf("a file that does not exist: %v", err)
	}
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := supervising(t, change); err != nil || f.sentinelPassword != "secret" {
		t.Errorf("password %q, %v", f.sentinelPassword, err)
	}
}

// TestHandOver: a stop hands a primary over where the node stops, too.
func TestHandOver(t *testing.T) {
	for _, c := range []struct {
		flag, pod string
		want      bool
	}{{}, {flag: "--hand-over", want: true}, {pod: "orders-0", want: true}} {
		var f Flags
		fs := pflag.NewFlagSet("agent", pflag.ContinueOnError)
		f.Register(fs)
		if err := fs.Parse(slices.DeleteFunc([]string{c.flag, "--pod=" + c.pod}, func(a string) bool { return a == "" })); err != nil {
			t.Fatal(err)
		}
		if f.configure(); f.Config.HandOver != c.want {
			t.Errorf("%+v: hands over: %t", c, f.Config.HandOver)
		}
	}
}

// unstarted is a process that counts who would start it.
type unstarted struct {
	shard.Process
	starts atomic.Int64
}

func (u *unstarted) Start(context.Context) error {
	u.starts.Add(1)
	return os.ErrPermission
}

// TestGiveUp: one that never ran starts no node.
func TestGiveUp(t *testing.T) {
	for _, stopping := range []bool{false, true} {
		f, err := supervising(t, nil)
		if err != nil {
			t.Fatal(err)
		}
		process := &unstarted{Process: f.Config.Process}
		f.Config.Process = process
		s, err := f.OnStore(&instance.Host{Log: slog.New(slog.DiscardHandler)}, memory.New(nil))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if stopping {
			cancel()
		}
		s.GiveUp(ctx)
		cancel()
		if n := process.starts.Load(); n != 0 {
			t.Errorf("stopping %t: the node was started %d times", stopping, n)
		}
		// Its folder is free for another.
		if s, err = f.OnStore(&instance.Host{Log: slog.New(slog.DiscardHandler)}, memory.New(nil)); err != nil {
			t.Fatal(err)
		}
		s.GiveUp(t.Context())
	}
}

// TestEndNode: what is logged of a node that runs on is what its agent knows of it.
func TestEndNode(t *testing.T) {
	f, err := supervising(t, func(f *Flags) { f.KeepNode = true })
	if err != nil {
		t.Fatal(err)
	}
	for open, want := range map[bool]string{false: "closed for writes", true: "may accept writes"} {
		var text strings.Builder
		if err := f.endNode(t.Context(), slog.New(slog.NewTextHandler(&text, nil)), open); err != nil {
			t.Fatal(err)
		}
		if got := text.String(); !strings.Contains(got, want) || open != strings.Contains(got, "level=WARN") {
			t.Errorf("open %t: %s", open, got)
		}
	}
}

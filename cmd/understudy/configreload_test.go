package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// systemd is told when a reload begins and ends, though the file is refused.
func TestReloadTellsSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	r := &reloader{
		app: &app{log: slog.New(slog.DiscardHandler)}, cfg: &serveConfig{}, hup: make(chan os.Signal, 1),
		load: func() (*serveConfig, error) { return nil, errors.New("broken") },
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.run(ctx, live{})
	}()
	r.hup <- syscall.SIGHUP
	for _, want := range []string{"RELOADING=1\nMONOTONIC_USEC=", "READY=1"} {
		if err := l.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 1000)
		n, err := l.Read(got)
		if err != nil || !strings.HasPrefix(string(got[:n]), want) {
			t.Fatalf("told %q, %v; want %q", got[:n], err, want)
		}
	}
	stop()
	<-done
}

// A file that is just being written is empty for a moment: its roles are not given up for that.
func TestReloadOfAnEmptyFile(t *testing.T) {
	read := func(text string) *serveConfig {
		c, err := readConfigWith(writeFile(t, text), nil, func(*serveConfig) {})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var said strings.Builder
	was := read("roles: [{role: a}]\n")
	r := &reloader{
		app: &app{log: slog.New(slog.NewTextHandler(&said, nil))}, cfg: was,
		load: func() (*serveConfig, error) { return read("# soon\n"), nil },
	}
	r.once(t.Context(), live{}) // with nothing to stop a role with
	if len(r.cfg.Roles) != 1 || !strings.Contains(said.String(), "is empty") {
		t.Errorf("roles %v, said %s", r.cfg.Roles, said.String())
	}
}

// Each difference is one key.
func TestChangedKeys(t *testing.T) {
	read := func(text string) *serveConfig {
		c, err := readConfigWith(writeFile(t, text), nil, func(*serveConfig) {})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	was := read("roles: [{role: a}, {role: b}, {role: c}]\nlimits: {act: {burst: 5}}\ncache: {url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2', jitter: 0}\nsentinel: {listen: '127.0.0.1:1'}\n")
	is := read("roles: [{role: d}, {role: c, holders: 2}, {role: b}]\nlimits: {act: {burst: 6}}\ncache: {url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2', ttl: 5s}\ndns: {}\nlog_level: debug\n")
	want := []string{"log_level", "roles.a", "roles.c", "roles.d", "cache.ttl", "cache.jitter", "sentinel", "dns", "limits"}
	if diff := cmp.Diff(want, changedKeys(was, is)); diff != "" {
		t.Error(diff)
	}
	if keys := changedKeys(was, was); len(keys) > 0 {
		t.Errorf("%v differ from themselves", keys)
	}
}

// The keys of a shard are the flags of its agent, all of them.
func TestShardKeysAreFlags(t *testing.T) {
	var f agentFlags
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.register(fs)
	var keys, flags []string
	for _, k := range fileKeys(reflect.TypeFor[shardConfig]()) {
		if k.name != "shard" && k.name != "command" {
			keys = append(keys, k.name)
		}
	}
	fs.VisitAll(func(f *pflag.Flag) { flags = append(flags, strings.ReplaceAll(f.Name, "-", "_")) })
	asSet := cmp.Transformer("set", func(list []string) map[string]bool {
		out := map[string]bool{}
		for _, s := range list {
			out[s] = true
		}
		return out
	})
	if diff := cmp.Diff(flags, keys, asSet); diff != "" {
		t.Errorf("(-flags +keys)\n%s", diff)
	}
	c := shardConfig{Shard: "a", Node: "h:1", Data: "d", Priority: new(0), KillHung: new(false), ForgetAfter: duration(-1), MaxLag: 7, RestartGrace: duration(time.Second)}
	got, err := c.flags(&app{log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if got.priority != 0 || got.cfg.KillHung || got.cfg.ForgetAfter >= 0 || got.cfg.Policy.MaxLag != 7 || got.cfg.RestartGrace != time.Second || got.cfg.Policy.Parallel != 1 {
		t.Errorf("%+v", got)
	}
}

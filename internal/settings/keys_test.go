package settings

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/understudy-ha/understudy/internal/shardagent"
	"github.com/understudy-ha/understudy/internal/strictyaml"
)

// Each difference is one key.
func TestChangedKeys(t *testing.T) {
	read := func(text string) *Server {
		c, err := ReadWith(writeFile(t, text), nil, func(*Server) {})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	was := read("roles: [{role: a}, {role: b}, {role: c}]\nlimits: {act: {burst: 5}}\ncache: {url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2', jitter: 0}\nsentinel: {listen: '127.0.0.1:1'}\n")
	is := read("roles: [{role: d}, {role: c, holders: 2}, {role: b}]\nlimits: {act: {burst: 6}}\ncache: {url: 'tcp://127.0.0.1:1', api: 'tcp://127.0.0.1:2', ttl: 5s}\ndns: {}\nlog_level: debug\n")
	want := []string{"log_level", "roles.a", "roles.c", "roles.d", "cache.ttl", "cache.jitter", "sentinel", "dns", "limits"}
	if diff := cmp.Diff(want, Changed(was, is)); diff != "" {
		t.Error(diff)
	}
	if keys := Changed(was, was); len(keys) > 0 {
		t.Errorf("%v differ from themselves", keys)
	}
}

// The keys of a shard are the flags of its agent, all of them.
func TestShardKeysAreFlags(t *testing.T) {
	var f shardagent.Flags
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Register(fs)
	var keys, flags []string
	for _, k := range strictyaml.Keys(reflect.TypeFor[Shard]()) {
		if k.Name != "shard" && k.Name != "command" {
			keys = append(keys, k.Name)
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
	c := Shard{Shard: "a", Settings: shardagent.Settings{Node: "h:1", Data: "d", Priority: new(0), KillHung: new(false), ForgetAfter: -1, MaxLag: 7, RestartGrace: time.Second}}
	got, err := c.Agent(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if *got.Config.Priority != 0 || got.Config.KillHung || got.Config.ForgetAfter >= 0 || got.Config.Policy.MaxLag != 7 || got.Config.RestartGrace != time.Second || got.Config.Policy.Parallel != 1 {
		t.Errorf("%+v", got)
	}
}

package shardagent

import (
	"strings"
	"testing"
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

package shardagent

import "testing"

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

package cache

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/cache/zmtp"
)

func TestValidate(t *testing.T) {
	good := func() Config {
		return Config{Self: "tcp://127.0.0.1:1", Members: []protocol.Member{
			{URL: "tcp://127.0.0.1:1", API: "tcp://127.0.0.1:2"},
			{URL: "tcp://[::1]:1", API: "tcp://localhost:2"},
		}}
	}
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string // in the error; "" when there is none
	}{
		"no self":            {func(c *Config) { c.Self = "" }, "needs Self"},
		"self is no member":  {func(c *Config) { c.Self = "tcp://127.0.0.1:9" }, "not among the members"},
		"no members":         {func(c *Config) { c.Members = nil }, "0 members"},
		"bad address":        {func(c *Config) { c.Members[1].API = "127.0.0.1:2" }, "tcp://host:port"},
		"address twice":      {func(c *Config) { c.Members[1].API = c.Members[0].API }, "appears twice"},
		"bad bind":           {func(c *Config) { c.BindURL = "tcp://host" }, "tcp://host:port"},
		"any host":           {func(c *Config) { c.BindAPI = "tcp://*:2" }, "nothing protects it"},
		"another host":       {func(c *Config) { c.BindURL = "tcp://10.0.0.1:1" }, "nothing protects it"},
		"a name":             {func(c *Config) { c.BindURL = "tcp://cache.example:1" }, "nothing protects it"},
		"a secret alone":     {func(c *Config) { c.BindAPI, c.Secret = "tcp://0.0.0.0:2", make([]byte, 32) }, "nothing protects it"},
		"insecure":           {func(c *Config) { c.BindAPI, c.Insecure = "tcp://*:2", true }, ""},
		"curve without keys": {func(c *Config) { c.Curve = &Curve{Key: zmtp.NewCurveKey()} }, "public key of tcp://[::1]:1 is missing"},
		"curve": {func(c *Config) {
			c.BindAPI, c.Curve = "tcp://*:2", &Curve{Key: zmtp.NewCurveKey(), Peers: map[string][32]byte{"tcp://[::1]:1": {1}}}
		}, ""},
		"curve without own key": {func(c *Config) {
			c.Curve = &Curve{Peers: map[string][32]byte{"tcp://[::1]:1": {1}}}
		}, "key pair"},
		"short secret":   {func(c *Config) { c.Secret = []byte("short") }, "16 to 1024"},
		"timings":        {func(c *Config) { c.Timings.AnnounceTimeout = time.Second }, "at least twice"},
		"jitter":         {func(c *Config) { c.Jitter = 0.6 }, "jitter"},
		"no jitter":      {func(c *Config) { c.Jitter = -1 }, ""},
		"fetches":        {func(c *Config) { c.Fetches = -1 }, "Fetches"},
		"large values":   {func(c *Config) { c.MaxBytes = 1000 }, "MaxBytes"},
		"negative bound": {func(c *Config) { c.MaxKeys = -5 }, "MaxKeys"},
	} {
		cfg := good()
		c.change(&cfg)
		err := cfg.Validate()
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if _, newErr := New(cfg); (newErr == nil) != (err == nil) {
			t.Errorf("%s: New says %v", name, newErr)
		}
	}
	bad := good()
	bad.Timings.AnnounceTimeout = time.Second
	if err := bad.Validate(); !errors.Is(err, protocol.ErrUnsafeTiming) {
		t.Errorf("unsafe timing: %v", err)
	}
}

// A value that is as large as any may be has room for all other peers at once, also when a member was added.
func TestPeersHaveRoom(t *testing.T) {
	for n := 1; n <= 9; n++ {
		cfg := Config{Members: make([]protocol.Member, n), MaxBytes: 1 << 20, MaxValue: 1 << 20}.withDefaults()
		if room, need := cfg.peerBudget()*31/32, int64(n*cfg.maxMessage()); room < need {
			t.Errorf("%d members: room for %d bytes; %d are needed", n, room, need)
		}
	}
}

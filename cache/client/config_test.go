package client

import (
	"errors"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/zmtp"
)

func TestConfig(t *testing.T) {
	good := []string{"tcp://localhost:1", "tcp://[::1]:2", "tcp://10.0.0.1:65535"}
	if err := (Config{Servers: good}).Validate(); err != nil {
		t.Error(err)
	}
	key := zmtp.NewCurveKey()
	for why, cfg := range map[string]Config{
		"no servers":          {},
		"too many":            {Servers: make([]string, maxServers+1)},
		"a bad address":       {Servers: []string{"localhost:1"}},
		"twice":               {Servers: []string{"tcp://h:1", "tcp://h:1"}},
		"a tiny timeout":      {Servers: good, Timeout: time.Microsecond},
		"a negative timeout":  {Servers: good, Timeout: -1},
		"negative in flight":  {Servers: good, InFlight: -1},
		"a negative value":    {Servers: good, MaxValue: -1},
		"no key of a server":  {Servers: good, Curve: &Curve{Key: key}},
		"no key of our own":   {Servers: good[:1], Curve: &Curve{Servers: map[string][32]byte{good[0]: key.Public}}},
		"an address with nul": {Servers: []string{"tcp://h\x00:1"}},
	} {
		if err := cfg.Validate(); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", why, err)
		}
		if c, err := New(cfg); err == nil {
			c.Close()
			t.Errorf("%s: New accepted it", why)
		}
	}
}

package settings

import (
	"fmt"
	"net"
	"time"

	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/resolve/dns"
)

// DNS is the endpoint of a server that answers names over DNS.
type DNS struct {
	Listen string        `yaml:"listen" default:"127.0.0.1:7653" help:"address for UDP and TCP, HOST:PORT"`
	Zone   string        `yaml:"zone" default:"understudy.internal." help:"zone to answer for"`
	TTLMax time.Duration `yaml:"ttl_max" default:"5s" help:"longest TTL of an answer; never longer than the lease lasts"`
	Rate   int           `yaml:"rate" default:"200" help:"answers per second for each address outside this host; -1: no limit"`
}

// check refuses what no server can answer for.
func (d *DNS) check() error {
	if _, _, err := net.SplitHostPort(d.Listen); err != nil {
		return usererr.Errorf("listen %q: use HOST:PORT, as in 127.0.0.1:7653", d.Listen)
	}
	if err := dns.CheckZone(d.Zone); err != nil {
		return fmt.Errorf("zone: %w", err)
	}
	if t := d.TTLMax; t < time.Second || t > time.Hour {
		return usererr.Errorf("ttl_max is %v; use 1s to 1h", t)
	}
	if d.Rate < -1 {
		return usererr.Errorf("rate is %d; use 1 or more answers a second, or -1 for no limit", d.Rate)
	}
	return nil
}

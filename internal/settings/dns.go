package settings

import (
	"cmp"
	"fmt"
	"net"
	"time"

	"github.com/understudy-ha/understudy/internal/strict"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/resolve"
	"github.com/understudy-ha/understudy/resolve/dns"
)

// defaultDNS is where names are answered when nothing else is said.
const defaultDNS = "127.0.0.1:7653"

// DNS is the endpoint of a server that answers names over DNS.
type DNS struct {
	// Listen is its address, HOST:PORT, for UDP and TCP. Default 127.0.0.1:7653.
	Listen string `yaml:"listen"`
	// Zone that it answers for. Default understudy.internal.
	Zone string `yaml:"zone"`
	// TTLMax is how long an answer may be believed at most. Default 5s.
	TTLMax strict.Duration `yaml:"ttl_max"`
	// Rate is how many answers a second one source gets that is not on this host. Default 200;
	// -1 is no limit.
	Rate int `yaml:"rate"`
}

// complete fills the defaults, and checks.
func (d *DNS) complete() error {
	d.Listen = cmp.Or(d.Listen, defaultDNS)
	d.Zone = cmp.Or(d.Zone, dns.DefaultZone)
	d.TTLMax = cmp.Or(d.TTLMax, strict.Duration(resolve.DefaultMost))
	d.Rate = cmp.Or(d.Rate, dns.DefaultRate)
	if _, _, err := net.SplitHostPort(d.Listen); err != nil {
		return usage.Errorf("listen %q: use HOST:PORT, as in %s", d.Listen, defaultDNS)
	}
	if err := dns.CheckZone(d.Zone); err != nil {
		return fmt.Errorf("zone: %w", err)
	}
	if t := time.Duration(d.TTLMax); t < time.Second || t > time.Hour {
		return usage.Errorf("ttl_max is %v; use 1s to 1h", t)
	}
	if d.Rate < -1 {
		return usage.Errorf("rate is %d; use 1 or more answers a second, or -1 for no limit", d.Rate)
	}
	return nil
}

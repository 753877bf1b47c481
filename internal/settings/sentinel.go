package settings

import (
	"net"

	"github.com/understudy-ha/understudy/internal/agent"
	"github.com/understudy-ha/understudy/internal/usage"
)

// Sentinel is the endpoint of a server for Sentinel clients.
type Sentinel struct {
	// Listen is its address, HOST:PORT.
	Listen string `yaml:"listen"`
	// PasswordFile holds what clients must give. Default: nothing.
	PasswordFile string `yaml:"password_file"`

	password string
}

func (s *Sentinel) complete() (err error) {
	if s.Listen == "" {
		return usage.Errorf("listen is missing; use HOST:PORT, as in 127.0.0.1:26379")
	}
	if _, _, err := net.SplitHostPort(s.Listen); err != nil {
		return usage.Errorf("listen %q: use HOST:PORT", s.Listen)
	}
	s.password, err = agent.ReadPassword("password_file", s.PasswordFile)
	return err
}

// Secret is what clients must give, as complete has read it; "" is nothing.
func (s *Sentinel) Secret() string { return s.password }

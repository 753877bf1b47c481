package settings

import (
	"net"

	"github.com/understudy-ha/understudy/internal/shardagent"
	"github.com/understudy-ha/understudy/internal/usererr"
)

// Sentinel is the endpoint of a server for Sentinel clients.
type Sentinel struct {
	Listen       string `yaml:"listen" flag:"sentinel" help:"answer Sentinel clients on this 'ADDRESS', HOST:PORT (default: not at all)"`
	PasswordFile string `yaml:"password_file" help:"Sentinel clients must give the password in this file"`

	password string
}

func (s *Sentinel) complete() (err error) {
	if s.Listen == "" {
		return usererr.Errorf("listen is missing; use HOST:PORT, as in 127.0.0.1:26379")
	}
	if _, _, err := net.SplitHostPort(s.Listen); err != nil {
		return usererr.Errorf("listen %q: use HOST:PORT", s.Listen)
	}
	s.password, err = shardagent.ReadPassword("password_file", s.PasswordFile)
	return err
}

// Secret is what clients must give, as complete has read it; "" is nothing.
func (s *Sentinel) Secret() string { return s.password }

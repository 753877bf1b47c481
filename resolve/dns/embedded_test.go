//go:build embedded

package dns_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/resolve/dns"
)

// A program without it says so, and what to do.
func TestEmbedded(t *testing.T) {
	s, err := dns.New(dns.Config{})
	if s != nil || !errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), "without DNS") || !strings.Contains(err.Error(), "make build") {
		t.Error(err)
	}
}

package sabledb

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/understudy-ha/understudy/lease"
)

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9._:/-]{1,100}$`)

// target is what a URL says.
type target struct {
	address, prefix, location string
	tls                       *tls.Config
}

// parseURL reads sabledb://HOST:PORT?prefix=NAME&cacert=FILE. Its errors never quote what may hold a password.
func parseURL(raw string) (*target, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "sabledb" || u.Fragment != "" {
		return nil, invalid("it has the form sabledb://HOST:PORT?prefix=NAME&cacert=FILE")
	}
	t := &target{address: u.Host, prefix: "understudy"}
	if u.User != nil {
		return nil, invalid("SableDB knows no users and passwords: keep others away from its port")
	}
	if u.Port() == "" {
		t.address = net.JoinHostPort(u.Hostname(), "6379")
	}
	if _, _, err := net.SplitHostPort(t.address); err != nil || u.Hostname() == "" || strings.Trim(u.Path, "/0") != "" {
		return nil, invalid("it names one host, and no database; keep stores apart by prefix=")
	}
	for name, values := range u.Query() {
		switch name {
		case "prefix":
			t.prefix = values[0]
		case "cacert":
			if t.tls, err = trust(values[0]); err != nil {
				return nil, err
			}
		default:
			return nil, invalid(fmt.Sprintf("unknown option %q; known are prefix and cacert", name))
		}
	}
	if !validPrefix.MatchString(t.prefix) {
		return nil, invalid("prefix= is 1 to 100 of A–Z, a–z, 0–9 and ._:/-")
	}
	t.location = "sabledb://" + t.address + "?prefix=" + url.QueryEscape(t.prefix)
	return t, nil
}

// trust is TLS to a server whose certificate comes from the file.
func trust(file string) (*tls.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, invalid("cacert=: " + err.Error())
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, invalid(fmt.Sprintf("cacert=%s holds no certificate in PEM form", file))
	}
	return c, nil
}

func invalid(what string) error { return fmt.Errorf("%w: SableDB URL: %s", lease.ErrInvalid, what) }

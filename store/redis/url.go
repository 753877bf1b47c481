package redis

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/understudy-ha/understudy/lease"
)

const (
	defaultPort   = "6379"
	sentinelPort  = "26379"
	defaultPrefix = "understudy"
)

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9._:/-]{1,100}$`)

// target is what a URL says.
type target struct {
	addrs  []string // of the server, or of the Sentinels
	master string   // name that the Sentinels know; "" without them
	db     int
	prefix string
	tls    *tls.Config

	user, password                 string
	sentinelUser, sentinelPassword string

	location string // the URL, fit to be shown
}

// parseURL reads a store URL. Its errors wrap lease.ErrInvalid and never quote
// what may hold a password.
func parseURL(raw string) (*target, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	t := &target{prefix: defaultPrefix}
	port, sentinel := defaultPort, strings.HasSuffix(scheme, "+sentinel")
	switch strings.TrimSuffix(scheme, "+sentinel") {
	case "redis":
	case "rediss":
		t.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	default:
		ok = false
	}
	if !ok {
		return nil, invalid("it must begin with redis://, rediss://, redis+sentinel:// or rediss+sentinel://")
	}
	if sentinel {
		port = sentinelPort
	}
	// net/url knows one host only: the list is cut out before it looks.
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	userinfo, hosts := "", rest[:end]
	if at := strings.LastIndex(hosts, "@"); at >= 0 {
		userinfo, hosts = hosts[:at+1], hosts[at+1:]
	}
	u, err := url.Parse("redis://" + userinfo + "host" + rest[end:])
	if err != nil || u.Fragment != "" {
		return nil, invalid("it cannot be read; write special characters in the password as %XX")
	}
	t.user = u.User.Username()
	t.password, _ = u.User.Password()
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := address(host, port)
		if err != nil {
			return nil, err
		}
		t.addrs = append(t.addrs, addr)
	}
	if !sentinel && len(t.addrs) > 1 {
		return nil, invalid("several hosts are possible only with redis+sentinel://")
	}
	if err := t.readPath(u.Path, sentinel); err != nil {
		return nil, err
	}
	if err := t.readQuery(u.Query()); err != nil {
		return nil, err
	}
	t.location = scheme + "://" + strings.Join(t.addrs, ",")
	if sentinel {
		t.location += "/" + url.PathEscape(t.master)
	}
	t.location += "/" + strconv.Itoa(t.db) + "?prefix=" + url.QueryEscape(t.prefix)
	return t, nil
}

func address(host, port string) (string, error) {
	if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", invalid("a port is not a number from 1 to 65535")
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// readPath reads /db, or /master/db behind Sentinels.
func (t *target) readPath(path string, sentinel bool) error {
	path = strings.Trim(path, "/")
	if sentinel {
		t.master, path, _ = strings.Cut(path, "/")
		if t.master == "" {
			return invalid("the master's name is missing: redis+sentinel://HOST:26379,HOST2:26379/MASTER/DB")
		}
	}
	if path == "" {
		return nil
	}
	db, err := strconv.Atoi(path)
	if err != nil || db < 0 {
		return invalid(fmt.Sprintf("the database %q is not a number", path))
	}
	t.db = db
	return nil
}

func (t *target) readQuery(q url.Values) error {
	var certFile, keyFile string
	for name := range q {
		value := q.Get(name)
		switch name {
		case "prefix":
			t.prefix = value
		case "sentinel_username":
			t.sentinelUser = value
		case "sentinel_password":
			t.sentinelPassword = value
		case "cacert", "cert", "key", "servername":
			if t.tls == nil {
				return invalid(fmt.Sprintf("%s= needs TLS: write rediss:// for redis://", name))
			}
			switch name {
			case "cacert":
				if err := t.trust(value); err != nil {
					return err
				}
			case "cert":
				certFile = value
			case "key":
				keyFile = value
			case "servername":
				t.tls.ServerName = value
			}
		default:
			return invalid(fmt.Sprintf("unknown option %q; known are prefix, cacert, cert, key, servername, sentinel_username, sentinel_password", name))
		}
	}
	if certFile == "" && keyFile == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return invalid("cert= and key=: " + err.Error())
	}
	t.tls.Certificates = []tls.Certificate{pair}
	return nil
}

func (t *target) trust(file string) error {
	pem, err := os.ReadFile(file)
	if err != nil {
		return invalid("cacert=: " + err.Error())
	}
	t.tls.RootCAs = x509.NewCertPool()
	if !t.tls.RootCAs.AppendCertsFromPEM(pem) {
		return invalid(fmt.Sprintf("cacert=%s holds no certificate in PEM form", file))
	}
	return nil
}

func invalid(what string) error {
	return fmt.Errorf("%w: Redis URL: %s", lease.ErrInvalid, what)
}

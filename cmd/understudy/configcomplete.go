package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/open"
)

// complete fills the defaults and checks what can be checked without a store: the error
// is all that is wrong.
func (c *serveConfig) complete() error {
	if c.Name == "" {
		c.Name = hostname()
	}
	if c.Listen == "" {
		c.Listen = defaultListen
	}
	if c.HistoryKeep == 0 {
		c.HistoryKeep = 100_000
	}
	f := &findings{lines: c.lines}
	if c.HistoryKeep < 1000 {
		f.at("history_keep", usagef("history_keep is %d; at least 1000", c.HistoryKeep))
	}
	if err := c.readStore(); err != nil {
		f.at("store_file", err)
	} else {
		f.at("store", checkStore(c.Store))
	}
	if err := c.readToken(); err != nil {
		f.at("token_file", err)
	} else {
		f.at("listen", api.CheckListen(c.Listen, c.Token, c.BehindTLS || c.TLSCert != ""))
	}
	f.at("tls_cert", c.checkCert())
	_, err := logOptions(c.LogLevel, c.LogFormat)
	f.at("log_level", err)
	f.at("name", lease.NewInstance(c.Name, c.Address).Validate())
	if err := c.timing().Validate(0); err != nil {
		f.at("timeout", err)
	} else {
		c.checkRoles(f)
	}
	c.checkQueues(f)
	c.checkShards(f)
	if c.Cache != nil {
		f.at("cache", in("cache", c.Cache.check()))
	}
	if c.Sentinel != nil {
		f.at("sentinel", in("sentinel", c.Sentinel.complete()))
	}
	if c.DNS != nil {
		f.at("dns", in("dns", c.DNS.complete()))
	}
	f.at("hooks", completeHooks(c.Hooks, c.roleNames()))
	c.checkPlaces(f)
	f.at("limits", in("limits", c.Limits.limits().Validate()))
	if err := c.checkMonitor(); err != nil {
		f.list = append(f.list, err) // with its own lines
	}
	return f.err()
}

// checkPlaces refuses to listen twice on one address.
func (c *serveConfig) checkPlaces(f *findings) {
	taken := map[string]string{c.Listen: "listen"}
	place := func(path, address string) {
		_, port, _ := net.SplitHostPort(address)
		if port == "" || port == "0" {
			return // none, or one that the system chooses
		}
		if by := taken[address]; by != "" {
			f.at(path, usagef("%s: %s is taken by %s", path, address, by))
			return
		}
		taken[address] = path
	}
	if c.Sentinel != nil {
		place("sentinel", c.Sentinel.Listen)
	}
	if c.DNS != nil {
		place("dns", c.DNS.Listen)
	}
	for i := range c.Queues {
		if front := c.Queues[i].Front; front != nil {
			place(fmt.Sprintf("queues[%d]", i), front.Listen)
		}
	}
	for i := range c.Shards {
		place(fmt.Sprintf("shards[%d]", i), c.Shards[i].Listen)
		place(fmt.Sprintf("shards[%d]", i), c.Shards[i].Sentinel)
	}
}

// in says of each error in which part it is.
func in(part string, err error) error {
	list := each(err)
	for i, e := range list {
		list[i] = fmt.Errorf("%s: %w", part, e)
	}
	return errors.Join(list...)
}

// readStore reads the store's URL from its file.
func (c *serveConfig) readStore() error {
	if c.StoreFile == "" {
		return nil
	}
	if c.Store != "" {
		return usagef("store and store_file exclude each other")
	}
	text, err := secretOf("store_file", c.StoreFile)
	c.Store = text
	return err
}

// checkStore refuses a URL that names no store. It asks none: the time for that is over.
func checkStore(url string) error {
	if url == "" || strings.HasPrefix(url, "sqlite:") {
		return nil // opening it would make the file
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	st, err := open.Open(over, url, open.Options{})
	if err == nil {
		return st.Close()
	}
	if errors.Is(err, lease.ErrInvalid) {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// readToken reads the token from its file, and checks what goes with it.
func (c *serveConfig) readToken() error {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return usagef("tls_cert and tls_key go together")
	}
	if c.TokenFile == "" {
		return nil
	}
	if c.Token != "" {
		return usagef("token and token_file exclude each other")
	}
	text, err := secretOf("token_file", c.TokenFile)
	c.Token = text
	return err
}

// checkCert reads the certificate as it will be read again when the server listens.
func (c *serveConfig) checkCert() error {
	if c.TLSCert == "" || c.TLSKey == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey); err != nil {
		return usagef("tls_cert and tls_key: %v", err)
	}
	return nil
}

// secretOf reads the secret of a key that names its file.
func secretOf(key, path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("%s: %v", key, err)
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", usagef("%s %s is empty", key, path)
	}
	return secret, nil
}

func (c *serveConfig) checkRoles(f *findings) {
	seen := map[string]bool{}
	for i := range c.Roles {
		r := &c.Roles[i]
		if r.StopGrace == 0 {
			r.StopGrace = duration(elect.DefaultStopGrace)
		}
		f.at(fmt.Sprintf("roles[%d]", i), c.checkRole(r, seen))
	}
}

func (c *serveConfig) checkRole(r *roleConfig, seen map[string]bool) error {
	if err := elect.ValidateRole(r.Role); err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return fmt.Errorf("role %q: %w", r.Role, err)
	}
	if seen[r.Role] {
		return usagef("role %q stands twice", r.Role)
	}
	seen[r.Role] = true
	if err := c.timing().Validate(time.Duration(r.StopGrace)); err != nil {
		return fmt.Errorf("role %q: %w", r.Role, err)
	}
	return nil
}

// check refuses here what a campaign would refuse, before any role is taken.
func (r *roleConfig) check() error {
	switch {
	case r.Holders < 0 || r.Holders > elect.MaxHolders:
		return usagef("%d holders; 1 to %d are possible", r.Holders, elect.MaxHolders)
	case r.With == r.Role:
		return usagef("it cannot be held only with itself")
	case r.With != "":
		if err := elect.ValidateRole(r.With); err != nil {
			return fmt.Errorf("with: %w", err)
		}
	}
	if len(r.Command) > 0 && r.Command[0] == "" {
		return usagef("the command names no program")
	}
	return nil
}

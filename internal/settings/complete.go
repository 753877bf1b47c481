package settings

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/open"
)

// Complete fills the defaults and checks what can be checked without a store: the error
// is all that is wrong.
func (c *Server) Complete() error {
	if c.Name == "" {
		c.Name = instance.Hostname()
	}
	t := c.Timing() // a file that sets the interval alone gets a timeout that fits it
	c.Interval, c.Timeout = t.Interval, t.Timeout
	strictyaml.ApplyDefaults(c)
	f := &strictyaml.Findings{Lines: c.lines}
	if c.HistoryKeep < 1000 {
		f.At("history_keep", usererr.Errorf("history_keep is %d; at least 1000", c.HistoryKeep))
	}
	if d := c.ForgetAfter; d >= 0 && d < time.Hour {
		f.At("forget_vacant_after", usererr.Errorf("forget_vacant_after is %v; at least 1h, or -1s for never", d))
	}
	if err := c.readStore(); err != nil {
		f.At("store_file", err)
	} else {
		f.At("store", checkStore(c.Store))
	}
	if err := c.ReadToken(); err != nil {
		f.At("token_file", err)
	} else {
		f.At("listen", c.CheckListen())
	}
	f.At("tls_cert", c.checkCert())
	f.At("tls_client_ca", c.checkClients())
	_, err := LogOptions(c.LogLevel, c.LogFormat)
	f.At("log_level", err)
	f.At("name", lease.NewInstance(c.Name, c.Address).Validate())
	if err := c.Timing().Validate(0); err != nil {
		f.At("timeout", err)
	} else {
		c.checkRoles(f)
	}
	c.checkJobs(f)
	c.checkQueues(f)
	c.checkShards(f)
	if c.Cache != nil {
		f.At("cache", strictyaml.In("cache", c.Cache.Check()))
	}
	if c.Sentinel != nil {
		f.At("sentinel", strictyaml.In("sentinel", c.Sentinel.complete()))
	}
	if c.DNS != nil {
		f.At("dns", strictyaml.In("dns", c.DNS.check()))
	}
	f.At("hooks", completeHooks(c.Hooks, c.RoleNames()))
	c.checkListenAddresses(f)
	f.At("limits", strictyaml.In("limits", c.Limits.Limits().Validate()))
	if err := c.checkMonitor(); err != nil {
		f.List = append(f.List, err) // with its own lines
	}
	return f.Err()
}

// CheckListen refuses what is not safe to listen on; see [api.CheckListen]. A proxy in front lets other hosts in, even on
// a loopback address.
func (c *Server) CheckListen() error {
	if c.BehindTLS && c.Token == "" {
		return usererr.Errorf("behind_tls: a proxy in front lets other hosts in: set token_file")
	}
	return api.CheckListen(c.Listen, c.Token, c.BehindTLS || c.TLSCert != "")
}

// checkListenAddresses refuses to listen twice on one address.
func (c *Server) checkListenAddresses(f *strictyaml.Findings) {
	taken := map[string]string{c.Listen: "listen"}
	check := func(path, address string) {
		_, port, _ := net.SplitHostPort(address)
		if port == "" || port == "0" {
			return // none, or one that the system chooses
		}
		if by := taken[address]; by != "" {
			f.At(path, usererr.Errorf("%s: %s is taken by %s", path, address, by))
			return
		}
		taken[address] = path
	}
	if c.Sentinel != nil {
		check("sentinel", c.Sentinel.Listen)
	}
	if c.DNS != nil {
		check("dns", c.DNS.Listen)
	}
	for i := range c.Queues {
		if front := c.Queues[i].Front; front != nil {
			check(fmt.Sprintf("queues[%d]", i), front.Listen)
		}
	}
	for i := range c.Shards {
		check(fmt.Sprintf("shards[%d]", i), c.Shards[i].Listen)
		check(fmt.Sprintf("shards[%d]", i), c.Shards[i].Sentinel)
	}
}

// readStore reads the store's URL from its file.
func (c *Server) readStore() error {
	if c.StoreFile == "" {
		return nil
	}
	if c.Store != "" {
		return usererr.Errorf("store and store_file exclude each other")
	}
	var err error
	c.Store, err = ReadSecret("store_file", c.StoreFile)
	return err
}

// checkStore refuses a URL that names no store. It asks none: the time for that has ended.
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

// ReadToken reads the token from its file, and checks what goes with it.
func (c *Server) ReadToken() error {
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return usererr.Errorf("tls_cert and tls_key go together")
	}
	if c.TokenFile == "" {
		return nil
	}
	if c.Token != "" {
		return usererr.Errorf("token and token_file exclude each other")
	}
	var err error
	c.Token, err = ReadSecret("token_file", c.TokenFile)
	return err
}

// checkCert reads the certificate as it will be read again when the server listens.
func (c *Server) checkCert() error {
	if c.TLSCert == "" || c.TLSKey == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey); err != nil {
		return usererr.Errorf("tls_cert and tls_key: %v", err)
	}
	return nil
}

func (c *Server) checkRoles(f *strictyaml.Findings) {
	seen := map[string]bool{}
	for i := range c.Roles {
		f.At(fmt.Sprintf("roles[%d]", i), c.checkRole(&c.Roles[i], seen))
	}
	c.checkWith(f)
}

// checkWith refuses roles that wait for each other: none of them would ever be held.
func (c *Server) checkWith(f *strictyaml.Findings) {
	with := map[string]string{}
	for _, r := range c.Roles {
		with[r.Role] = r.With
	}
	reported := map[string]bool{}
	for i, r := range c.Roles {
		ring := []string{r.Role}
		at := with[r.Role]
		for at != "" && at != r.Role && !slices.Contains(ring, at) {
			ring = append(ring, at)
			at = with[at]
		}
		if at != r.Role || len(ring) == 1 || reported[r.Role] {
			continue
		}
		for _, name := range ring {
			reported[name] = true
		}
		f.At(fmt.Sprintf("roles[%d]", i), usererr.Errorf("role %q: with leads back to it (%s): each waits until the next is held, so that none ever is; leave one of them out",
			r.Role, strings.Join(append(ring, r.Role), " → ")))
	}
}

func (c *Server) checkRole(r *Role, seen map[string]bool) error {
	if err := elect.ValidateRole(r.Role); err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return fmt.Errorf("role %q: %w", r.Role, err)
	}
	if seen[r.Role] {
		return usererr.Errorf("role %q appears twice", r.Role)
	}
	seen[r.Role] = true
	if err := c.Timing().Validate(r.StopGrace); err != nil {
		return fmt.Errorf("role %q: %w", r.Role, err)
	}
	return nil
}

// check refuses here what a campaign would refuse, before any role is taken.
func (r *Role) check() error {
	switch {
	case r.Holders < 0 || r.Holders > elect.MaxHolders:
		return usererr.Errorf("%d holders; 1 to %d are possible", r.Holders, elect.MaxHolders)
	case r.With == r.Role:
		return usererr.Errorf("it cannot be held only with itself")
	case r.With != "":
		if err := elect.ValidateRole(r.With); err != nil {
			return fmt.Errorf("with: %w", err)
		}
	}
	if len(r.Command) > 0 && r.Command[0] == "" {
		return usererr.Errorf("the command names no program")
	}
	return nil
}

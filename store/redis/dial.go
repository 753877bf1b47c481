package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// dialer connects to the server, or to whichever server the Sentinels call the
// master at that moment.
type dialer struct {
	target *target
	log    *slog.Logger

	mu     sync.Mutex
	master string // when last asked
}

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.target.master != "" {
		var err error
		if addr, err = d.findMaster(ctx); err != nil {
			return nil, err
		}
	}
	return d.connect(ctx, network, addr)
}

func (d *dialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	var plain net.Dialer
	if d.target.tls == nil {
		return plain.DialContext(ctx, network, addr)
	}
	secure := tls.Dialer{NetDialer: &plain, Config: d.target.tls}
	return secure.DialContext(ctx, network, addr)
}

// findMaster asks all Sentinels at once and believes the first that knows. One
// that lags behind a failover is found out by the server's role.
func (d *dialer) findMaster(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	type answer struct {
		addr string
		err  error
	}
	answers := make(chan answer, len(d.target.addrs))
	for _, sentinel := range d.target.addrs {
		go func() {
			addr, err := d.askSentinel(ctx, sentinel)
			answers <- answer{addr, err}
		}()
	}
	var failed []error
	for range d.target.addrs {
		a := <-answers
		if a.err == nil {
			d.remember(a.addr)
			return a.addr, nil
		}
		failed = append(failed, a.err)
	}
	return "", fmt.Errorf("no Sentinel knows the master %q: %w", d.target.master, errors.Join(failed...))
}

func (d *dialer) askSentinel(ctx context.Context, sentinel string) (string, error) {
	conn, err := d.connect(ctx, "tcp", sentinel)
	if err != nil {
		return "", fmt.Errorf("sentinel %s: %w", sentinel, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	c := newConnection(conn)
	if err := c.authenticate(d.target.sentinelUser, d.target.sentinelPassword); err != nil {
		return "", fmt.Errorf("sentinel %s: %w", sentinel, err)
	}
	question := ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", d.target.master)
	if err := c.exchange(question); err != nil {
		return "", fmt.Errorf("sentinel %s: %w", sentinel, err)
	}
	hostPort := question.texts()
	if len(hostPort) != 2 {
		return "", fmt.Errorf("sentinel %s answered %v", sentinel, question.reply)
	}
	return net.JoinHostPort(hostPort[0], hostPort[1]), nil
}

func (d *dialer) remember(master string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.master != "" && d.master != master {
		d.log.Warn("the Sentinels name another master", "from", d.master, "to", master)
	}
	d.master = master
}

// connect makes a connection to the server, ready for calls.
func (s *Store) connect(ctx context.Context) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := s.dialer.dial(ctx, "tcp", s.target.addrs[0])
	if err != nil {
		return nil, err
	}
	return prepare(ctx, conn, s.arrive)
}

// prepare makes a connection ready for calls, by the deadline of ctx.
func prepare(ctx context.Context, conn net.Conn, arrive func(*connection) error) (*connection, error) {
	c := newConnection(conn)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := arrive(c)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return c, nil
}

// broke is called when a connection broke by itself. The idle ones are likely dead too, and are not tried.
func (s *Store) broke() {
	s.heart.drop()
	s.rest.drop()
	s.waits.drop()
}

// demoted is called when a connection was one to a replica. Those made before may be to the same server, and none may be
// used once it is the master again: the next calls dial, and look whether what is there now wrote the data.
func (s *Store) demoted() {
	s.heart.retire()
	s.rest.retire()
	s.waits.retire()
}

// arrive runs on every new connection. It makes sure that what the Sentinels call
// the master is one, and that data which another server, or an earlier life of
// this one, may have lost is noticed before anything is given away.
func (s *Store) arrive(c *connection) error {
	defer func() {
		if c.readOnly {
			s.demoted()
		}
	}()
	if err := c.authenticate(s.target.user, s.target.password); err != nil {
		return err
	}
	if s.target.db != 0 {
		if _, err := c.do("SELECT", strconv.Itoa(s.target.db)); err != nil {
			return err
		}
	}
	if s.target.master != "" {
		answer, err := c.do("ROLE")
		if err != nil {
			return err
		}
		if role, _ := answer.([]any); !slices.Contains(role, any("master")) {
			return errors.New("the Sentinels still name a server that is a replica")
		}
	}
	text, err := c.do("INFO")
	if r, ok := errors.AsType[refusal](err); ok && strings.HasPrefix(string(r), "NOPERM") {
		return nil // Inspect warns
	}
	if err != nil {
		return err
	}
	about, _ := text.(string)
	info := parseInfo(about)
	if info["role"] == "slave" {
		c.readOnly = true // the script need not write, and so need not be refused
	}
	// The server subtracts two times of which each was cut to a second, so that
	// it may say 1 a moment after it was started.
	uptime, _ := strconv.ParseInt(info["uptime_in_seconds"], 10, 64)
	age := max(0, uptime-1) * int64(time.Second/time.Microsecond)
	var sent bool
	_, err = s.scripts["arrive"].call(c, &sent, []string{s.root + "server"}, []any{s.skew().Microseconds(), info["run_id"], age})
	if r, ok := errors.AsType[refusal](err); ok && r.has("READONLY") {
		return nil // a replica can at least be looked at
	}
	return err
}

// authenticate says who we are, if the URL does.
func (w *connection) authenticate(user, password string) error {
	if password == "" {
		return nil
	}
	words := []string{"AUTH", password}
	if user != "" {
		words = []string{"AUTH", user, password}
	}
	_, err := w.do(words...)
	return err
}

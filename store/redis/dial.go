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

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
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
	client := redis.NewSentinelClient(&redis.Options{
		Addr: sentinel, Username: d.target.sentinelUser, Password: d.target.sentinelPassword, Dialer: d.connect,
		Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer client.Close()
	hostPort, err := client.GetMasterAddrByName(ctx, d.target.master).Result()
	if err != nil {
		return "", fmt.Errorf("sentinel %s: %w", sentinel, err)
	}
	if len(hostPort) != 2 {
		return "", fmt.Errorf("sentinel %s answered %q", sentinel, hostPort)
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

// arrive runs on every new connection. It makes sure that what the Sentinels call
// the master is one, and that data which another server, or an earlier life of
// this one, may have lost is noticed before anything is given away.
func (s *Store) arrive(ctx context.Context, conn *redis.Conn) error {
	if s.target.master != "" {
		role, err := conn.Do(ctx, "ROLE").Slice()
		if err != nil {
			return err
		}
		if !slices.Contains(role, any("master")) {
			return errors.New("the Sentinels still name a server that is a replica")
		}
	}
	text, err := conn.Info(ctx, "server").Result()
	if redis.HasErrorPrefix(err, "NOPERM") {
		return nil // Inspect warns
	}
	if err != nil {
		return err
	}
	info := parseInfo(text)
	// The server subtracts two times of which each was cut to a second, so that
	// it may say 1 a moment after it was started.
	uptime, _ := strconv.ParseInt(info["uptime_in_seconds"], 10, 64)
	age := max(0, uptime-1) * int64(time.Second/time.Microsecond)
	err = s.scripts["arrive"].Run(ctx, conn, []string{s.root + "server"},
		s.skew().Microseconds(), info["run_id"], age).Err()
	if strings.Contains(fmt.Sprint(err), "READONLY") {
		return nil // a replica can at least be looked at
	}
	return err
}

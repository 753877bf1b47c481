//go:build linux

package fault

import (
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// Server is a store's server that can be hurt.
type Server interface {
	// Stop ends it as an operator would, Kill as a crash would; Start starts it
	// again, with what it kept on disk.
	Stop()
	Kill()
	Start(testing.TB)
	// Pause stops its processes where they are; Resume lets them continue.
	Pause()
	Resume()
	// Step sets its wall clock to so far from the host's.
	Step(testing.TB, time.Duration)
}

// Database is an empty store.
type Database struct {
	// URL of the store.
	URL string
	// Addr is the server's host:port; "" for a store without one.
	Addr string
	// Server, if it belongs to this database alone.
	Server Server
}

// through is the URL by another address.
func (d Database) through(tb testing.TB, addr string) string {
	tb.Helper()
	u, err := url.Parse(d.URL)
	if err != nil {
		tb.Fatal(err)
	}
	u.Host = addr
	return u.String()
}

// SQLite returns a new file.
func SQLite(tb testing.TB) Database {
	tb.Helper()
	return Database{URL: "sqlite:" + filepath.Join(tb.TempDir(), "store.db")}
}

// SharedPostgres returns an empty database of a server that others use too.
func SharedPostgres(tb testing.TB, s *realserver.PostgresServer) Database {
	tb.Helper()
	return Database{URL: s.NewDatabase(tb), Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port))}
}

// Postgres starts a server, durable, and with a clock that can be stepped if
// asked for.
func Postgres(tb testing.TB, steppable bool) Database {
	tb.Helper()
	s := realserver.Postgres(tb, realserver.PostgresOptions{Fsync: true, Faketime: steppable})
	d := SharedPostgres(tb, s)
	d.Server = s
	return d
}

// Redis starts a server that keeps every write on disk before it answers, and
// with a clock that can be stepped if asked for.
func Redis(tb testing.TB, steppable bool) Database {
	tb.Helper()
	if steppable {
		s := newRedisServer(tb)
		return Database{URL: "redis://" + s.addr + "/0", Addr: s.addr, Server: s}
	}
	s := realserver.Redis(tb, realserver.RedisOptions{AppendOnly: true})
	return Database{URL: s.URL(), Addr: s.Addr, Server: steady{s}}
}

// steady is a server whose clock cannot be stepped.
type steady struct{ *realserver.RedisServer }

func (steady) Step(tb testing.TB, _ time.Duration) {
	tb.Fatal("this server's clock cannot be stepped: ask for one that can")
}

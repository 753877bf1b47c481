package main

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// place is a store, or a peer, that was started.
type place struct {
	kind string
	url  string
	pid  int // of the server; 0 when it has none
}

// startAll starts what is to be measured, everything durable.
func startAll(b *bed, kinds []string) []place {
	var out []place
	for _, kind := range kinds {
		out = append(out, startOne(b, kind))
	}
	return out
}

func startOne(b *bed, kind string) place {
	p := place{kind: kind}
	switch kind {
	case "sqlite":
		p.url = "sqlite:" + filepath.Join(b.TempDir(), "store.db")
	case "postgres":
		p = postgresPlace(b, startPostgres(b, nil))
	case "redis":
		server := realserver.Redis(b, realserver.RedisOptions{AppendOnly: true})
		p.url = server.URL()
	case "etcd":
		p.url, p.pid = startEtcd(b)
	default:
		b.Fatalf("bench: there is no store or peer %q", kind)
	}
	return p
}

// postgresPlace is a new database on a server.
func postgresPlace(b *bed, server *realserver.PostgresServer) place {
	return place{kind: "postgres", url: server.NewDatabase(b), pid: postmaster(b, server)}
}

// startPostgres starts a server with the settings that one has when nobody
// changed them, save those given.
func startPostgres(tb testing.TB, settings map[string]string) *realserver.PostgresServer {
	all := map[string]string{"shared_buffers": "128MB", "max_connections": "100"}
	maps.Copy(all, settings)
	return realserver.Postgres(tb, realserver.PostgresOptions{Fsync: true, Settings: all})
}

// postmaster is the server's first process.
func postmaster(b *bed, server *realserver.PostgresServer) int {
	data, err := os.ReadFile(filepath.Join(server.Socket, "data", "postmaster.pid"))
	b.check(err, "finding PostgreSQL's process")
	first, _, _ := strings.Cut(string(data), "\n")
	pid, err := strconv.Atoi(first)
	b.check(err, "finding PostgreSQL's process")
	return pid
}

func postgresProgram() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return "postgres"
	}
	return found[len(found)-1]
}

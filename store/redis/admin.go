package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// wantedSchema is the layout of the keys. The key "schema" holds the oldest layout that a program must
// know: one that only adds keys or fields does not raise it, so that two versions can share a server.
const wantedSchema = 1

// Inspect implements [store.Admin].
func (s *Store) Inspect(ctx context.Context) (store.Info, error) {
	info := store.Info{Kind: "redis", Location: s.target.location, Wanted: wantedSchema, Notifies: true}
	server, err := s.server(ctx)
	if err != nil {
		return info, err
	}
	info.Server = server.String()
	if err := server.supported(); err != nil {
		info.Warnings = append(info.Warnings, err.Error())
	}
	now, err := s.do(ctx, "TIME")
	if err != nil {
		return info, err
	}
	if info.Now, err = serverTime(now); err != nil {
		return info, err
	}
	info.Now = info.Now.Add(s.skew())
	found, err := s.do(ctx, "GET", s.root+"schema")
	if err != nil {
		return info, err
	}
	if text, ok := found.(string); ok {
		info.Schema, _ = strconv.Atoi(text)
	}
	info.Warnings = append(info.Warnings, server.warnings(s.setting(ctx, "appendfsync"))...)
	if replicas := server["connected_slaves"]; replicas != "" && replicas != "0" {
		info.Warnings = append(info.Warnings, replicationWarnings(s.setting(ctx, "min-replicas-to-write"), s.setting(ctx, "min-replicas-max-lag"))...)
	}
	return info, nil
}

// serverTime is an answer to TIME.
func serverTime(answer any) (time.Time, error) {
	t := rowOf(answer)
	at := time.Unix(t.number(), t.number()*1000)
	return at, t.err()
}

// Migrate implements [store.Admin].
func (s *Store) Migrate(ctx context.Context) (from, to int, err error) {
	r, err := s.run(ctx, s.rest, writes, "migrate", []string{s.root + "schema"}, wantedSchema)
	if err != nil {
		return 0, 0, err
	}
	found := r.number()
	if found > wantedSchema {
		return int(found), int(found), tooNew(found)
	}
	return int(found), wantedSchema, nil
}

// setting reads one setting of the server; "" when it may not be read, as with
// most hosted servers.
func (s *Store) setting(ctx context.Context, name string) string {
	v, err := s.do(ctx, "CONFIG", "GET", name)
	if err != nil {
		return ""
	}
	if pair, ok := v.([]any); ok && len(pair) == 2 {
		value, _ := pair[1].(string)
		return value
	}
	return ""
}

// server is what INFO says; empty when it may not be asked.
type server map[string]string

func (s *Store) server(ctx context.Context) (server, error) {
	v, err := s.do(ctx, "INFO")
	if err != nil && !strings.Contains(err.Error(), "NOPERM") {
		return nil, err
	}
	text, _ := v.(string)
	return parseInfo(text), nil
}

func parseInfo(text string) server {
	info := server{}
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

func (i server) String() string {
	switch {
	case i["valkey_version"] != "":
		return "Valkey " + i["valkey_version"]
	case i["redis_version"] != "":
		return "Redis " + i["redis_version"]
	default:
		return "a server whose user may not ask for its version"
	}
}

// supported refuses what is known to be too old. Valkey tells the version of
// Redis that it stands for.
func (i server) supported() error {
	version := i["redis_version"]
	if version == "" {
		return nil
	}
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 && (major > 6 || major == 6 && minor >= 2) {
		return nil
	}
	return fmt.Errorf("%w: the server is %s; Redis 6.2 or later, or Valkey, is needed", lease.ErrUnavailable, i)
}

func (i server) warnings(appendfsync string) (out []string) {
	if len(i) == 0 {
		return []string{"the server's settings cannot be read: allow this user INFO and CONFIG GET, or check persistence and eviction yourself"}
	}
	switch {
	case i["aof_enabled"] == "0":
		out = append(out, "appendonly is off: a restart of the server loses leases and terms (new terms start from the clock); set appendonly yes and appendfsync always")
	case appendfsync != "" && appendfsync != "always":
		out = append(out, fmt.Sprintf("appendfsync is %s: a crash of the server can lose the last seconds, and two holders may meet for up to T; set appendfsync always, or check the term wherever effects land", appendfsync))
	}
	if policy := i["maxmemory_policy"]; policy != "" && policy != "noeviction" && i["maxmemory"] != "0" {
		out = append(out, fmt.Sprintf("maxmemory-policy is %s: the server may delete sessions or leases when memory is short; set noeviction", policy))
	}
	if i["role"] == "slave" {
		out = append(out, "the server is a replica: it can only be read; name the master, or use redis+sentinel://")
	}
	return out
}

// replicationWarnings is about a master with replicas, by its two settings: "" if they may not be read.
func replicationWarnings(minReplicas, maxLag string) []string {
	out := []string{"replication is asynchronous: a failover can lose acknowledged acquisitions, and two holders may meet for up to T; check the term wherever effects land"}
	lag, err := strconv.Atoi(maxLag)
	switch {
	case minReplicas == "0" || maxLag == "0": // either is off
		out = append(out, "min-replicas-to-write is off: a master that is replaced while it is cut off still accepts renewals, "+
			"and two holders may meet for as long as the partition lasts; set min-replicas-to-write 1 and min-replicas-max-lag below T")
	case err == nil && time.Duration(lag)*time.Second >= lease.DefaultTimeout:
		out = append(out, fmt.Sprintf("min-replicas-max-lag is %d: a master that is replaced while it is cut off still accepts renewals for about %d s, "+
			"and two holders may meet for as long; set it below T", lag, lag))
	}
	return out
}

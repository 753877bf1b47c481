package redis

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// errInfo: the answer to INFO is not that of a Redis.
var errInfo = errors.New("shard/redis: INFO is not understood")

// parseState reads INFO's sections server, replication, keyspace and persistence.
func parseState(text string) (shard.State, error) {
	in := parseInfo(text)
	if mode := cmp.Or(in.text("redis_mode"), in.text("server_mode")); mode != "" && mode != "standalone" {
		return shard.State{}, fmt.Errorf("%w: the server is in %s mode; only standalone servers can be kept", shard.ErrUnsupported, mode)
	}
	if v := in.text("redis_version"); isTooOld(v) {
		return shard.State{}, fmt.Errorf("%w: Redis %.20s lets scripts write through a closed fence; 6.2.7 or later is needed", shard.ErrUnsupported, v)
	}
	s := shard.State{
		ConfigFile: in.text("config_file"),
		Loading:    in.number("loading", 0) != 0 || in.number("async_loading", 0) != 0,
		Lineage:    shard.Lineage{ID: in.text("master_replid")},
		Before:     before(in),
		Keys:       keys(in),
		Run:        in.text("run_id"),
		PID:        int(in.number("process_id", 0)),
		Version:    version(in),
		Txn:        in.number("master_repl_offset", 0),
	}
	if s.Lineage.ID == "" || s.Run == "" {
		return s, fmt.Errorf("%w: no master_replid or run_id", errInfo)
	}
	switch role := in.text("role"); role {
	case "master", "primary":
		s.Role, s.Synced = shard.Primary, !s.Loading
		s.Followers = followers(in)
	case "slave", "replica":
		s.Role, s.Link = shard.Replica, upstream(in)
		applied := in.number("slave_repl_offset", 0)
		// What it has counts as a copy while it is connected, or holds on to the place
		// where it left: then both offsets agree. Before the first copy, and once a new one has
		// taken the place of the old data, the applied offset is 1 and the other is not.
		s.Synced = !s.Loading && !s.Link.Syncing && (s.Link.Up || applied == s.Txn)
		s.Txn = applied
	default:
		return s, fmt.Errorf("%w: role %.40q", errInfo, role)
	}
	if in.bad != "" {
		return s, fmt.Errorf("%w: %.40s is not a number", errInfo, in.bad)
	}
	return s, nil
}

// isTooOld reports whether a version is one before 6.2.7. Valkey gives that of the Redis that it was made from.
func isTooOld(version string) bool {
	var have [3]int
	if n, _ := fmt.Sscanf(version, "%d.%d.%d", &have[0], &have[1], &have[2]); n < 3 {
		return false
	}
	return slices.Compare(have[:], []int{6, 2, 7}) < 0
}

// before is the history that went over into the present one.
func before(in *info) shard.Lineage {
	id, next := in.text("master_replid2"), in.number("second_repl_offset", -1)
	if next <= 0 || strings.Trim(id, "0") == "" {
		return shard.Lineage{}
	}
	return shard.Lineage{ID: id, End: next - 1}
}

func upstream(in *info) *shard.Upstream {
	l := &shard.Upstream{
		Up:      in.text("master_link_status") == "up",
		Syncing: in.number("master_sync_in_progress", 0) != 0,
		Input:   in.seconds("master_last_io_seconds_ago"),
	}
	host, port := in.text("master_host"), in.text("master_port")
	if port != nowherePort {
		l.Address = net.JoinHostPort(host, port)
	}
	return l
}

// followers reads lines such as slave0:ip=10.0.0.2,port=6379,state=online,offset=14,lag=0.
func followers(in *info) []shard.Follower {
	var all []shard.Follower
	for i := range shard.MaxMembers {
		line, ok := in.get("slave" + strconv.Itoa(i))
		if !ok {
			break
		}
		fields := map[string]string{}
		for field := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = value
		}
		offset, err := strconv.ParseInt(fields["offset"], 10, 64)
		lag, err2 := strconv.ParseInt(fields["lag"], 10, 64)
		if err != nil || err2 != nil {
			in.bad = "slave" + strconv.Itoa(i)
			continue
		}
		all = append(all, shard.Follower{
			Address: net.JoinHostPort(fields["ip"], fields["port"]),
			Txn:     offset,
			Online:  fields["state"] == "online",
			Lag:     time.Duration(min(max(lag, 0), maxSeconds)) * time.Second,
		})
	}
	return all
}

// keys counts those of all databases, from lines such as db0:keys=5,expires=0,avg_ttl=0.
func keys(in *info) int64 {
	var sum int64
	for name, value := range in.fields {
		number, ok := strings.CutPrefix(name, "db")
		if _, err := strconv.Atoi(number); !ok || err != nil {
			continue
		}
		first, _, _ := strings.Cut(value, ",")
		n, err := strconv.ParseInt(strings.TrimPrefix(first, "keys="), 10, 64)
		if err != nil {
			in.bad = name
		}
		sum += n
	}
	return sum
}

func version(in *info) string {
	if v := in.text("valkey_version"); v != "" {
		return "Valkey " + v
	}
	return "Redis " + in.text("redis_version")
}

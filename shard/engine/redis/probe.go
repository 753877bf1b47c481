package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/wire"
)

// Probe implements [shard.Engine].
func (n *Node) Probe(ctx context.Context) (shard.State, error) {
	replies, err := n.do(ctx, n.probe,
		[]string{"INFO", "server"}, []string{"INFO", "replication"}, []string{"INFO", "keyspace"}, []string{"INFO", "persistence"},
		[]string{"CONFIG", "GET", "min-replicas-*"}, []string{"CONFIG", "GET", "replica-read-only"},
		[]string{"CONFIG", "GET", "append*"}, []string{"CONFIG", "GET", "dir"})
	if err != nil {
		return shard.State{}, err
	}
	var text strings.Builder
	for _, r := range replies[:4] {
		text.WriteString(r.Text)
		text.WriteByte('\n')
	}
	s, err := parseState(text.String())
	if err != nil {
		return shard.State{}, fmt.Errorf("node %s: %w", n.address, err)
	}
	if s.Fence, s.Needs, err = parseFence(replies[4].Items); err != nil {
		return shard.State{}, fmt.Errorf("node %s: %w", n.address, err)
	}
	// It would take writes that the shard never knows, whatever its fence: that is for primaries.
	if items := replies[5].Items; s.Role == shard.Replica && len(items) == 2 && items[1].Text == "no" {
		return shard.State{}, fmt.Errorf("%w: node %s: it accepts writes as a replica: set replica-read-only yes", shard.ErrUnsupported, n.address)
	}
	s.LogPath = logPath(slices.Concat(replies[6].Items, replies[7].Items))
	return s, nil
}

// maxLag is the lag in seconds with which a fence is armed. One that allows more closes too late
// to count as armed.
const maxLag = 1

// parseFence reads the answer to CONFIG GET, names and values in turn.
func parseFence(items []wire.Reply) (f shard.Fence, needs int, err error) {
	values := map[string]int{}
	for name, value := range settings(items) {
		values[name], _ = strconv.Atoi(value)
	}
	replicas, ok := values["min-replicas-to-write"]
	lag, ok2 := values["min-replicas-max-lag"]
	switch {
	case !ok || !ok2:
		return "", 0, fmt.Errorf("%w: CONFIG GET does not tell min-replicas-to-write", shard.ErrUnsupported)
	case replicas <= 0 || lag <= 0:
		return shard.Open, 0, nil
	case strconv.Itoa(replicas) == closedWith:
		return shard.Closed, 0, nil
	case lag > maxLag:
		return shard.Open, replicas, nil
	}
	return shard.Armed, replicas, nil
}

// settings are names and values of an answer to CONFIG GET, which has them in turn.
func settings(items []wire.Reply) map[string]string {
	values := map[string]string{}
	for i := 0; i+1 < len(items); i += 2 {
		values[items[i].Text] = items[i+1].Text
	}
	return values
}

// info is the text of INFO, by field.
type info struct {
	fields map[string]string
	bad    string // a field that was no number
}

func parseInfo(text string) *info {
	in := &info{fields: map[string]string{}}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		if ok && !strings.HasPrefix(name, "#") {
			in.fields[name] = value
		}
	}
	return in
}

// get returns a field by its name, or by what a server calls it that speaks of
// primaries and replicas.
func (in *info) get(name string) (string, bool) {
	value, ok := in.fields[name]
	if !ok {
		value, ok = in.fields[modern(name)]
	}
	return value, ok
}

func modern(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "master", "primary"), "slave", "replica")
}

func (in *info) text(name string) string {
	value, _ := in.get(name)
	return value
}

// number returns missing if there is no such field.
func (in *info) number(name string, missing int64) int64 {
	value, ok := in.get(name)
	if !ok {
		return missing
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		in.bad = name
	}
	return n
}

func (in *info) seconds(name string) time.Duration {
	n := in.number(name, -1)
	if n < 0 {
		return -1
	}
	return time.Duration(min(n, maxSeconds)) * time.Second
}

// maxSeconds is how much of a server's count of seconds is believed.
const maxSeconds = 10 * 365 * 24 * 3600

package checks

import (
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/understudy-ha/understudy/shard"
)

// rule is a check: whether the answer is yes. Its error is a question that cannot be
// understood.
type rule func(s shard.Status, q url.Values) (bool, error)

// rules are the checks by their path.
func rules() map[string]rule {
	never := func(shard.Status, url.Values) (bool, error) { return false, nil }
	all := map[string]rule{
		"/leader":         plain(func(s shard.Status) bool { return s.Holding }),
		"/read-only":      readOnly,
		"/read-only-sync": primaryAt,
		"/standby-leader": never,
		"/sync":           never,
		"/synchronous":    never,
		"/health":         plain(shard.Status.IsUp),
		"/liveness":       plain(alive),
		"/readiness":      plain(func(s shard.Status) bool { return s.IsPrimary() || s.IsUp() && s.StoreDown == 0 }),
	}
	for _, path := range []string{"/{$}", "/primary", "/read-write", "/master"} {
		all[path] = primaryAt
	}
	for _, path := range []string{"/replica", "/async", "/asynchronous"} {
		all[path] = replica
	}
	return all
}

func plain(f func(shard.Status) bool) rule {
	return func(s shard.Status, _ url.Values) (bool, error) { return f(s), nil }
}

// primaryAt is [shard.Status.IsPrimary], of this node or, with "node=ADDRESS", of another of the shard: whether the agent would send
// clients there. A balancer asks a peer so while the primary's own agent is gone.
func primaryAt(s shard.Status, q url.Values) (bool, error) {
	address := q.Get("node")
	if own, known := s.View.Node(s.NodeID); address == "" || known && own.IsAt(address) {
		return s.IsPrimary(), nil
	}
	e, err := s.View.PrimaryEndpoint()
	r, known := s.View.Node(e.NodeID)
	return err == nil && (e.Address == address || known && r.IsAt(address)), nil
}

func alive(s shard.Status) bool {
	if s.State.Role == shard.Primary {
		return s.LoopAge <= s.Timeout
	}
	return s.LoopAge <= 2*s.Timeout
}

func readOnly(s shard.Status, q url.Values) (bool, error) {
	ok, err := replica(s, q)
	return err == nil && (ok || s.IsPrimary()), err
}

func replica(s shard.Status, q url.Values) (bool, error) {
	ok := s.State.Role == shard.Replica && s.IsUp() && s.State.Synced
	for name := range q {
		ok = ok && !strings.HasPrefix(name, "tag_") // Patroni's nodes have tags: no node here has the one that is asked for
	}
	if q.Get("lag") == "" {
		return ok, nil
	}
	most, err := size(q.Get("lag"))
	if err != nil {
		return false, err
	}
	lag, known := lagOf(s)
	return ok && known && lag <= most, nil
}

// lagOf is what the node lacks of what the shard's primary was last known to have. Without the store that is known only
// as long as the primary itself is heard.
func lagOf(s shard.Status) (int64, bool) {
	p, known := s.View.Node(s.View.Row.Primary)
	if l := s.State.Link; s.StoreDown > s.Timeout && (l == nil || !l.Up || l.Input < 0 || l.Input > s.Timeout) {
		return 0, false
	}
	return max(p.Txn-s.State.Txn, 0), known
}

// size reads a number with a unit, as Patroni does: kB, MB, GB and TB are powers of 1024.
func size(text string) (int64, error) {
	digits := strings.TrimRight(text, "abkmgtABKMGT ")
	unit := strings.ToLower(strings.TrimSpace(text[len(digits):]))
	factors := map[string]float64{"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
	factor, ok := factors[unit]
	n, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil || !(n >= 0) || n*factor > math.MaxInt64/2 {
		return 0, fmt.Errorf("lag=%.40q is not a valid size; use a number, alone or with kB, MB or GB", text)
	}
	return int64(n * factor), nil
}

package doctor

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/internal/secret"
	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// partTimeout bounds the examination of one part.
const partTimeout = 5 * time.Second

// Config says what to examine, and by which timings.
type Config struct {
	// Name of the instance, for the session that measures.
	Name string
	// Timing and StopGrace of an instance.
	Timing    lease.Timing
	StopGrace time.Duration
	// Opening is how long it took to open the store.
	Opening time.Duration
	// Servers are asked, too. nil is none.
	Servers *Servers
	// Takeovers that a server's file promises.
	Takeovers []Takeover
	// Exposed are files with secrets that other users of this host can read.
	Exposed []string
}

// Examine examines a store that is open, every part that it keeps, and the servers, and foresees what
// would happen at a crash. The error is that of a store that does not answer; what
// is wrong with a part is a finding.
func Examine(ctx context.Context, st store.Store, c Config) ([]Finding, error) {
	asked := time.Now()
	info, err := st.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	answered := time.Now()
	found := []Finding{well("store", "%s, %s; opened in %s", info.Location, info.Server, termtext.Brief(c.Opening))}
	found = append(found, checkStore(info, asked.Add(answered.Sub(asked)/2))...)
	if SchemaFits(info) == nil {
		latency, err := measureLatency(ctx, st, c.Name, c.Timing)
		if err != nil {
			return nil, err
		}
		found = append(found, judgeLatency(latency, c.Timing))
		found = append(found, checkLimits(ctx, st)...)
		found = append(found, checkParts(ctx, st)...)
	}
	if c.Servers != nil {
		found = append(found, c.Servers.check(ctx)...)
	}
	for _, file := range c.Exposed {
		found = append(found, warn("secret", "other users of this host can read %s", file).
			withAdvice("docs/security.md#secrets", secret.FileAdvice))
	}
	return append(found, predictTakeovers(info.Notifies, c)...), nil
}

// checkParts examines each part that the store keeps. A part that cannot be read is a finding, and does not hide the others.
func checkParts(ctx context.Context, st store.Store) (found []Finding) {
	check := func(part string, f func(context.Context) ([]Finding, error)) {
		one, cancel := context.WithTimeout(ctx, partTimeout)
		defer cancel()
		got, err := f(one)
		found = append(found, got...)
		if err != nil {
			found = append(found, bad(part, "it cannot be looked at: %v", err).withAdvice("docs/stores.md", "see to the store, and ask again"))
		}
	}
	check("roles", func(ctx context.Context) ([]Finding, error) { return checkRoles(ctx, st) })
	if q, ok := st.(store.Queues); ok {
		check("queues", func(ctx context.Context) ([]Finding, error) { return checkQueues(ctx, q.QueueAdmin()) })
	}
	if j, ok := st.(store.Jobs); ok {
		check("jobs", func(ctx context.Context) ([]Finding, error) {
			sinks, err := hasSinks(ctx, st)
			if err != nil {
				return nil, err
			}
			return checkJobs(ctx, j.Jobs(), sinks)
		})
	}
	if m, ok := st.(store.Monitors); ok {
		check("monitor", func(ctx context.Context) ([]Finding, error) { return checkMonitor(ctx, m.Monitor()) })
	}
	if s, ok := st.(store.Shards); ok {
		check("shards", func(ctx context.Context) ([]Finding, error) { return checkShards(ctx, s.Registry()) })
	}
	return found
}

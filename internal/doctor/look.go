package doctor

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/internal/plain"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// lookTimeout bounds the look at one part.
const lookTimeout = 5 * time.Second

// Config says what is looked at, and by which timings it is judged.
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
}

// Look examines a store that is open, every part that it keeps, and the servers, and foresees what
// would happen at a crash. The error is that of a store that does not answer; what
// is wrong with a part is a finding.
func Look(ctx context.Context, st store.Store, c Config) ([]Finding, error) {
	asked := time.Now()
	info, err := st.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	answered := time.Now()
	found := []Finding{well("store", "%s, %s; opened in %s", info.Location, info.Server, plain.Brief(c.Opening))}
	found = append(found, examine(info, asked.Add(answered.Sub(asked)/2))...)
	if info.Schema == info.Wanted {
		latency, err := measure(ctx, st, c.Name, c.Timing)
		if err != nil {
			return nil, err
		}
		found = append(found, judgeLatency(latency, c.Timing))
		found = append(found, checkup(ctx, st)...)
		found = append(found, checkParts(ctx, st, c.Timing)...)
	}
	if c.Servers != nil {
		found = append(found, c.Servers.look(ctx)...)
	}
	return append(found, foresee(info.Notifies, c)...), nil
}

// checkParts looks at each part that the store keeps. One that cannot be looked at is a finding, and
// does not hide the others.
func checkParts(ctx context.Context, st store.Store, t lease.Timing) (found []Finding) {
	look := func(part string, f func(context.Context) ([]Finding, error)) {
		one, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		got, err := f(one)
		found = append(found, got...)
		if err != nil {
			found = append(found, bad(part, "it cannot be looked at: %v", err).does("docs/stores.md", "see to the store, and ask again"))
		}
	}
	look("roles", func(ctx context.Context) ([]Finding, error) { return checkRolesHeld(ctx, st, t) })
	if q, ok := st.(store.Queues); ok {
		look("queues", func(ctx context.Context) ([]Finding, error) { return checkQueuesFlow(ctx, q.Desk()) })
	}
	if m, ok := st.(store.Monitors); ok {
		look("monitor", func(ctx context.Context) ([]Finding, error) { return checkMonitorSees(ctx, m.Monitor()) })
	}
	if s, ok := st.(store.Shards); ok {
		look("shards", func(ctx context.Context) ([]Finding, error) { return checkShardsStand(ctx, s.Registry()) })
	}
	return found
}

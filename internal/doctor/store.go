package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// checkStore judges what the store tells about itself.
func checkStore(info store.Info, at time.Time) []Finding {
	schema := well("schema", "version %d", info.Schema)
	if info.Schema == 0 {
		schema = well("schema", "none yet: the first instance that starts on this store makes it")
	} else if err := SchemaFits(info); err != nil {
		do := "run: understudy store migrate"
		if info.Schema > info.Wanted {
			do = "use a newer understudy on this host"
		}
		schema = bad("schema", "%v", err).withAdvice("docs/backup.md#upgrades", "%s", do)
	}
	ahead := info.Now.Sub(at)
	clock := well("clock", "the store's clock is %s from this host's; the two are never compared", termtext.Brief(ahead.Abs()))
	if ahead.Abs() > time.Minute {
		clock = warn("clock", "the store's clock is %s from this host's; the two are never compared, but one of them is probably wrong", termtext.Brief(ahead.Abs())).
			withAdvice("docs/elect.md#when-a-clock-is-wrong", "look at both hosts' time synchronisation")
	}
	wakes := well("wake-ups", "a release wakes the standbys at once")
	if !info.Notifies {
		wakes = warn("wake-ups", "no notifications from this store: a release is noticed within one interval").
			withAdvice("docs/stores.md", "on PostgreSQL give a URL that leads past the pooler")
	}
	out := []Finding{schema, clock, wakes}
	for _, w := range info.Warnings {
		out = append(out, Finding{Check: "setting", Verdict: "warn", Says: w, See: "docs/stores.md"})
	}
	return out
}

// checkLimits tells how near the store's server is to its limits.
func checkLimits(ctx context.Context, st store.Store) (out []Finding) {
	c, ok := st.(store.Checkups)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	found, err := c.Checkup(ctx)
	if err != nil {
		return []Finding{warn("limits", "the server does not tell its limits: %v", err).withAdvice("docs/capacity.md#connections", "let this user read the server's statistics")}
	}
	for _, f := range found {
		one := Finding{Check: f.Check, Verdict: string(f.Verdict), Says: f.Says, Do: f.Do}
		if f.Verdict != store.OK {
			one.See = "docs/capacity.md#connections"
		}
		out = append(out, one)
	}
	return out
}

// measureLatency renews a session of its own and returns the latencies, in order.
func measureLatency(ctx context.Context, st store.Store, name string, t lease.Timing) ([]time.Duration, error) {
	s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(name+" (doctor)", ""), Timing: t}
	if _, err := st.StartSession(ctx, s); err != nil {
		return nil, err
	}
	var latency []time.Duration
	for range 20 {
		sent := time.Now()
		if _, err := st.RenewSession(ctx, s.ID); err != nil {
			return nil, err
		}
		latency = append(latency, time.Since(sent))
	}
	slices.Sort(latency)
	return latency, st.EndSession(ctx, s.ID, "doctor left")
}

func judgeLatency(latency []time.Duration, t lease.Timing) Finding {
	median, worst := latency[len(latency)/2], latency[len(latency)-1]
	l := well("latency", "a renewal takes %s (median of %d), %s at worst; interval %v, deadline of a call %v",
		termtext.Brief(median), len(latency), termtext.Brief(worst), t.Interval, t.CallTimeout())
	const see = "docs/operations.md#choosing-the-timings"
	switch {
	case worst > t.CallTimeout():
		l.Verdict = "bad"
		l.Says += ": roles would be lost"
		return l.withAdvice(see, "use a longer interval and timeout, or a faster store")
	case worst > t.Interval/2:
		l.Verdict = "warn"
		l.Says += ": little is left for a bad moment"
		return l.withAdvice(see, "use a longer interval and timeout, or a faster store")
	}
	return l
}

// SchemaFits says what to do about a schema that is not this program's.
func SchemaFits(info store.Info) error {
	switch {
	case cmp.Or(info.Readers, info.Schema) > info.Wanted:
		return fmt.Errorf("%w: the store has version %d, this program knows %d: use a newer understudy", store.ErrSchema, info.Schema, info.Wanted)
	case info.Schema < info.Wanted:
		return fmt.Errorf("%w: the store has version %d, this program wants %d: run understudy store migrate", store.ErrSchema, info.Schema, info.Wanted)
	default:
		return nil
	}
}

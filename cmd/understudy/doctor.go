package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/open"
)

// finding is one line of the doctor's report.
type finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"` // ok, warn or bad
	Says    string `json:"says"`
}

// errUnwell: the doctor found something bad, and has said what.
var errUnwell = errors.New("something above needs attention")

func (a *app) doctorCommand() *cobra.Command {
	var f instanceFlags
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the store against the timings, and tell what would happen at a crash",
		Long: `Check that the store can be reached, how long it takes against the timings, its
clock and its schema, and tell what would happen if a primary crashed now. It
starts a session of its own for the measurement, and ends it.`,
		Example: `  understudy doctor --store postgres://db/app --interval 1s --timeout 5s`,
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.doctor(c.Context(), f)
		},
	}
	f.register(c.Flags())
	return c
}

func (a *app) doctor(ctx context.Context, f instanceFlags) error {
	if err := f.validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	opened := time.Now()
	st, err := open.Open(ctx, a.storeURL, open.Options{NoMigrate: true, Logger: a.log})
	if err != nil {
		return err
	}
	defer st.Close()
	asked := time.Now()
	info, err := st.Inspect(ctx)
	if err != nil {
		return err
	}
	answered := time.Now()
	found := []finding{{"store", "ok", fmt.Sprintf("%s, %s; opened in %s", info.Location, info.Server, brief(asked.Sub(opened)))}}
	found = append(found, examine(info, asked.Add(answered.Sub(asked)/2))...)
	if info.Schema == info.Wanted {
		latency, err := measure(ctx, st, f)
		if err != nil {
			return err
		}
		found = append(found, judgeLatency(latency, f.timing))
	}
	found = append(found, foresee(info, f)...)
	return a.report(found)
}

// examine judges what the store tells about itself.
func examine(info store.Info, at time.Time) []finding {
	schema := finding{"schema", "ok", fmt.Sprintf("version %d", info.Schema)}
	if err := schemaFits(info); err != nil {
		schema.Verdict, schema.Says = "bad", err.Error()
	}
	ahead := info.Now.Sub(at)
	clock := finding{"clock", "ok", fmt.Sprintf("the store's clock is %s from this host's; the two are never compared", brief(ahead.Abs()))}
	if ahead.Abs() > time.Minute {
		clock.Verdict = "warn"
		clock.Says += ", but one of them is probably wrong"
	}
	wakes := finding{"wake-ups", "ok", "a release wakes the standbys at once"}
	if !info.Notifies {
		wakes = finding{"wake-ups", "warn", "no notifications from this store: a release is noticed within one interval"}
	}
	out := []finding{schema, clock, wakes}
	for _, w := range info.Warnings {
		out = append(out, finding{"setting", "warn", w})
	}
	return out
}

// measure renews a session of its own and returns the latencies, in order.
func measure(ctx context.Context, st store.Store, f instanceFlags) ([]time.Duration, error) {
	s := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance(f.name+" (doctor)", ""), Timing: f.timing}
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

func judgeLatency(latency []time.Duration, t lease.Timing) finding {
	median, worst := latency[len(latency)/2], latency[len(latency)-1]
	l := finding{"latency", "ok", fmt.Sprintf("a renewal takes %s (median of %d), %s at worst; interval %v, deadline of a call %v",
		brief(median), len(latency), brief(worst), t.Interval, t.CallTimeout())}
	switch {
	case worst > t.CallTimeout():
		l.Verdict = "bad"
		l.Says += ": roles would be lost; use a longer timeout"
	case worst > t.Interval/2:
		l.Verdict = "warn"
		l.Says += ": little is left for a bad moment"
	}
	return l
}

// foresee tells what would happen.
func foresee(info store.Info, f instanceFlags) []finding {
	t := f.timing
	graceful := "within milliseconds"
	if !info.Notifies {
		graceful = fmt.Sprintf("within %v", t.Interval)
	}
	return []finding{
		{"stop", "ok", "a primary that stops hands over " + graceful},
		{"crash", "ok", fmt.Sprintf("a primary that crashes is followed after %v, %v at worst", t.Timeout, t.WorstTakeover())},
		{"cut off", "ok", fmt.Sprintf("a primary that loses the store begins to stop %v after its last renewal and is dead %v after it, %v before a successor can begin",
			t.Timeout-t.Interval-f.stopGrace, t.Timeout-t.Interval, t.Interval)},
		{"clock step", "ok", fmt.Sprintf("a step of the store's clock makes no second primary, and delays a takeover by %v at most", t.Timeout)},
	}
}

func (a *app) report(found []finding) error {
	unwell := false
	var rows []string
	for _, f := range found {
		unwell = unwell || f.Verdict == "bad"
		rows = append(rows, row(f.Verdict, f.Check, f.Says))
	}
	var err error
	if a.json() {
		err = a.printJSON(found)
	} else {
		err = a.table("VERDICT\tCHECK\tWHAT IT SAYS", rows)
	}
	if err == nil && unwell {
		return errUnwell
	}
	return err
}

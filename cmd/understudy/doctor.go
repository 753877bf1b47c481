package main

import (
	"context"
	"errors"
	"fmt"
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
	// Do is what a person can do about it, and See where that is explained.
	Do  string `json:"do,omitempty"`
	See string `json:"see,omitempty"`
}

func well(check, format string, args ...any) finding {
	return finding{Check: check, Verdict: "ok", Says: fmt.Sprintf(format, args...)}
}

// warn and bad say what is the matter; does adds what to do.
func warn(check, format string, args ...any) finding {
	return finding{Check: check, Verdict: "warn", Says: fmt.Sprintf(format, args...)}
}

func bad(check, format string, args ...any) finding {
	return finding{Check: check, Verdict: "bad", Says: fmt.Sprintf(format, args...)}
}

func (f finding) does(see, format string, args ...any) finding {
	f.Do, f.See = fmt.Sprintf(format, args...), see
	return f
}

// errUnwell: the doctor found something bad, and has said what.
var errUnwell = errors.New("something above needs attention")

// doctorFlags say what is looked at, and with which timings.
type doctorFlags struct {
	instanceFlags
	file      string
	servers   []string
	tokenFile string
	ready     bool

	config                    *serveConfig // that was read from file; nil without one
	storeGiven, timingByFlags bool
}

func (a *app) doctorCommand() *cobra.Command {
	var f doctorFlags
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the store and every part, and tell what would happen at a crash",
		Long: `Check that the store can be reached, how long it takes against the timings, its clock, its schema and its
limits; then every part that is in use: roles without a holder, queues, the monitor, shards. It starts a session of
its own for the measurement, and ends it. In the end it tells what would happen if an instance crashed now.

With -c the store and the timings are those of a server's file, and each part of the file is told. With --server it also
asks running servers, agents of shards, or peers of a cache how they are: any number, of which it compares the versions.

Each line has a verdict: ok, warn, or bad, with what to do and where that is explained. Exit 1 if one is bad, 4 if the
store cannot be reached. With --ready it only asks the servers whether they are ready, and no store: for probes
of containers that have no shell.`,
		Example: `  understudy doctor --store postgres://db/app --interval 1s --timeout 5s
  understudy doctor -c /etc/understudy/understudy.yaml --server http://127.0.0.1:7600
  understudy doctor -o json | jq -r '.[] | select(.verdict == "bad") | .do'
  understudy doctor --ready --server http://127.0.0.1:7600`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.ready {
				return a.ready(c.Context(), f)
			}
			changed := c.Flags().Changed
			f.storeGiven, f.timingByFlags = changed("store"), changed("interval") || changed("timeout")
			return a.doctor(c.Context(), f)
		},
	}
	f.register(c.Flags())
	c.Flags().StringVarP(&f.file, "config", "c", "", "take store and timings from a server's configuration `FILE`")
	c.Flags().StringArrayVar(&f.servers, "server", nil, "also ask the server, agent or peer at this `URL`; may be given again")
	c.Flags().StringVar(&f.tokenFile, "token-file", "", "send the token in this `FILE` to servers (default: that in $UNDERSTUDY_TOKEN, if any)")
	c.Flags().BoolVar(&f.ready, "ready", false, "only ask the servers whether they are ready; exit 1 if one is not")
	return c
}

// complete takes over what the file says.
func (f *doctorFlags) complete(a *app) (err error) {
	if f.file == "" {
		return f.validate()
	}
	if f.config, err = readConfig(f.file); err != nil {
		return err
	}
	if f.config.Store != "" && !f.storeGiven {
		a.storeURL = f.config.Store
	}
	if !f.timingByFlags {
		f.timing = f.config.timing()
	}
	f.stopGrace = 0
	for _, r := range f.config.Roles {
		f.stopGrace = max(f.stopGrace, time.Duration(r.StopGrace))
	}
	return f.validate()
}

func (a *app) doctor(ctx context.Context, f doctorFlags) error {
	if err := f.complete(a); err != nil {
		return err
	}
	asker, err := f.asker()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	opened := time.Now()
	if err := a.needStore(); err != nil {
		return err
	}
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
	found := []finding{well("store", "%s, %s; opened in %s", info.Location, info.Server, brief(asked.Sub(opened)))}
	found = append(found, examine(info, asked.Add(answered.Sub(asked)/2))...)
	if info.Schema == info.Wanted {
		latency, err := measure(ctx, st, f.instanceFlags)
		if err != nil {
			return err
		}
		found = append(found, judgeLatency(latency, f.timing))
		found = append(found, checkup(ctx, st)...)
		found = append(found, checkParts(ctx, st, f.timing)...)
	}
	found = append(found, asker.look(ctx)...)
	found = append(found, foresee(info, f)...)
	return a.report(found)
}

// checkParts looks at each part that the store keeps. One that cannot be looked at is a finding, and
// does not hide the others.
func checkParts(ctx context.Context, st store.Store, t lease.Timing) (found []finding) {
	look := func(part string, f func(context.Context) ([]finding, error)) {
		one, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		got, err := f(one)
		found = append(found, got...)
		if err != nil {
			found = append(found, bad(part, "it cannot be looked at: %v", err).does("docs/stores.md", "see to the store, and ask again"))
		}
	}
	look("roles", func(ctx context.Context) ([]finding, error) { return checkRolesHeld(ctx, st, t) })
	if q, ok := st.(store.Queues); ok {
		look("queues", func(ctx context.Context) ([]finding, error) { return checkQueuesFlow(ctx, q.Desk()) })
	}
	if m, ok := st.(store.Monitors); ok {
		look("monitor", func(ctx context.Context) ([]finding, error) { return checkMonitorSees(ctx, m.Monitor()) })
	}
	if s, ok := st.(store.Shards); ok {
		look("shards", func(ctx context.Context) ([]finding, error) { return checkShardsStand(ctx, s.Registry()) })
	}
	return found
}

func (a *app) report(found []finding) error {
	unwell := false
	var rows []string
	for _, f := range found {
		unwell = unwell || f.Verdict == "bad"
		says := f.Says
		if f.Do != "" {
			says += "; " + f.Do
		}
		if f.See != "" {
			says += " (" + f.See + ")"
		}
		rows = append(rows, row(f.Verdict, f.Check, says))
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

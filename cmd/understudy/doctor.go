package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/understudy-ha/understudy/internal/doctor"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/store/open"
)

// errUnwell: the doctor found something bad, and has said what.
var errUnwell = errors.New("something above needs attention")

// doctorFlags say what is looked at, and with which timings.
type doctorFlags struct {
	instanceFlags
	file      string
	servers   []string
	tokenFile string
	ready     bool

	config                    *settings.Server // that was read from file; nil without one
	storeGiven, timingByFlags bool
}

func (a *app) doctorCommand() *cobra.Command {
	var f doctorFlags
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check the store and every part, and report what would happen at a crash",
		Long: `Check that the store can be reached, how long it takes against the timings, its clock, its schema and its
limits; then every part that is in use: roles without a holder, queues, jobs, the monitor, shards; and that no other user
can read the secret files. It starts a session of its own for the measurement, and ends it. At the end it reports what
would happen if an instance crashed now.

With -c the store and the timings are those of a server's file, and each part of the file is reported. With --server it also
asks running servers, agents of shards, or peers of a cache how they are: any number, of which it compares the versions.

Each line has a verdict: ok, warn, or bad, with what to do and where that is explained. Exit 1 if one is bad, 4 if the
store cannot be reached. With --ready it only asks the servers whether they are ready, and no store: for probes
of containers that have no shell.`,
		Example: `  understudy doctor --store postgres://db/app --interval 1s --timeout 5s
  understudy doctor -c /etc/understudy/understudy.yaml --server http://127.0.0.1:7600
  understudy doctor -o json | jq -r 'select(.verdict == "bad").do'
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
	c.Flags().StringVar(&f.tokenFile, "token-file", "", "send the token in this `FILE` to servers (default: that of $UNDERSTUDY_TOKEN or $UNDERSTUDY_TOKEN_FILE)")
	c.Flags().BoolVar(&f.ready, "ready", false, "only ask the servers whether they are ready; exit 1 if one is not")
	return c
}

// complete takes over what the file says.
func (f *doctorFlags) complete(a *app) (err error) {
	if f.file == "" {
		return f.validate()
	}
	if f.config, err = settings.Read(f.file); err != nil {
		return err
	}
	a.flags = nil // what is in the environment has been read, as serve reads it
	if f.config.Store != "" && !f.storeGiven {
		a.StoreURL = f.config.Store
	}
	if !f.timingByFlags {
		f.session.Interval, f.session.Timeout = f.config.Interval, f.config.Timeout
	}
	f.role.StopGrace = 0
	for _, r := range f.config.Roles {
		f.role.StopGrace = max(f.role.StopGrace, r.StopGrace)
	}
	for _, j := range f.config.Jobs {
		f.role.StopGrace = max(f.role.StopGrace, j.StopGrace)
	}
	return f.validateFor(f.role.StopGrace) // 0: the file has neither
}

func (a *app) doctor(ctx context.Context, f doctorFlags) error {
	if err := f.complete(a); err != nil {
		return err
	}
	servers, err := f.asked()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := a.needStore(); err != nil {
		return err
	}
	began := time.Now()
	st, err := open.Open(ctx, a.StoreURL, open.Options{NoMigrate: true, Logger: a.Log})
	if err != nil {
		return err
	}
	defer st.Close()
	found, err := doctor.Examine(ctx, st, doctor.Config{
		Name: f.session.Name, Timing: f.session.Timing(), StopGrace: f.role.StopGrace, Opening: time.Since(began), Servers: servers, Takeovers: f.takeovers(),
		Exposed: settings.ExposedFiles(f.secretFiles(a.storeFile)...),
	})
	if err != nil {
		return err
	}
	return a.report(found)
}

// asked are the servers that the command line names, and the token for them.
func (f *doctorFlags) asked() (*doctor.Servers, error) {
	if len(f.servers) == 0 {
		return doctor.NewServers(nil, "")
	}
	token, err := tokenIn(f.tokenFile)
	if err != nil {
		return nil, err
	}
	return doctor.NewServers(f.servers, token)
}

// secretFiles is what names files with secrets: the server's file, the command line, and the environment, which names storeFile.
func (f *doctorFlags) secretFiles(storeFile string) []any {
	named := []any{&settings.Server{TokenFile: f.tokenFile, StoreFile: storeFile}}
	if f.config != nil {
		named = append(named, f.config)
	}
	return named
}

// takeovers are those that the file promises.
func (f *doctorFlags) takeovers() []doctor.Takeover {
	if f.config == nil {
		return nil
	}
	var out []doctor.Takeover
	for _, p := range f.config.Parts() {
		if p.WorstMS > 0 {
			out = append(out, doctor.Takeover{Part: p.Part, Name: p.Name, Worst: time.Duration(p.WorstMS) * time.Millisecond, Means: p.Means})
		}
	}
	return out
}

// ready asks all servers whether they are, and nothing else.
func (a *app) ready(ctx context.Context, f doctorFlags) error {
	servers, err := f.asked()
	if err != nil {
		return err
	}
	if len(f.servers) == 0 {
		return usererr.Errorf("--ready belongs to --server URL")
	}
	return a.report(servers.Ready(ctx))
}

func (a *app) report(found []doctor.Finding) error {
	err := printList(a, found, "VERDICT\tCHECK\tMESSAGE", func(f doctor.Finding) string {
		says := f.Says
		if f.Do != "" {
			says += "; " + f.Do
		}
		if f.See != "" {
			says += " (" + f.See + ")"
		}
		return row(f.Verdict, f.Check, says)
	})
	unwell := slices.ContainsFunc(found, func(f doctor.Finding) bool { return f.Verdict == "bad" })
	if err == nil && unwell {
		return errUnwell
	}
	return err
}

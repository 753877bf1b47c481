package main

import (
	"cmp"
	"io"
	"log/slog"
	"os"
	"os/user"
	"time"

	"github.com/spf13/pflag"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/outagelog"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/internal/usererr"
)

const (
	// callTimeout bounds each request of the commands that ask once.
	callTimeout = 5 * time.Second
	// payloadTimeout bounds one that carries payloads, which may be long.
	payloadTimeout = 6 * callTimeout
	// progressEvery is how often a command that takes long says how far it is.
	progressEvery = 2 * time.Second
)

// app is what all commands share: the global flags and where to print.
type app struct {
	stdout, stderr io.Writer
	mayCreate      bool // openStore may make the store: the command is for one that may not be there yet

	// Host has the URL of the store that the flags name, and the log.
	instance.Host

	output, logLevel, logFormat string
	// serverURL is asked instead of the store, with the token in tokenFile; see resolveEndpoint.
	serverURL, tokenFile string
	serverErr            error  // what is wrong with the server that the environment names
	storeNamed           bool   // by a flag or the environment
	storeFile            string // the file that has the store's URL, if the environment names one
	storeErr             error  // why there is no store: StoreURL is ""
	command              string // that was given, by its path
	requiredFeature      string // of the store, by such a command: queues, jobs or sources; see requires
	flags                *pflag.FlagSet
	warnedOfVariables    bool
}

// prepare checks the global flags, makes the log, and decides which server or store is used (resolveEndpoint).
func (a *app) prepare() error {
	if a.output != "table" && a.output != "json" {
		return usererr.Errorf("-o %q: the formats are table and json", a.output)
	}
	if err := a.logAs(cmp.Or(a.logLevel, os.Getenv("UNDERSTUDY_LOG_LEVEL")), cmp.Or(a.logFormat, os.Getenv("UNDERSTUDY_LOG_FORMAT"))); err != nil {
		return err
	}
	// An empty FILE is that of a variable that is not set: without a token, an API that this process serves would be open to everyone.
	if f := a.flags.Lookup("token-file"); f != nil && f.Changed && f.Value.String() == "" {
		return usererr.Errorf("--token-file is empty")
	}
	return a.resolveEndpoint()
}

// logAs makes the log of a level and a format; "" is the default.
func (a *app) logAs(level, format string) error {
	l, err := settings.LogOptions(level, format)
	if err != nil {
		return err
	}
	a.Level = &slog.LevelVar{}
	a.Level.Set(l)
	options := &slog.HandlerOptions{Level: a.Level}
	if format == "json" {
		options.ReplaceAttr = inMillis
		a.Log = slog.New(outagelog.New(slog.NewJSONHandler(a.stderr, options)))
	} else {
		a.Log = slog.New(outagelog.New(slog.NewTextHandler(a.stderr, options)))
	}
	return nil
}

// inMillis names the unit of a duration, as all JSON of this program does; the handler's own are bare nanoseconds.
func inMillis(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Int64(a.Key+"_ms", a.Value.Duration().Milliseconds())
	}
	return a
}

// warnOfExposed warns once of files with secrets that other users can read.
func (a *app) warnOfExposed(named ...any) {
	named = append(named, &settings.Server{StoreFile: a.storeFile})
	if w := settings.ExposedWarning(settings.ExposedFiles(named...)); w != "" {
		a.Log.Warn("secrets can be read by other users", "warning", w)
	}
}

// operator is the person at this terminal, for the history.
func operator() string {
	u, err := user.Current()
	if err != nil {
		return "somebody@" + instance.Hostname()
	}
	return u.Username + "@" + instance.Hostname()
}

package settings

import (
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/internal/strictyaml"
)

// envPrefix starts the names of all variables of the environment that this program knows.
const envPrefix = "UNDERSTUDY_"

// overrides puts what the environment says in the place of what the file says.
func (c *Server) overrides(environ []string) ([]strictyaml.EnvKey, error) {
	guarded := slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, envPrefix+"TERM=") && v != envPrefix+"TERM=" })
	return strictyaml.TakeEnv(c, envPrefix, environ, func(name string) bool {
		return guarded && name == envPrefix+"NAME" // it is that of the program's guard
	})
}

// LogEnvironment logs which keys the environment sets, and which of its variables are unknown.
func LogEnvironment(log *slog.Logger, taken []strictyaml.EnvKey, environ []string) {
	for _, k := range taken {
		log.Info("the environment goes before the file", "variable", k.Name, "key", k.Path)
	}
	for _, w := range UnknownVariables(environ) {
		log.Warn("unknown variable in the environment", "warning", w)
	}
}

// UnknownVariables returns a warning for each variable that has this program's prefix and is not known.
func UnknownVariables(environ []string) []string {
	known := otherVariables()
	for _, k := range strictyaml.EnvKeys(reflect.TypeFor[Server](), envPrefix) {
		known = append(known, k.Name)
	}
	var out []string
	for name := range strictyaml.Variables(envPrefix, environ) {
		if slices.Contains(known, name) || slices.ContainsFunc(otherPrefixes(), func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		out = append(out, fmt.Sprintf("%s is set in the environment: unknown variable, ignored%s", name, strictyaml.DidYouMean(name, known)))
	}
	slices.Sort(out)
	return out
}

// otherVariables are those that are no keys: of commands that ask a server, and those that
// programs get which this one runs.
func otherVariables() []string {
	var out []string
	for _, name := range []string{
		"API", "CACHE", "CACHE_HTTP",
		"ROLE", "ID", "NAME", "TERM", "PLACE", "JOB", "SCHEDULED",
		"QUEUE", "BATCH", "KEY", "SEQUENCE", "ATTEMPT", "CONTENT_TYPE", "HEADERS", "ORIGIN",
		"SHARD", "NODE", "EPOCH", "EVENT", "FROM", "TO", "WHEN",
		"PROVE", "SEED", "REQUIRE_BACKENDS", "SHOTS", "SERVER", "GATE", "OLD", "OTHER",
	} {
		out = append(out, envPrefix+name)
	}
	return out
}

// otherPrefixes begin the names of variables that hooks get, or tests.
func otherPrefixes() []string {
	return []string{envPrefix + "EVENT_", envPrefix + "TEST_", envPrefix + "FAULT", envPrefix + "DEMO"}
}

// Environment is what the environment says of a configuration, for who shows it.
func Environment() []strictyaml.EnvKey {
	taken, _ := new(Server).overrides(os.Environ())
	return taken
}

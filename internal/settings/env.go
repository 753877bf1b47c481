package settings

import (
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
)

// envPrefix starts the names of all variables of the environment that this program knows.
const envPrefix = "UNDERSTUDY_"

// applyEnvironment puts what the environment says in the place of what the file says, and returns the keys that it set.
func (c *Server) applyEnvironment(environ []string) ([]strictyaml.EnvKey, error) {
	taken, outdated, err := strictyaml.ApplyEnv(c, envPrefix, environ, setByGuard(environ))
	c.outdated = append(c.outdated, outdated...)
	return taken, err
}

// setByGuard reports of variables whether the guard of this program has set them, and not its user.
func setByGuard(environ []string) func(name string) bool {
	guarded := strictyaml.Variables(envPrefix, environ)[envPrefix+"TERM"] != ""
	return func(name string) bool { return guarded && name == envPrefix+"NAME" }
}

// EnvironmentStore returns the URL of the store that the environment names, as for a server without a file, and the file
// that it was read from; "" is none.
func EnvironmentStore(environ []string) (url, file string, err error) {
	return environmentSecret(environ, envPrefix+"STORE")
}

// EnvironmentToken returns the token that the environment names, as for a server without a file; "" is none.
func EnvironmentToken(environ []string) (string, error) {
	token, _, err := environmentSecret(environ, envPrefix+"TOKEN")
	return token, err
}

// environmentSecret returns the value of a variable, or of the file that the variable of the same name with _FILE names, and
// that file.
func environmentSecret(environ []string, plain string) (value, file string, err error) {
	inFile := plain + "_FILE"
	said := strictyaml.Variables(envPrefix, environ)
	if value, file = said[plain], said[inFile]; file == "" {
		return value, "", nil
	}
	if value != "" {
		return "", "", usererr.Errorf("%s and %s, in the environment, exclude each other", plain, inFile)
	}
	value, err = ReadSecret(inFile, file)
	return value, file, err
}

// ServerVariables returns the variables of the environment that set a key of the server's file for which is returns true.
func ServerVariables(environ []string, is func(strictyaml.EnvKey) bool) (names []string) {
	said, guards := strictyaml.Variables(envPrefix, environ), setByGuard(environ)
	for _, k := range strictyaml.EnvKeys(reflect.TypeFor[Server](), envPrefix) {
		if said[k.Name] != "" && !guards(k.Name) && is(k) {
			names = append(names, k.Name)
		}
	}
	return names
}

// LogEnvironment logs which keys the environment sets, and which of its variables are unknown.
func LogEnvironment(log *slog.Logger, taken []strictyaml.EnvKey, environ []string) {
	for _, k := range taken {
		log.Info("the environment goes before the file", "variable", k.Name, "key", k.Path)
	}
	LogUnknownVariables(log, environ)
}

// LogUnknownVariables logs a warning for each of [UnknownVariables].
func LogUnknownVariables(log *slog.Logger, environ []string) {
	for _, w := range UnknownVariables(environ) {
		log.Warn("unknown variable in the environment", "warning", w)
	}
}

// UnknownVariables returns a warning for each variable that has this program's prefix, a value, and is not known.
func UnknownVariables(environ []string) []string {
	known, old := otherVariables(), []string{}
	for _, k := range strictyaml.EnvKeys(reflect.TypeFor[Server](), envPrefix) {
		known, old = append(known, k.Name), append(old, k.Was)
	}
	var out []string
	inPod := slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, "KUBERNETES_SERVICE_HOST=") })
	for name, value := range strictyaml.Variables(envPrefix, environ) {
		if value == "" || inPod && ofService.MatchString(name) || slices.Contains(known, name) || slices.Contains(old, name) ||
			slices.ContainsFunc(otherPrefixes(), func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		out = append(out, fmt.Sprintf("%s is set in the environment: unknown variable, ignored%s", name, strictyaml.DidYouMean(name, known)))
	}
	slices.Sort(out)
	return out
}

// ofService are the variables that Kubernetes sets in each pod for a Service whose name starts with "understudy".
var ofService = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// otherVariables are those that are no keys: of commands that ask a server, and those that
// programs get which this one runs.
func otherVariables() []string {
	var out []string
	for _, name := range []string{
		"API", "CACHE", "CACHE_HTTP",
		"ROLE", "ID", "NAME", "TERM", "PLACE", "JOB", "SCHEDULED",
		"QUEUE", "MESSAGE_ID", "BATCH", "KEY", "SEQUENCE", "ATTEMPT", "CONTENT_TYPE", "HEADERS", "ORIGIN",
		"SHARD", "NODE", "EPOCH", "EVENT", "FROM", "TO", "WHEN",
		"PROVE", "SEED", "SOAK", "REQUIRE_BACKENDS", "POSTGRES_BIN", "REDIS_SERVER", "SABLEDB", "SHOTS", "SERVER", "GATE", "OLD", "OTHER",
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
	taken, _ := new(Server).applyEnvironment(os.Environ())
	return taken
}

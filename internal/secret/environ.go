package secret

import (
	"slices"
	"strings"
)

// DropFrom returns an environment without UNDERSTUDY_STORE and UNDERSTUDY_TOKEN, a URL with a password and a token, and without
// the variables that name files with them. Programs that Understudy starts get this one, unless they are to use its store.
func DropFrom(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		name = strings.TrimSuffix(name, "_FILE")
		return name == "UNDERSTUDY_STORE" || name == "UNDERSTUDY_TOKEN"
	})
}

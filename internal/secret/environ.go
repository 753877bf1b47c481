package secret

import (
	"slices"
	"strings"
)

// DropFrom returns an environment without UNDERSTUDY_STORE and UNDERSTUDY_TOKEN: a URL with a password, and a token.
// Programs that Understudy starts get this one, unless they are to use its store.
func DropFrom(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		return strings.HasPrefix(v, "UNDERSTUDY_STORE=") || strings.HasPrefix(v, "UNDERSTUDY_TOKEN=")
	})
}

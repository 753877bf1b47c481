package secret

import (
	"slices"
	"strings"
)

// FileAdvice is what to do about a file with a secret that more users than its owner can read.
const FileAdvice = "run chmod 600 on it, as its owner, who must be the user that runs Understudy; or chmod 640, owned by root, with that user's group"

// DropFrom returns an environment without UNDERSTUDY_STORE and UNDERSTUDY_TOKEN, a URL with a password and a token, and without
// the variables that name files with them. Programs that Understudy starts get this one, unless they are to use its store.
func DropFrom(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		name = strings.TrimSuffix(name, "_FILE")
		return name == "UNDERSTUDY_STORE" || name == "UNDERSTUDY_TOKEN"
	})
}

package settings

import (
	"errors"
	"fmt"
	"os/exec"

	"github.com/understudy-ha/understudy/internal/strict"
	"github.com/understudy-ha/understudy/internal/usage"
)

// Missing says of each program that a role or a hook runs, and that cannot be started on this host, which that is and
// on which line it stands. It is no mistake of the file: that may be meant for another host, or the program may come
// later.
func (c *Server) Missing() []string {
	f := &strict.Findings{Lines: c.lines}
	look := func(path, whose string, command []string) {
		if len(command) == 0 {
			return
		}
		_, err := exec.LookPath(command[0])
		if err == nil {
			return
		}
		var why *exec.Error
		if errors.As(err, &why) {
			err = why.Err
		}
		f.At(path, usage.Errorf("%s: the program %s of %s cannot be started: %v", path, command[0], whose, err))
	}
	for i, r := range c.Roles {
		look(fmt.Sprintf("roles[%d].command", i), fmt.Sprintf("role %q", r.Role), r.Command)
	}
	for i, h := range c.Hooks {
		look(fmt.Sprintf("hooks[%d].command", i), fmt.Sprintf("hook %d", i+1), h.Command)
	}
	var out []string
	for _, err := range f.List {
		out = append(out, err.Error())
	}
	return out
}

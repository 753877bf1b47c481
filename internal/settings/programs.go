package settings

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"

	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
)

// Warnings returns what does not keep a server from starting: keys that have an old name or no effect, programs that cannot be
// started on this host, and files of secrets that others may read. The file may be meant for another host, or the program
// may come later.
func (c *Server) Warnings() []string {
	out := append(slices.Clone(c.outdated), c.missingPrograms()...)
	if w := ExposedWarning(ExposedFiles(c)); w != "" {
		out = append(out, w)
	}
	return out
}

func (c *Server) missingPrograms() []string {
	f := &strictyaml.Findings{Lines: c.lines}
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
		f.At(path, usererr.Errorf("%s: the program %s of %s cannot be started: %v", path, command[0], whose, err))
	}
	for i, r := range c.Roles {
		look(fmt.Sprintf("roles[%d].command", i), fmt.Sprintf("role %q", r.Role), r.Command)
	}
	for i, j := range c.Jobs {
		look(fmt.Sprintf("jobs[%d].command", i), fmt.Sprintf("job %q", j.Job), j.Command)
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

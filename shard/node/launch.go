package node

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// LaunchArg is the first argument of a process that is to call [Launch] with the arguments after it, before it does
// anything else.
const LaunchArg = "launch-node"

// goFD is where a process that waits to become the node hears that it may.
const goFD = 3

// Launch becomes the node, whose program and arguments it is given, once the agent has written node.pid. It returns only
// if it cannot, or if the agent ended before.
func Launch(argv []string) error {
	gate := os.NewFile(goFD, "gate")
	if gate == nil || len(argv) < 2 {
		return errors.New(LaunchArg + " is for internal use")
	}
	if _, err := io.ReadFull(gate, make([]byte, 1)); err != nil {
		return fmt.Errorf("%s: the agent ended before it had written down the node's process: %w", LaunchArg, err)
	}
	if err := gate.Close(); err != nil {
		return err
	}
	if err := syscall.Exec(argv[0], argv[1:], os.Environ()); err != nil {
		return fmt.Errorf("%s: %s cannot be executed: %w", LaunchArg, argv[0], err)
	}
	return nil
}

// prepare starts a process that becomes the node when it reads something from the gate, and ends when the gate closes
// before: so there is no node whose process nobody has written down.
func (p *Process) prepare(out *os.File) (cmd *exec.Cmd, gate *os.File, err error) {
	path, err := p.program()
	if err != nil {
		return nil, nil, err
	}
	wait, gate, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer wait.Close()
	cmd = exec.Command(selfPath())
	cmd.Args = slices.Concat([]string{os.Args[0], LaunchArg, path}, p.argv)
	cmd.Env = append(os.Environ(), p.cfg.Env...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = p.cfg.WorkDir, out, out, []*os.File{wait}
	cmd.SysProcAttr = apart()
	if err := cmd.Start(); err != nil {
		return nil, nil, errors.Join(err, gate.Close())
	}
	return cmd, gate, nil
}

// program is where the node's program is.
func (p *Process) program() (string, error) {
	name := p.argv[0]
	if strings.ContainsRune(name, filepath.Separator) && !filepath.IsAbs(name) && p.cfg.WorkDir != "" {
		name = filepath.Join(p.cfg.WorkDir, name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	// The node runs elsewhere.
	return filepath.Abs(path)
}

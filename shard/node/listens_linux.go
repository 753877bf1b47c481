package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listens returns nil if the process itself listens on the address's port, in the network
// namespace of this process.
func listens(pid int, address string) error {
	port, owners, err := ownersOf(address)
	if err != nil {
		return err
	}
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	err = holds(proc, owners)
	if errors.Is(err, fs.ErrPermission) {
		// Such is a process in a user namespace of its own (PrivateUsers= of systemd), also for its own user.
		if !resembles(proc, port, owners) {
			return fmt.Errorf("node: process %d cannot be looked into, and neither its user nor its title tells that it is the node of port %s: %w", pid, port, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("node: process %d is not the node of port %s: %w", pid, port, err)
	}
	return nil
}

// ownersOf returns the port of an address, and the sockets that listen there.
func ownersOf(address string) (port string, owners map[string]string, err error) {
	if _, port, err = net.SplitHostPort(address); err != nil {
		return "", nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", nil, err
	}
	return port, listeners(number), nil
}

// listener returns the process that listens on the address's port.
func listener(address string) (pid int, err error) {
	port, owners, err := ownersOf(address)
	if err != nil {
		return 0, err
	}
	all, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		if pid, err := strconv.Atoi(p.Name()); err == nil && holds(filepath.Join("/proc", p.Name()), owners) == nil {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("node: no process that this one may look into listens on port %s", port)
}

// listeners are the sockets that listen on a port in this network namespace, each with its user's number.
func listeners(port uint64) map[string]string {
	owners := map[string]string{}
	for _, table := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile(filepath.Join("/proc/self/net", table))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				owners["socket:["+f[9]+"]"] = f[7]
			}
		}
	}
	return owners
}

// holds returns nil if the process has one of the sockets open.
func holds(proc string, owners map[string]string) error {
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	theirs, err := os.Readlink(filepath.Join(proc, "ns", "net"))
	if err != nil {
		return err
	}
	if ours != theirs {
		return errors.New("it has a network of its own")
	}
	files, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if to, err := os.Readlink(filepath.Join(proc, "fd", f.Name())); err == nil && owners[to] != "" {
			return nil
		}
	}
	return errors.New("it does not listen there")
}

// resembles tells that a process which cannot be looked into is the one that listens: it runs as the user whose
// socket listens, and its title or command line names the port, as that of Redis and Valkey does.
func resembles(proc, port string, owners map[string]string) bool {
	status, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil {
		return false
	}
	same := false
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "Uid:" {
			for _, owner := range owners {
				same = same || owner == f[2]
			}
		}
	}
	title, err := os.ReadFile(filepath.Join(proc, "cmdline"))
	if err != nil || !same {
		return false
	}
	for _, word := range bytes.FieldsFunc(title, func(r rune) bool { return r == 0 || r == ' ' }) {
		if w := string(word); w == port || strings.HasSuffix(w, ":"+port) {
			return true
		}
	}
	return false
}

package node

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listens returns nil if the process itself listens on the address's port, in the network
// namespace of this process.
func listens(pid int, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return err
	}
	theirs, err := os.Readlink(filepath.Join(proc, "ns", "net"))
	if err != nil {
		return fmt.Errorf("node: process %d cannot be looked into: %w", pid, err)
	}
	if ours != theirs {
		return fmt.Errorf("node: process %d has a network of its own", pid)
	}
	inodes := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile(filepath.Join("/proc/self/net", table))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", number)) {
				inodes["socket:["+f[9]+"]"] = true
			}
		}
	}
	files, err := os.ReadDir(filepath.Join(proc, "fd"))
	if err != nil {
		return fmt.Errorf("node: process %d cannot be looked into: %w", pid, err)
	}
	for _, f := range files {
		if to, err := os.Readlink(filepath.Join(proc, "fd", f.Name())); err == nil && inodes[to] {
			return nil
		}
	}
	return fmt.Errorf("node: process %d does not listen on port %s", pid, port)
}

package node

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// listens returns nil if the process itself listens at the address, in the network namespace of this process.
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
		return fmt.Errorf("node: process %d is not the node at %s: %w", pid, address, err)
	}
	return nil
}

// ownersOf returns the port of an address, and the sockets that listen there, each with its user's number.
func ownersOf(address string) (port string, owners map[string]string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", nil, err
	}
	ip, _ := netip.ParseAddr(host) // of a name, whatever listens on the port
	return port, listeners(ip.Unmap().WithZone(""), number), nil
}

// listener returns the one process that listens at the address.
func listener(address string) (pid int, err error) {
	_, owners, err := ownersOf(address)
	if err != nil {
		return 0, err
	}
	all, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, p := range all {
		n, err := strconv.Atoi(p.Name())
		switch {
		case err != nil || holds(filepath.Join("/proc", p.Name()), owners) != nil:
		case pid != 0: // it would be the other that is killed when the node hangs
			return 0, fmt.Errorf("node: processes %d and %d both listen at %s; name the IP address of the one", pid, n, address)
		default:
			pid = n
		}
	}
	if pid == 0 {
		return 0, fmt.Errorf("node: no process that this one may look into listens at %s", address)
	}
	return pid, nil
}

// listeners are the sockets in this network namespace that take the connections to a port of an IP address, each with its
// user's number. Without an address they are all that listen on the port.
func listeners(ip netip.Addr, port uint64) map[string]string {
	owners, best := map[string]string{}, 0
	for _, table := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile(filepath.Join("/proc/self/net", table))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" {
				continue
			}
			host, at, _ := strings.Cut(f[1], ":")
			rank := accepts(tableAddress(host), ip)
			if at != fmt.Sprintf("%04X", port) || rank == 0 || rank < best {
				continue
			}
			if rank > best {
				clear(owners)
				best = rank
			}
			owners["socket:["+f[9]+"]"] = f[7]
		}
	}
	return owners
}

// accepts ranks a socket that listens at one address for connections to another, as the kernel does: the highest takes
// them, and 0 never does.
func accepts(local, to netip.Addr) int {
	switch {
	case !to.IsValid() || local == to:
		return 3
	case local.IsUnspecified() && local.Is4() == to.Is4():
		return 2
	case local.IsUnspecified() && local.Is6(): // it takes IPv4, too
		return 1
	}
	return 0
}

// tableAddress reads an address as the kernel's tables of sockets show it: words in the byte order of this machine.
func tableAddress(text string) netip.Addr {
	var b []byte
	for word := range slices.Chunk([]byte(text), 8) {
		n, err := strconv.ParseUint(string(word), 16, 32)
		if err != nil {
			return netip.Addr{}
		}
		b = binary.NativeEndian.AppendUint32(b, uint32(n))
	}
	ip, _ := netip.AddrFromSlice(b)
	return ip.Unmap()
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

package node

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/understudy-ha/understudy/shard"
)

// maxAncestors is how many programs may stand between the one that an agent starts and the node: a shell, say.
const maxAncestors = 16

// Foreign returns an error that wraps [shard.ErrNotManaged] if the node that answers at the address, and says that its
// process is pid, is certainly another than the one that was started here. A number of another namespace proves nothing.
func (p *Process) Foreign(pid int, address string) error {
	last, err := readMark(p.markFile())
	if err != nil || pid <= 1 || descends(pid, last.PID) || listens(pid, address) != nil {
		return nil
	}
	return fmt.Errorf("%w: process %d answers at %s, and the agent started process %d; stop the one, or give the other a port of its own", shard.ErrNotManaged, pid, address, last.PID)
}

// descends reports whether a process is another, or was started by it or by one of its children.
func descends(pid, from int) bool {
	for range maxAncestors {
		if pid == from {
			return true
		}
		if pid = parent(pid); pid <= 1 {
			return false
		}
	}
	return false
}

// parent is the number of a process's parent, 0 if it is not known.
func parent(pid int) int {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name before it, in brackets, may contain anything.
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.Atoi(f[1])
	return n
}

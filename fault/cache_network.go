//go:build linux

package fault

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// Network is a network of this host's own, with a namespace for each peer, whose
// packets all pass through the namespace of this process, where they can be lost one
// way. Everyone reaches 10.99.0.1, which is here.
type Network struct {
	tb      testing.TB
	holders []*exec.Cmd
	done    []chan struct{}
	losses  int // so far
}

// inside marks a test process that has a network namespace of its own.
const inside = "UNDERSTUDY_FAULT_NETNS"

// InNetwork runs the test in a process of its own with an empty network, and then
// returns nil: that process has done the work. There it returns the network. It
// skips the test where that is not allowed.
func InNetwork(t *testing.T, peers int) *Network {
	t.Helper()
	if os.Getenv(inside) != "1" {
		realserver.NeedRoot(t, "a network namespace")
		realserver.Find(t, "ip")
		// The death signal comes when the thread ends that started the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		only := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
		cmd := exec.Command("/proc/self/exe", "-test.run="+only, "-test.v", "-test.timeout=30m")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		t.Logf("in a network of its own:\n%s", out)
		for line := range strings.Lines(string(out)) { // the table of make prove is of what this process says was tried
			attr, ok := strings.CutPrefix(line, "=== ATTR  "+t.Name())
			if _, attr, found := strings.Cut(attr, " "); ok && found { // also of its subtests
				key, value, _ := strings.Cut(strings.TrimSpace(attr), " ")
				t.Attr(key, value)
			}
		}
		if err != nil {
			t.Errorf("in a network of its own: %v", err)
		}
		return nil
	}
	n := &Network{tb: t}
	t.Cleanup(n.close)
	n.ip("link set lo up")
	n.ip("addr add 10.99.0.1/32 dev lo")
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	for i := range peers {
		n.add(i + 1)
	}
	return n
}

// Address of the n-th peer.
func (*Network) Address(n int) string { return fmt.Sprintf("10.99.%d.2", n) }

// Wrap is what stands before the command line of the n-th.
func (n *Network) Wrap(at int) []string {
	return []string{"nsenter", "--net=" + n.namespace(at), "--"}
}

func (n *Network) namespace(at int) string {
	return fmt.Sprintf("/proc/%d/ns/net", n.holders[at-1].Process.Pid)
}

func (n *Network) add(at int) {
	holder := exec.Command("unshare", "--net", "sleep", "infinity")
	done := make(chan struct{})
	start(n.tb, holder, os.DevNull, done)
	n.holders, n.done = append(n.holders, holder), append(n.done, done)
	realserver.Eventually(n.tb, patience, "a namespace", func() error {
		own, _ := os.Readlink("/proc/self/ns/net")
		other, err := os.Readlink(n.namespace(at))
		if err == nil && own == other {
			err = errors.New("not yet")
		}
		return err
	})
	n.ip(fmt.Sprintf("link add v%d type veth peer name eth0 netns %d", at, holder.Process.Pid))
	n.ip(fmt.Sprintf("addr add 10.99.%d.1/24 dev v%d", at, at))
	n.ip(fmt.Sprintf("link set v%d up", at))
	for _, words := range []string{"link set lo up", fmt.Sprintf("addr add %s/24 dev eth0", n.Address(at)), "link set eth0 up",
		fmt.Sprintf("route add default via 10.99.%d.1", at)} {
		n.run(append(n.Wrap(at), append([]string{"ip"}, strings.Fields(words)...)...))
	}
}

// Cut loses what goes from one peer to another from now on.
func (n *Network) Cut(from, to int) { n.rule("add", from, to) }

// CutOff loses what goes from one peer to all others and back; this process still
// reaches it.
func (n *Network) CutOff(at int) { n.around(at, n.Cut) }

// Heal ends a cut.
func (n *Network) Heal(from, to int) { n.rule("del", from, to) }

// HealAll ends a CutOff.
func (n *Network) HealAll(at int) { n.around(at, n.Heal) }

func (n *Network) around(at int, f func(from, to int)) {
	for other := range n.holders {
		if other+1 != at {
			f(at, other+1)
			f(other+1, at)
		}
	}
}

func (n *Network) rule(what string, from, to int) {
	n.ip(fmt.Sprintf("rule %s iif v%d to %s blackhole", what, from, n.Address(to)))
}

// Lose loses what goes from one peer to another and has a port, as in "dport 80"; "" is everything.
func (n *Network) Lose(from, to int, port string) (heal func()) {
	if port != "" {
		port = "ipproto tcp " + port
	}
	// Only the number tells rules apart when one is removed: without it, the first that resembles it goes.
	n.losses++
	number := 1000 + n.losses
	n.ip(fmt.Sprintf("rule add pref %d iif v%d to %s %s blackhole", number, from, n.Address(to), port))
	return func() { n.ip(fmt.Sprintf("rule del pref %d", number)) }
}

// Unplug takes a peer's link down, and Plug up again.
func (n *Network) Unplug(at int) { n.ip(fmt.Sprintf("link set v%d down", at)) }

// Plug ends Unplug.
func (n *Network) Plug(at int) { n.ip(fmt.Sprintf("link set v%d up", at)) }

// Narrow lets no more than so many kilobits a second through to a peer; 0: all.
func (n *Network) Narrow(at, kbit int) {
	if kbit == 0 {
		n.run(strings.Fields(fmt.Sprintf("tc qdisc del dev v%d root", at)))
		return
	}
	n.run(strings.Fields(fmt.Sprintf("tc qdisc add dev v%d root tbf rate %dkbit burst 16kbit latency 500ms", at, kbit)))
}

func (n *Network) ip(words string) {
	n.tb.Helper()
	n.run(append([]string{"ip"}, strings.Fields(words)...))
}

func (n *Network) run(argv []string) {
	n.tb.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		n.tb.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

func (n *Network) close() {
	for i, h := range n.holders {
		_ = h.Process.Kill()
		<-n.done[i]
	}
}

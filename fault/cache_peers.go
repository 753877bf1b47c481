//go:build linux

package fault

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// The ports of every peer, each of which has an address of its own.
const (
	peerPort, apiPort, httpPort = "7701", "7801", "7901"
)

// PeersConfig describes [Peers].
type PeersConfig struct {
	Programs Programs
	Origin   *Origin
	// N is how many; 3.
	N int
	// Address of the n-th, from 1. Default: loopback addresses that nobody else uses.
	Address func(n int) string
	// Wrap is what stands before the n-th one's command line.
	Wrap func(n int) []string
	// TTL of values; 2 s. Announce is the announce timeout; 2 s. Fetch is the source's
	// deadline; 60 s.
	TTL, Announce, Fetch time.Duration
	// Keep: they have directories for their data.
	Keep bool
	// Options of every one, besides those.
	Options []string
}

// Peers are the members of a cache.
type Peers struct {
	PeersConfig
	tb   testing.TB
	dir  string
	all  []*Peer
	http *http.Client
	// token is the file with what HTTP asks for beyond loopback; "": nothing.
	token string
}

// bearer is that token.
const bearer = "a-token-that-nobody-needs-to-guess"

// Peer is one of them, over all its lives.
type Peer struct {
	Name           string
	URL, API, HTTP string
	// Worker: it is a cacheworker, without HTTP.
	Worker bool
	// Options of this one.
	Options []string
	// List is its list of members from the next start on; nil: the first N peers.
	List []*Peer

	peers *Peers
	n     int
	cmd   *exec.Cmd
	log   string
	done  chan struct{}
	lives atomic.Int64
	held  bool // stopped by a signal
}

// NewPeers makes a cluster, of which no peer runs yet. When the test ends so do
// those that were started, and tell what they did if it failed.
func NewPeers(tb testing.TB, cfg PeersConfig) *Peers {
	tb.Helper()
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&cfg.TTL, 2*time.Second)
	set(&cfg.Announce, 2*time.Second)
	set(&cfg.Fetch, time.Minute)
	if cfg.N == 0 {
		cfg.N = 3
	}
	if cfg.Address == nil {
		prefix := realserver.FreeNet(tb)
		cfg.Address = func(n int) string { return prefix + strconv.Itoa(n) }
	}
	c := &Peers{PeersConfig: cfg, tb: tb, dir: tb.TempDir(),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, DisableCompression: true}}}
	if !strings.HasPrefix(cfg.Address(1), "127.") {
		c.token = filepath.Join(c.dir, "token")
		if err := os.WriteFile(c.token, []byte(bearer), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	for n := range cfg.N {
		c.Add(n + 1)
	}
	tb.Cleanup(c.kill)
	return c
}

// Add makes one more peer. It is a member if no peer has been started yet.
func (c *Peers) Add(n int) *Peer {
	host := c.Address(n)
	name := "p" + strconv.Itoa(n)
	p := &Peer{Name: name, URL: "tcp://" + host + ":" + peerPort, API: "tcp://" + host + ":" + apiPort,
		HTTP: "http://" + host + ":" + httpPort, peers: c, n: n, log: filepath.Join(c.dir, name+".log")}
	c.all = append(c.all, p)
	return p
}

// Now is the host's boot clock.
func (c *Peers) Now() time.Duration { return since() }

// Pass lets time pass.
func (c *Peers) Pass(d time.Duration) { <-time.After(d) }

// All of them.
func (c *Peers) All() []*Peer { return c.all }

// Named is the peer of a name.
func (c *Peers) Named(name string) *Peer {
	return c.all[slices.IndexFunc(c.all, func(p *Peer) bool { return p.Name == name })]
}

// But are all but some.
func (c *Peers) But(some ...*Peer) []*Peer {
	return slices.DeleteFunc(slices.Clone(c.all), func(p *Peer) bool { return slices.Contains(some, p) })
}

// Start starts all of them and waits until they vote.
func (c *Peers) Start() {
	c.tb.Helper()
	for _, p := range c.all {
		p.Start()
	}
	c.Ready()
}

// Ready waits until all that run reach each other and vote.
func (c *Peers) Ready() {
	c.tb.Helper()
	for _, p := range c.all {
		if p.Exited() || p.Worker {
			continue
		}
		realserver.Eventually(c.tb, 2*patience, p.Name+" is ready", func() error {
			if p.Exited() {
				c.tb.Fatalf("%s has ended", p.Name)
			}
			v, err := p.Cluster()
			switch {
			case err != nil:
				return err
			case v.Partitioned || v.Abstaining || !v.Member || v.Connected < c.running():
				return fmt.Errorf("it says %+v", v)
			}
			return nil
		})
	}
}

func (c *Peers) running() (n int) {
	for _, p := range c.all {
		if !p.Exited() {
			n++
		}
	}
	return n
}

// Start starts a life of the peer.
func (p *Peer) Start(options ...string) {
	c := p.peers
	c.tb.Helper()
	p.lives.Add(1)
	p.done, p.held = make(chan struct{}), false
	args := []string{c.Programs.CacheWorker, "-gate", c.Origin.GateOf(p.Name)}
	if !p.Worker {
		args = []string{c.Programs.Understudy, "cache", "serve", "--http", strings.TrimPrefix(p.HTTP, "http://"), "--jitter", "0", "--insecure"}
		if c.token != "" {
			args = append(args, "--token-file", c.token, "--behind-tls")
		}
		if c.Keep {
			args = append(args, "--data", p.Data())
		}
	}
	args = append(args, "--url", p.URL, "--api", p.API, "--ttl", c.TTL.String(), "--announce-timeout", c.Announce.String(),
		"--fetch-timeout", c.Fetch.String())
	if !slices.Contains(slices.Concat(c.Options, p.Options, options), "--origin-cmd") {
		args = append(args, "--origin-url", c.Origin.Of(p.Name))
	}
	list := p.List
	if list == nil {
		list = c.all[:c.N]
	}
	for _, other := range list {
		args = append(args, "--peer", other.URL+","+other.API)
	}
	args = slices.Concat(args, c.Options, p.Options, options)
	if c.Wrap != nil {
		args = append(c.Wrap(p.n), args...)
	}
	p.cmd = exec.Command(args[0], args[1:]...)
	p.cmd.Dir, p.cmd.Env = c.dir, append(os.Environ(), "UNDERSTUDY_FAULT="+c.dir, "UNDERSTUDY_ORIGIN="+c.Origin.URL+"/of/"+p.Name)
	start(c.tb, p.cmd, p.log, p.done)
}

// Curl are the options of a peer whose source is a program.
func Curl() []string {
	return []string{"--origin-cmd", `sh -c 'exec curl -sSf -H "Understudy-Term: $UNDERSTUDY_TERM" "$UNDERSTUDY_ORIGIN/$UNDERSTUDY_KEY"' --`}
}

// Data is the peer's directory.
func (p *Peer) Data() string { return filepath.Join(p.peers.dir, p.Name+".data") }

// PID of the present life.
func (p *Peer) PID() int { return p.cmd.Process.Pid }

// Life counts the starts.
func (p *Peer) Life() int { return int(p.lives.Load()) }

// Exited reports whether the peer does not run.
func (p *Peer) Exited() bool {
	if p.done == nil {
		return true
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Kill ends it as a crash does, and returns when.
func (p *Peer) Kill() time.Duration {
	p.peers.Origin.Killing(p.Name)
	at := since()
	_ = p.cmd.Process.Kill()
	<-p.done
	return at
}

// Stop ends it as an operator does.
func (p *Peer) Stop() {
	p.peers.tb.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	select {
	case <-p.done:
	case <-time.After(patience):
		p.peers.tb.Errorf("%s did not stop within %v", p.Name, patience)
		p.Kill()
	}
}

// Stopped is Stop, and returns when it was told to.
func (p *Peer) Stopped() time.Duration {
	at := since()
	p.Stop()
	return at
}

// Pause stops its process where it is, and returns when.
func (p *Peer) Pause() time.Duration {
	p.held = true
	p.peers.Origin.Pausing(p.Name, true)
	at := since()
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	stopped(p.PID())
	return at
}

// GoOn ends a pause.
func (p *Peer) GoOn() {
	p.held = false
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	p.peers.Origin.Pausing(p.Name, false)
}

// Memory is what the peer's process has in RAM, in bytes.
func (p *Peer) Memory() int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	for line := range bytes.Lines(text) {
		if f := strings.Fields(string(line)); len(f) > 1 && f[0] == "VmRSS:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// Says waits until the peer has logged the words.
func (p *Peer) Says(words string, within time.Duration) {
	p.peers.tb.Helper()
	realserver.Eventually(p.peers.tb, within, fmt.Sprintf("%s says %q", p.Name, words), func() error {
		if text, _ := os.ReadFile(p.log); !strings.Contains(string(text), words) {
			return errors.New("it has not")
		}
		return nil
	})
}

func (c *Peers) kill() {
	for _, p := range c.all {
		if !p.Exited() {
			p.Kill()
		}
	}
	c.http.CloseIdleConnections()
	if !c.tb.Failed() {
		return
	}
	for _, p := range c.all {
		text, _ := os.ReadFile(p.log)
		lines := strings.Split(string(text), "\n")
		c.tb.Logf("%s said at last:\n%s", p.Name, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

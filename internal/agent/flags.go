package agent

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/understudy-ha/understudy/cache/source"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/engine/redis"
	"github.com/understudy-ha/understudy/shard/engine/sabledb"
	"github.com/understudy-ha/understudy/shard/node"
)

// Flags are the command line of an agent.
type Flags struct {
	Config   shard.Config
	priority int

	engine, user, passwordFile     string
	tls                            bool
	tlsCA, tlsCert, tlsKey         string
	listen, sentinel, sentinelPass string
	hook                           string
	keepNode                       bool
	stopWait                       time.Duration
	argv                           []string // the node's program; none if somebody else starts it
	open                           listeners
}

// Register makes the flags of a command line.
func (f *Flags) Register(fs *pflag.FlagSet) {
	c := &f.Config
	fs.StringVar(&c.Node, "node", "", "`ADDRESS` at which this agent reaches its node, HOST:PORT")
	fs.StringVar(&f.engine, "engine", "redis", "what the node is: `redis` (also Valkey) or sabledb")
	fs.StringVar(&c.Dir, "data", "", "keep the node's id, and what must survive a restart, in this `DIR`; one for each node")
	fs.StringVar(&c.Private, "private-address", "", "`ADDRESS` at which other nodes reach the node (default: --node)")
	fs.StringVar(&c.Announced, "announce", "", "`ADDRESS` at which clients reach the node (default: --node)")
	fs.DurationVar(&c.Timing.Interval, "interval", lease.DefaultInterval, "report, and renew the session, every `I`")
	fs.DurationVar(&c.Timing.Timeout, "timeout", lease.DefaultTimeout, "the session lapses `T` after a renewal; a silent primary is replaced after that")
	fs.StringVar(&f.listen, "listen", "", "answer HTTP checks on this `ADDRESS`, HOST:PORT (default: not at all)")
	fs.StringVar(&c.AgentAddress, "agent-address", "", "`ADDRESS` at which other agents reach --listen (default: that of --listen, with the host of --private-address if it is for all)")
	fs.StringVar(&f.sentinel, "sentinel", "", "answer Sentinel clients on this `ADDRESS`, HOST:PORT (default: not at all)")
	fs.StringVar(&f.sentinelPass, "sentinel-password-file", "", "Sentinel clients must give the password in this `FILE`")

	fs.IntVar(&f.priority, "priority", shard.DefaultPriority, "among equal replicas the higher is promoted; 0: never this one")
	fs.IntVar(&c.MinReplicas, "min-replicas", 0, "a write needs so many replicas, or it is refused; 0: one, as long as there is one")
	fs.Int64Var(&c.Policy.MaxLag, "max-lag", 0, "do not promote by itself a replica that lacks more than `N` (bytes, on Redis); 0: any")
	fs.IntVar(&c.Policy.Parallel, "parallel-syncs", 1, "let so many replicas copy from a new primary at once")
	fs.BoolVar(&c.KillHung, "kill-hung", true, "kill the node's process if it hangs when its fence has to be closed")
	fs.DurationVar(&c.RestartGrace, "restart-grace", 0, "the node's process may take so long to be back before its death is told")
	fs.DurationVar(&c.ForgetAfter, "forget-after", shard.DefaultForgetAfter, "forget a member that was silent for so long; negative: never")
	fs.BoolVar(&c.Discard, "discard-data", false, "the node may lose data that was never the shard's, in order to join it")
	fs.BoolVar(&f.keepNode, "keep-node", false, "leave the program that this agent supervises running when the agent is stopped")
	fs.DurationVar(&f.stopWait, "stop-wait", time.Minute, "the program that this agent supervises may take so long to stop; then it is left alone")

	fs.StringVar(&f.user, "user", "", "log in to the node as this `USER` (Redis ACL)")
	fs.StringVar(&f.passwordFile, "password-file", "", "log in to nodes with the password in this `FILE`")
	fs.BoolVar(&f.tls, "tls", false, "nodes speak TLS")
	fs.StringVar(&f.tlsCA, "tls-ca", "", "trust the certificates in this `FILE` instead of the system's")
	fs.StringVar(&f.tlsCert, "tls-cert", "", "show nodes the certificate in this `FILE`, PEM …")
	fs.StringVar(&f.tlsKey, "tls-key", "", "… of which the key is in this `FILE`")

	fs.StringVar(&f.hook, "hook", "", "run this `COMMAND`, without a shell, before and after a promotion and after other changes of role; if it fails before a promotion there is none")
	fs.DurationVar(&c.HookTimeout, "hook-timeout", shard.DefaultHookTimeout, "it may take so long")
}

// ForShard is complete for a shard, and for the node's program, which is none if somebody else starts it.
func (f *Flags) ForShard(name string, argv []string, log *slog.Logger) error {
	f.Config.Shard, f.argv = name, argv
	return f.complete(log)
}

// complete checks all that can be checked without store and node, and makes the engine.
func (f *Flags) complete(log *slog.Logger) error {
	c := &f.Config
	switch {
	case c.Node == "":
		return usage.Errorf("--node is missing: where does this agent reach its node? HOST:PORT, as in --node 127.0.0.1:6379")
	case c.Dir == "":
		return usage.Errorf("--data is missing: a folder of this node's own, as in --data /var/lib/understudy/%s", c.Shard)
	case f.keepNode && len(f.argv) == 0:
		return usage.Errorf("--keep-node belongs to a program after --")
	case c.RestartGrace < 0 || c.HookTimeout <= 0 || f.stopWait < 0:
		return usage.Errorf("--restart-grace, --hook-timeout and --stop-wait cannot be negative")
	case c.Policy.MaxLag < 0 || c.Policy.Parallel < 1:
		return usage.Errorf("--max-lag cannot be negative, and --parallel-syncs is at least 1")
	case f.priority < 0:
		return usage.Errorf("--priority %d: it is 0 or more", f.priority)
	}
	for _, address := range []struct{ flag, value string }{
		{"--node", c.Node}, {"--private-address", cmp.Or(c.Private, c.Node)}, {"--announce", cmp.Or(c.Announced, c.Node)}, {"--agent-address", cmp.Or(c.AgentAddress, c.Node)},
	} {
		if err := shard.ValidateAddress(address.flag, address.value); err != nil {
			return err
		}
	}
	if err := checkAgentTiming(c.Timing); err != nil {
		return err
	}
	if f.sentinelPass != "" && f.sentinel == "" {
		return usage.Errorf("--sentinel-password-file belongs to --sentinel")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return usage.Errorf("--data: %v", err)
	}
	c.Dir, c.Priority, c.Logger = dir, &f.priority, log
	if c.Engines, err = f.engines(); err != nil {
		return err
	}
	if err := f.placeAgent(); err != nil {
		return err
	}
	if err := f.hooks(log); err != nil {
		return err
	}
	return f.program(log)
}

// checkAgentTiming refuses what leaves no room to close the fence, and names what would do.
func checkAgentTiming(t lease.Timing) error {
	if err := t.Validate(0); err != nil {
		return err
	}
	least := t.Interval * 15 / 4 // T − T/5 ≥ 3·I
	if t.Timeout < least {
		return fmt.Errorf("%w: --interval %v and --timeout %v break T ≥ 3·I and a fifth of T, in which the fence closes; safe are --timeout %v, or --interval %v",
			lease.ErrUnsafeTiming, t.Interval, t.Timeout, least, (t.Timeout * 4 / 15).Truncate(time.Millisecond))
	}
	return nil
}

// placeAgent says where other agents reach this one.
func (f *Flags) placeAgent() error {
	c := &f.Config
	if f.listen == "" {
		if c.AgentAddress != "" {
			return usage.Errorf("--agent-address belongs to --listen")
		}
		return nil
	}
	host, port, err := net.SplitHostPort(f.listen)
	if err != nil {
		return usage.Errorf("--listen %q: use HOST:PORT", f.listen)
	}
	if c.AgentAddress != "" {
		return nil
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host, _, _ = net.SplitHostPort(cmp.Or(c.Private, c.Node))
	}
	c.AgentAddress = net.JoinHostPort(host, port)
	return nil
}

func (f *Flags) hooks(log *slog.Logger) error {
	if f.hook == "" {
		return nil
	}
	argv, err := source.Split(f.hook)
	if err != nil {
		return fmt.Errorf("--hook: %w", err)
	}
	hooks := &node.Hooks{Argv: argv, Timeout: f.Config.HookTimeout, Logger: log}
	if err := hooks.Validate(); err != nil {
		return fmt.Errorf("--hook: %w", err)
	}
	if _, err := exec.LookPath(argv[0]); err != nil {
		return usage.Errorf("--hook: %v", err)
	}
	f.Config.Hooks = hooks
	return nil
}

// engines of the nodes.
func (f *Flags) engines() (shard.Engines, error) {
	password, err := ReadPassword("--password-file", f.passwordFile)
	if err != nil {
		return nil, err
	}
	secured, err := f.clientTLS()
	if err != nil {
		return nil, err
	}
	exchange := min(time.Second, f.Config.Timing.Timeout/5)
	switch f.engine {
	case "redis":
		return redis.New(redis.Config{Username: f.user, Password: password, TLS: secured, Timeout: exchange})
	case "sabledb":
		if f.user != "" || password != "" {
			return nil, usage.Errorf("SableDB knows no users and passwords: leave --user and --password-file out")
		}
		return sabledb.New(sabledb.Config{TLS: secured, Timeout: exchange})
	}
	return nil, usage.Errorf("--engine %q: redis and sabledb are possible", f.engine)
}

// ReadPassword reads it from a file, without the line's end.
func ReadPassword(flag, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", usage.Errorf("%s: %v", flag, err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", usage.Errorf("%s: %s is empty", flag, file)
	}
	return password, nil
}

func (f *Flags) clientTLS() (*tls.Config, error) {
	if !f.tls {
		if f.tlsCA != "" || f.tlsCert != "" || f.tlsKey != "" {
			return nil, usage.Errorf("--tls-ca, --tls-cert and --tls-key belong to --tls")
		}
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.tlsCA != "" {
		text, err := os.ReadFile(f.tlsCA)
		if err != nil {
			return nil, usage.Errorf("--tls-ca: %v", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, usage.Errorf("--tls-ca: %s has no certificate, PEM", f.tlsCA)
		}
	}
	if (f.tlsCert == "") != (f.tlsKey == "") {
		return nil, usage.Errorf("--tls-cert and --tls-key go together")
	}
	if f.tlsCert != "" {
		pair, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
		if err != nil {
			return nil, usage.Errorf("--tls-cert and --tls-key: %v", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// program makes what supervises the node, or finds one that somebody else started.
func (f *Flags) program(log *slog.Logger) error {
	c := &f.Config
	if len(f.argv) == 0 {
		address := c.Node
		c.Adopt = func(pid int) (shard.Process, error) { return node.Adopt(pid, address) }
		return nil
	}
	// It runs in the data folder: what is named from here has to be found from there.
	path, err := exec.LookPath(f.argv[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return usage.Errorf("the node's program: %v", err)
	}
	argv := append([]string{path}, f.argv[1:]...)
	var appended []string
	if f.engine == "redis" {
		if len(argv) > 1 && !strings.HasPrefix(argv[1], "-") { // a configuration file
			if argv[1], err = filepath.Abs(argv[1]); err != nil {
				return usage.Errorf("the node's program: %v", err)
			}
		}
		appended = redis.StartArgs()
	}
	process, err := node.New(node.Config{Argv: argv, Append: appended, Dir: c.Dir, WorkDir: c.Dir, Logger: log})
	if err != nil {
		return err
	}
	c.Process = process
	return nil
}

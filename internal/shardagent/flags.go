package shardagent

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

	"github.com/understudy-ha/understudy/cache/origin"
	"github.com/understudy-ha/understudy/internal/podlabel"
	"github.com/understudy-ha/understudy/internal/strictyaml"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/agent"
	"github.com/understudy-ha/understudy/shard/engine/redis"
	"github.com/understudy-ha/understudy/shard/engine/sabledb"
	"github.com/understudy-ha/understudy/shard/node"
)

// Settings are the flags of an agent, and its keys in the server's file.
type Settings struct {
	Node           string `yaml:"node" help:"'ADDRESS' at which this agent reaches its node, HOST:PORT"`
	Engine         string `yaml:"engine" default:"redis" help:"the kind of node: redis (also Valkey) or sabledb"`
	Data           string `yaml:"data" help:"keep the node's ID, and what must survive a restart, in this 'DIR'; one for each node"`
	PrivateAddress string `yaml:"private_address" more:"yes" help:"'ADDRESS' at which other nodes reach the node (default: the node address); of a SableDB, from which they copy (default: port + 1000)"`
	NodeData       string `yaml:"node_data" more:"yes" help:"the database folder 'DIR' of a SableDB, which tells how far it is (default: as its program's arguments say, where the agent starts it)"`
	Announce       string `yaml:"announce" help:"'ADDRESS' at which clients reach the node (default: the node address)"`

	Interval time.Duration `yaml:"interval" default:"1s" help:"report, and renew the session, every I"`
	Timeout  time.Duration `yaml:"timeout" default:"5s" help:"the session lapses T after its last renewal, then a silent primary is replaced; T ≥ 3·I + T/5"`

	Listen               string `yaml:"listen" help:"answer HTTP checks and other agents on this 'ADDRESS', HOST:PORT (default: not at all)"`
	AgentAddress         string `yaml:"agent_address" more:"yes" help:"'ADDRESS' at which other agents reach the listen address (default: the listen address, with the host of the private address if it listens on all)"`
	Sentinel             string `yaml:"sentinel" help:"answer Sentinel clients on this 'ADDRESS', HOST:PORT (default: not at all)"`
	SentinelPasswordFile string `yaml:"sentinel_password_file" more:"yes" help:"Sentinel clients must give the password in this 'FILE'"`

	Priority      *int          `yaml:"priority" default:"100" help:"among equal replicas, promote the one with the highest priority; 0: never by itself"`
	MinReplicas   int           `yaml:"min_replicas" help:"reject writes acknowledged by fewer than this many replicas (0: 1 while any replica is connected)"`
	MaxLag        int64         `yaml:"max_lag" more:"yes" help:"do not promote a replica that lacks more than 'N' (bytes, on Redis), not even in a switchover, unless forced with --to NODE; 0: no limit"`
	ParallelSyncs int           `yaml:"parallel_syncs" more:"yes" default:"1" help:"let this many replicas copy from a new primary at once"`
	KillHung      *bool         `yaml:"kill_hung" more:"yes" default:"true" help:"kill the node's process if it hangs when its fence must be closed"`
	RestartGrace  time.Duration `yaml:"restart_grace" more:"yes" help:"let the node's process be down this long before reporting its death; only for a node that loses nothing in a restart"`
	ForgetAfter   time.Duration `yaml:"forget_after" more:"yes" default:"168h" help:"forget a member that has been silent this long; negative: never"`
	DiscardData   bool          `yaml:"discard_data" more:"yes" help:"allow the node to lose data that was never part of the shard, in order to join it"`
	UnfencedStart bool          `yaml:"unfenced_start" more:"yes" help:"manage a node that the agent does not start although its configuration lets it start open for writes"`
	HandOver      bool          `yaml:"hand_over" more:"yes" help:"when the agent stops, hand the primary over although something else started the node"`
	KeepNode      bool          `yaml:"keep_node" more:"yes" help:"leave the supervised program running when the agent stops"`
	StopWait      time.Duration `yaml:"stop_wait" more:"yes" default:"1m" help:"let the supervised program take this long to stop; then leave it alone"`

	User         string `yaml:"user" help:"log in to the node as this 'USER' (Redis ACL)"`
	PasswordFile string `yaml:"password_file" help:"log in to nodes with the password in this 'FILE'"`
	TLS          bool   `yaml:"tls" more:"yes" help:"connect to nodes over TLS"`
	TLSCA        string `yaml:"tls_ca" more:"yes" help:"trust the certificates in this 'FILE', not the system's"`
	TLSCert      string `yaml:"tls_cert" more:"yes" help:"show nodes the certificate in this 'FILE', PEM …"`
	TLSKey       string `yaml:"tls_key" more:"yes" help:"… whose key is in this 'FILE'"`

	Pod string `yaml:"pod" more:"yes" help:"label the Kubernetes pod of this 'NAME', in which agent and node run, understudy/role=primary while the node is the primary; a stop of the agent hands the primary over"`

	Hook        string        `yaml:"hook" more:"yes" help:"run this 'COMMAND', without a shell, before and after a promotion and after other role changes; if it fails before a promotion, the promotion does not happen"`
	HookTimeout time.Duration `yaml:"hook_timeout" more:"yes" default:"5s" help:"deadline of the hook"`
}

// Flags is the command line of an agent.
type Flags struct {
	Settings
	Config agent.Config

	argv             []string // the node's program; none if it is started elsewhere
	sentinelPassword string
	open             listeners
}

// Register makes the flags of a command line.
func (f *Flags) Register(fs *pflag.FlagSet) { strictyaml.Bind(fs, &f.Settings) }

// ForShard is complete for a shard, and for the node's program, which is none if someone else starts it.
func (f *Flags) ForShard(name string, argv []string, log *slog.Logger) error {
	f.Config.Shard, f.argv = name, argv
	f.configure()
	return f.complete(log)
}

// configure puts the settings that need no check of their own into the agent's configuration.
func (f *Flags) configure() {
	c := &f.Config
	c.Node, c.Dir, c.Private, c.Announced, c.AgentAddress = f.Node, f.Data, f.PrivateAddress, f.Announce, f.Settings.AgentAddress
	if f.Engine == engineSableDB { // what it calls private is for copying alone
		c.Private = ""
	}
	c.Timing = lease.Timing{Interval: f.Interval, Timeout: f.Timeout}
	c.Priority, c.MinReplicas = f.Priority, f.MinReplicas
	c.Policy.MaxLag, c.Policy.Parallel = f.MaxLag, f.ParallelSyncs
	c.KillHung, c.DiscardData = *f.KillHung, f.DiscardData
	c.HandOver = f.HandOver || f.Pod != ""
	c.RestartGrace, c.ForgetAfter, c.HookTimeout = f.RestartGrace, f.ForgetAfter, f.HookTimeout
}

// complete checks all that can be checked without store and node, and makes the engine.
func (f *Flags) complete(log *slog.Logger) error {
	c := &f.Config
	switch {
	case c.Node == "":
		return usererr.Errorf("--node is missing: where does this agent reach its node? HOST:PORT, as in --node 127.0.0.1:6379")
	case c.Dir == "":
		return usererr.Errorf("--data is missing: a folder of this node's own, as in --data /var/lib/understudy/%s", c.Shard)
	case c.Node == f.Settings.Listen || c.Node == f.Sentinel:
		return usererr.Errorf("--node %s is the node's address: --listen and --sentinel are the agent's own, and need other ports", c.Node)
	case f.NodeData != "" && f.Engine != engineSableDB:
		return usererr.Errorf("--node-data belongs to --engine sabledb")
	case f.UnfencedStart && len(f.argv) > 0:
		return usererr.Errorf("--unfenced-start is for a node that the agent does not start")
	case f.KeepNode && len(f.argv) == 0:
		return usererr.Errorf("--keep-node belongs to a program after --")
	case f.StopWait < 0:
		return usererr.Errorf("--stop-wait %v: it cannot be negative", f.StopWait)
	}
	if err := c.ValidateSettings(flagOf); err != nil {
		return err
	}
	if err := shard.ValidateAddress("--agent-address", cmp.Or(c.AgentAddress, c.Node)); err != nil {
		return err
	}
	if f.Pod != "" {
		if err := podlabel.ValidateName(f.Pod); err != nil {
			return err
		}
	}
	if f.SentinelPasswordFile != "" && f.Sentinel == "" {
		return usererr.Errorf("--sentinel-password-file belongs to --sentinel")
	}
	var err error
	if f.sentinelPassword, err = ReadPassword("--sentinel-password-file", f.SentinelPasswordFile); err != nil {
		return err
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return usererr.Errorf("--data: %v", err)
	}
	c.Dir, c.Logger = dir, log
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

// flagOf is the flag of a field of the agent's configuration.
func flagOf(field string) string {
	return "--" + strings.NewReplacer("announced address", "announce", " ", "-").Replace(field)
}

// placeAgent says where other agents reach this one.
func (f *Flags) placeAgent() error {
	c := &f.Config
	if f.Settings.Listen == "" {
		if c.AgentAddress != "" {
			return usererr.Errorf("--agent-address belongs to --listen")
		}
		return nil
	}
	host, port, err := net.SplitHostPort(f.Settings.Listen)
	if err != nil {
		return usererr.Errorf("--listen %q: use HOST:PORT", f.Settings.Listen)
	}
	if c.AgentAddress != "" {
		return nil
	}
	c.AgentAddress = net.JoinHostPort(specific(host, cmp.Or(c.Private, c.Node)), port)
	return nil
}

// specific is the host on which an endpoint listens, or that of the node's address if it listens on all.
func specific(host, node string) string {
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host, _, _ = net.SplitHostPort(node)
	}
	return host
}

// sentinelAddress is where clients of the node reach the Sentinel endpoint that listens at the address: "" if it
// listens for this host alone, and the node does not.
func (f *Flags) sentinelAddress(listener string) string {
	host, _, _ := net.SplitHostPort(f.Sentinel)
	_, port, _ := net.SplitHostPort(listener)
	node := cmp.Or(f.Config.Announced, f.Config.Node)
	host = specific(host, node)
	if isLoopback(host) && !isLoopback(node[:strings.LastIndexByte(node, ':')]) {
		return ""
	}
	return net.JoinHostPort(host, port)
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func (f *Flags) hooks(log *slog.Logger) error {
	if f.Hook == "" {
		return nil
	}
	argv, err := origin.Split(f.Hook)
	if err != nil {
		return fmt.Errorf("--hook: %w", err)
	}
	hooks := &node.Hooks{Argv: argv, Timeout: f.Config.HookTimeout, Logger: log}
	if err := hooks.Validate(); err != nil {
		return fmt.Errorf("--hook: %w", err)
	}
	if _, err := exec.LookPath(argv[0]); err != nil {
		return usererr.Errorf("--hook: %v", err)
	}
	f.Config.Hooks = hooks
	return nil
}

// engines of the nodes.
func (f *Flags) engines() (shard.Engines, error) {
	password, err := ReadPassword("--password-file", f.PasswordFile)
	if err != nil {
		return nil, err
	}
	secured, err := f.clientTLS()
	if err != nil {
		return nil, err
	}
	exchange := min(time.Second, f.Config.Timing.Timeout/5)
	switch f.Engine {
	case "redis":
		return redis.New(redis.Config{Username: f.User, Password: password, TLS: secured, Timeout: exchange})
	case engineSableDB:
		if f.User != "" || password != "" {
			return nil, usererr.Errorf("SableDB knows no users and passwords: leave --user and --password-file out")
		}
		return sabledb.New(sabledb.Config{Node: f.Config.Node, Replication: f.PrivateAddress, Folder: f.databaseFolder, TLS: secured, Timeout: exchange})
	}
	return nil, usererr.Errorf("--engine %q: redis and sabledb are possible", f.Engine)
}

const engineSableDB = "sabledb"

// databaseFolder is that of a SableDB: as --node-data says, or the arguments of the program that the agent starts, or where
// that has put it in its working directory. "": it is not known.
func (f *Flags) databaseFolder() string {
	folder := f.NodeData
	for i, arg := range f.argv {
		name, value, joined := strings.Cut(arg, "=")
		switch {
		case folder != "" || name != "--db-path" && name != "-d":
		case joined:
			folder = value
		case i+1 < len(f.argv):
			folder = f.argv[i+1]
		}
	}
	if folder != "" {
		if !filepath.IsAbs(folder) && f.NodeData == "" {
			folder = filepath.Join(f.Config.Dir, folder) // the program runs there
		}
		return folder
	}
	if len(f.argv) > 0 {
		if found, _ := filepath.Glob(filepath.Join(f.Config.Dir, "*", "changes.seq")); len(found) == 1 {
			return filepath.Dir(found[0])
		}
	}
	return ""
}

// ReadPassword reads it from a file, without the line's end.
func ReadPassword(flag, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", usererr.Errorf("%s: %v", flag, err)
	}
	password := strings.TrimRight(string(text), "\r\n")
	if password == "" {
		return "", usererr.Errorf("%s: %s is empty", flag, file)
	}
	return password, nil
}

func (f *Flags) clientTLS() (*tls.Config, error) {
	if !f.TLS {
		if f.TLSCA != "" || f.TLSCert != "" || f.TLSKey != "" {
			return nil, usererr.Errorf("--tls-ca, --tls-cert and --tls-key belong to --tls")
		}
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.TLSCA != "" {
		text, err := os.ReadFile(f.TLSCA)
		if err != nil {
			return nil, usererr.Errorf("--tls-ca: %v", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, usererr.Errorf("--tls-ca: %s has no certificate, PEM", f.TLSCA)
		}
	}
	if (f.TLSCert == "") != (f.TLSKey == "") {
		return nil, usererr.Errorf("--tls-cert and --tls-key go together")
	}
	if f.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(f.TLSCert, f.TLSKey)
		if err != nil {
			return nil, usererr.Errorf("--tls-cert and --tls-key: %v", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// program makes what supervises the node, or finds one that someone else started.
func (f *Flags) program(log *slog.Logger) error {
	c := &f.Config
	if len(f.argv) == 0 {
		address := c.Node
		c.Adopt = func(pid int) (shard.Process, error) { return node.Adopt(pid, address) }
		if f.Engine == "redis" {
			c.Inspect = f.checkStart
		}
		return nil
	}
	// It runs in the data folder: what is named from here has to be found from there.
	path, err := exec.LookPath(f.argv[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return usererr.Errorf("the node's program: %v", err)
	}
	argv := append([]string{path}, f.argv[1:]...)
	var appended []string
	if f.Engine == "redis" {
		if len(argv) > 1 && !strings.HasPrefix(argv[1], "-") { // a configuration file
			if argv[1], err = filepath.Abs(argv[1]); err != nil {
				return usererr.Errorf("the node's program: %v", err)
			}
		}
		appended = redis.StartArgs()
	}
	process, err := node.New(node.Config{Argv: argv, Append: appended, Dir: c.Dir, WorkDir: c.Dir, Logger: log})
	if err != nil {
		return err
	}
	c.Process = process
	c.Inspect = func(n shard.State) (string, error) { return "", process.Foreign(n.PID, c.Node) }
	return nil
}

// checkStart refuses a node that something else starts, open: after a crash it accepts writes before the agent can close
// it, when another may have been promoted.
func (f *Flags) checkStart(n shard.State) (warning string, err error) {
	err = redis.CheckStartFile(n.ConfigFile)
	switch {
	case err == nil:
		return "", nil
	case f.UnfencedStart:
		return fmt.Sprintf("something else starts the node, open for writes: %v", err), nil
	}
	return "", fmt.Errorf("%w: something else starts it, open for writes (accept that: --unfenced-start): %w", shard.ErrNotManaged, err)
}

package realserver

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/resp"
)

// RedisOptions describes a Redis server. The zero value is one that keeps
// nothing on disk.
type RedisOptions struct {
	// ReplicaOf makes it a replica of another server.
	ReplicaOf *RedisServer
	// AppendOnly keeps every write on disk before it is answered, so that a
	// restart loses nothing.
	AppendOnly bool
	// TLS serves TLS only, with a certificate of its own; see CACert.
	TLS bool
	// Password that clients must give, if not "".
	Password string
	// Args are added to its command line.
	Args []string
}

// RedisServer is a Redis server, or a Sentinel, that was started.
type RedisServer struct {
	Addr   string // host:port on loopback
	CACert string // file with the certificate to trust; "" without TLS

	opt  RedisOptions
	argv []string
	dir  string
	proc *Process
}

// Redis starts a Redis server that ends with the test.
func Redis(tb testing.TB, o RedisOptions) *RedisServer {
	tb.Helper()
	if o.TLS && os.Getenv(RedisEnv) != "" {
		tb.Skip("TLS is tried on Redis alone: the valkey-server that tests get has none")
	}
	s := &RedisServer{opt: o, dir: tb.TempDir()}
	port := s.listenOn(tb)
	s.argv = []string{Find(tb, "redis-server"), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--daemonize", "no",
		"--repl-diskless-sync-delay", "0"}
	if o.TLS {
		s.CACert = filepath.Join(s.dir, "cert.pem")
		key := filepath.Join(s.dir, "key.pem")
		writeCertificate(tb, s.CACert, key)
		s.argv = append(s.argv, "--port", "0", "--tls-port", port, "--tls-cert-file", s.CACert, "--tls-key-file", key,
			"--tls-ca-cert-file", s.CACert, "--tls-auth-clients", "no")
	} else {
		s.argv = append(s.argv, "--port", port)
	}
	if o.AppendOnly {
		s.argv = append(s.argv, "--appendonly", "yes", "--appendfsync", "always")
	}
	if o.Password != "" {
		s.argv = append(s.argv, "--requirepass", o.Password, "--masterauth", o.Password)
	}
	if o.ReplicaOf != nil {
		host, port, _ := net.SplitHostPort(o.ReplicaOf.Addr)
		s.argv = append(s.argv, "--replicaof", host, port)
	}
	s.argv = append(s.argv, o.Args...)
	s.Start(tb)
	return s
}

// RedisSentinel starts a Sentinel with a quorum of one that watches the master
// under the given name, and calls it down after the given time.
func RedisSentinel(tb testing.TB, name string, master *RedisServer, downAfter time.Duration) *RedisServer {
	tb.Helper()
	s := &RedisServer{dir: tb.TempDir()}
	port := s.listenOn(tb)
	host, masterPort, _ := net.SplitHostPort(master.Addr)
	config := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor %s %s %s 1\n"+
		"sentinel down-after-milliseconds %s %d\nsentinel failover-timeout %s 5000\n",
		port, s.dir, name, host, masterPort, name, downAfter.Milliseconds(), name)
	if master.opt.Password != "" {
		config += fmt.Sprintf("sentinel auth-pass %s %s\n", name, master.opt.Password)
	}
	file := filepath.Join(s.dir, "sentinel.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	s.argv = []string{Find(tb, "redis-server"), file, "--sentinel"}
	s.Start(tb)
	return s
}

// URL of the server's database 0, with its password and certificate.
func (s *RedisServer) URL() string {
	scheme, user, query := "redis", "", ""
	if s.opt.Password != "" {
		user = ":" + s.opt.Password + "@"
	}
	if s.opt.TLS {
		scheme, query = "rediss", "?cacert="+s.CACert
	}
	return scheme + "://" + user + s.Addr + "/0" + query
}

// Start runs the server again after Kill or Stop, on the same port and files, and
// waits until it answers.
func (s *RedisServer) Start(tb testing.TB) {
	tb.Helper()
	s.proc = Start(tb, exec.Command(s.argv[0], s.argv[1:]...))
	Eventually(tb, time.Minute, "redis-server answers", s.ping)
}

// Restart stops the server as an operator would, and starts it again.
func (s *RedisServer) Restart(tb testing.TB) {
	tb.Helper()
	s.Stop()
	s.Start(tb)
}

// Stop ends the server as an operator would.
func (s *RedisServer) Stop() { s.proc.Stop(syscall.SIGTERM) }

// Kill ends the server at once.
func (s *RedisServer) Kill() { s.proc.Kill() }

// Pause stops the server's process without closing its connections.
func (s *RedisServer) Pause() { s.proc.Signal(syscall.SIGSTOP) }

// Resume lets a paused server continue.
func (s *RedisServer) Resume() { s.proc.Signal(syscall.SIGCONT) }

// Do sends one command and returns the answer: the text of a simple or bulk string, a number, or how many
// elements an array has. It is for tests that must not depend on the client that they test.
func (s *RedisServer) Do(args ...string) (string, error) {
	conn, err := s.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	r := resp.NewReplyReader(bufio.NewReader(conn), resp.ReplyLimits{Line: 64 << 10, Bulk: 64 << 20, Items: 1 << 20, Depth: 8})
	if s.opt.Password != "" {
		if _, err := roundTrip(conn, r, "AUTH", s.opt.Password); err != nil {
			return "", err
		}
	}
	return roundTrip(conn, r, args...)
}

func roundTrip(w io.Writer, r *resp.ReplyReader, args ...string) (string, error) {
	if _, err := w.Write(resp.AppendCommand(nil, args)); err != nil {
		return "", err
	}
	reply, err := r.Reply()
	if err == nil {
		err = reply.Err()
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("redis-server: %w", err)
	case reply.Kind == ':':
		return strconv.FormatInt(reply.Int, 10), nil
	case reply.Kind == '*':
		return strconv.Itoa(len(reply.Items)), nil
	}
	return reply.Text, nil
}

func (s *RedisServer) ping() error {
	_, err := s.Do("PING")
	if err != nil && s.proc.Exited() {
		return fmt.Errorf("redis-server ended: %s", s.proc.Output())
	}
	return err
}

func (s *RedisServer) dial() (net.Conn, error) {
	d := net.Dialer{Timeout: time.Minute}
	if s.opt.TLS {
		return tls.DialWithDialer(&d, "tcp", s.Addr, &tls.Config{InsecureSkipVerify: true})
	}
	return d.Dial("tcp", s.Addr)
}

func (s *RedisServer) listenOn(tb testing.TB) (port string) {
	tb.Helper()
	port = strconv.Itoa(FreePort(tb))
	s.Addr = net.JoinHostPort("127.0.0.1", port)
	return port
}

// writeCertificate writes a certificate for 127.0.0.1 and localhost that signs
// itself.
func writeCertificate(tb testing.TB, certFile, keyFile string) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: pkcs8},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
}

package deploy

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/resp"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// here is this process, to every pod of a network of package fault.
const here = "10.99.0.1"

// database is a PostgreSQL behind here:5432, which lets the user understudy into the database understudy with a password.
func database(t *testing.T, password string) {
	t.Helper()
	s := realserver.Postgres(t, realserver.PostgresOptions{})
	for _, sql := range []string{"CREATE ROLE understudy LOGIN PASSWORD '" + password + "'", "CREATE DATABASE understudy OWNER understudy"} {
		if err := s.Exec(sql); err != nil {
			t.Fatal(err)
		}
	}
	rules := "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhost all understudy 127.0.0.1/32 scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(s.Socket, "data", "pg_hba.conf"), []byte(rules), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Exec("SELECT pg_reload_conf()"); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", here+":5432")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer from.Close()
				to, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.Port))
				if err != nil {
					return
				}
				defer to.Close()
				go func() { _, _ = io.Copy(to, from); to.Close() }()
				_, _ = io.Copy(from, to)
			}()
		}
	}()
}

// overTLS serves a handler at here, and returns the port and the authority.
func overTLS(t *testing.T, h http.Handler) (port, authority string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.ParseIP(here)}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", here+":0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	t.Cleanup(func() { server.Close() })
	go func() { _ = server.Serve(l) }()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// redis sends one command to a node.
func redis(address string, words ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write(resp.AppendCommand(nil, words)); err != nil {
		return "", err
	}
	reply, err := resp.NewReplyReader(bufio.NewReader(conn), resp.ReplyLimits{Line: 64 << 10, Bulk: 1 << 20, Items: 100, Depth: 8}).Reply()
	if err == nil {
		err = reply.Err()
	}
	return reply.Text, err
}

// written counts writes that a node acknowledged, one key each.
type written int

func (w *written) write(t *testing.T, address string) {
	t.Helper()
	realserver.Eventually(t, time.Minute, "a write at "+address, func() error {
		_, err := redis(address, "SET", "write-"+strconv.Itoa(int(*w)), "x")
		return err
	})
	*w++
}

// wantAll wants all of them at a node.
func (w written) wantAll(t *testing.T, address string) {
	t.Helper()
	for i := range int(w) {
		if got, err := redis(address, "GET", "write-"+strconv.Itoa(i)); err != nil || got != "x" {
			t.Errorf("write %d is not at %s: %q, %v", i, address, got, err)
		}
	}
}

// hosts is what a resolver would answer.
func hosts(names map[string]string) string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n")
	for name, address := range names {
		fmt.Fprintf(&b, "%s %s\n", address, name)
	}
	return b.String()
}

package server

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/usererr"
)

// pemPair makes a certificate of that serial number, and its key.
func pemPair(t *testing.T, serial int64, notAfter time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Unix(0, 0), NotAfter: notAfter,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

func put(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestCertificateReload replaces a server's certificate while it runs: new connections get the new one, and one
// that is broken, half replaced or gone leaves the old one.
func TestCertificateReload(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	ends := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	firstCert, firstKey := pemPair(t, 1, ends)
	secondCert, secondKey := pemPair(t, 2, ends.AddDate(1, 0, 0))
	put(t, certFile, firstCert)
	put(t, keyFile, firstKey)
	var said strings.Builder
	c, err := openCertificate(certFile, keyFile, slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c.now = func() time.Time { now = now.Add(certificateLooks); return now }

	l, err := tls.Listen("tcp", "127.0.0.1:0", c.config())
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	}()
	defer func() { l.Close(); <-served }()
	shows := func(want int64) {
		t.Helper()
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true}) // its serial number is looked at
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != want {
			t.Errorf("serial number %d, want %d", got, want)
		}
	}

	shows(1)
	put(t, certFile, []byte("no certificate"))
	shows(1)
	put(t, certFile, secondCert) // the key is still the old one's
	shows(1)
	if !strings.Contains(said.String(), "the old one stays") || strings.Contains(said.String(), "PRIVATE") {
		t.Errorf("the log:\n%s", said.String())
	}
	before := said.Len()
	shows(1)
	if said.Len() != before {
		t.Errorf("what is known to be broken was said again:\n%s", said.String()[before:])
	}
	put(t, keyFile, bytes.Repeat([]byte("x"), len(secondKey)))
	info, err := os.Stat(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	shows(1)
	// As with a key that chmod makes readable, all that can be seen from outside stays as it was.
	if err := os.WriteFile(keyFile, secondKey, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(keyFile, time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
	shows(2)
	if !c.expires().Equal(ends.AddDate(1, 0, 0)) {
		t.Errorf("expires at %v", c.expires())
	}
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	shows(2)
	if err := c.reload(); !errors.Is(err, usererr.Err) {
		t.Errorf("reload without a file: %v", err)
	}
	shows(2)
	put(t, certFile, firstCert)
	put(t, keyFile, firstKey)
	if err := c.reload(); err != nil {
		t.Fatal(err)
	}
	shows(1)
	put(t, certFile, secondCert)
	put(t, keyFile, secondKey)
	if !c.expires().Equal(ends.AddDate(1, 0, 0)) {
		t.Errorf("without a new connection: expires at %v", c.expires())
	}
}

func TestCertificateThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none.pem")
	if _, err := openCertificate(none, none, slog.New(slog.DiscardHandler)); !errors.Is(err, usererr.Err) {
		t.Errorf("without files: %v", err)
	}
}

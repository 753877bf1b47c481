package server

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"
	"time"
)

// TestClientsCertificates: a server with tls_client_ca verifies the certificates that clients show, and lets in who shows none.
func TestClientsCertificates(t *testing.T) {
	dir := t.TempDir()
	ends := time.Now().Add(time.Hour)
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	serverCert, serverKey := pemPair(t, 1, ends)
	put(t, certFile, serverCert)
	put(t, keyFile, serverKey)
	c, err := openCertificate(certFile, keyFile, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	clientCert, clientKey := pemPair(t, 2, ends) // signed by itself: it is its own CA
	c.clients = x509.NewCertPool()
	c.clients.AppendCertsFromPEM(clientCert)
	l, err := tls.Listen("tcp", "127.0.0.1:0", c.config())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.VerifiedChains) > 0 {
			w.WriteHeader(http.StatusAccepted)
		}
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })

	ask := func(certs ...tls.Certificate) (int, error) {
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(serverCert)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, ServerName: "localhost", Certificates: certs}}
		defer transport.CloseIdleConnections()
		a, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get("https://" + l.Addr().String())
		if err != nil {
			return 0, err
		}
		return a.StatusCode, a.Body.Close()
	}
	known, err := tls.X509KeyPair(clientCert, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	strangerCert, strangerKey := pemPair(t, 3, ends)
	stranger, err := tls.X509KeyPair(strangerCert, strangerKey)
	if err != nil {
		t.Fatal(err)
	}
	if status, err := ask(known); status != http.StatusAccepted || err != nil {
		t.Errorf("a client with a certificate of the CA: %d, %v", status, err)
	}
	if status, err := ask(); status != http.StatusOK || err != nil {
		t.Errorf("a client without one: %d, %v", status, err)
	}
	if status, err := ask(stranger); err == nil && status == http.StatusAccepted {
		t.Errorf("a certificate of another CA counts: %d", status)
	}
}

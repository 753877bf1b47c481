package settings

import (
	"crypto/x509"
	"fmt"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/internal/usererr"
)

// checkClients checks what is said of client certificates.
func (c *Server) checkClients() error {
	if (c.TLSClientCA == "") != (len(c.TLSClients) == 0) {
		return usererr.Errorf("tls_client_ca and tls_clients go together: the one says who signs client certificates, the other what each name may do")
	}
	if c.TLSClientCA == "" {
		return nil
	}
	if c.TLSCert == "" {
		return usererr.Errorf("tls_client_ca: clients show a certificate only to a server with TLS: set tls_cert and tls_key")
	}
	if _, err := c.ClientScopes(); err != nil {
		return err
	}
	_, err := c.ClientCAs()
	return err
}

// ClientCAs are the CAs that sign client certificates; nil for none.
func (c *Server) ClientCAs() (*x509.CertPool, error) {
	if c.TLSClientCA == "" {
		return nil, nil
	}
	text, err := readFile(c.TLSClientCA)
	if err != nil {
		return nil, usererr.Errorf("tls_client_ca: %v", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, usererr.Errorf("tls_client_ca: there is no certificate in %s; it must be PEM", c.TLSClientCA)
	}
	return pool, nil
}

// ClientScopes are what clients with a certificate may do, by name.
func (c *Server) ClientScopes() (map[string]access.Scopes, error) {
	out := map[string]access.Scopes{}
	for i, client := range c.TLSClients {
		at := fmt.Sprintf("tls_clients[%d]", i)
		if err := access.ValidateName(client.Name); err != nil {
			return nil, fmt.Errorf("%s.name: %w", at, err)
		}
		if out[client.Name] != nil {
			return nil, usererr.Errorf("%s.name: %q appears twice", at, client.Name)
		}
		scopes, err := access.ParseScopes(client.Scopes)
		if err != nil {
			return nil, fmt.Errorf("%s.scopes: %w", at, err)
		}
		out[client.Name] = scopes
	}
	return out, nil
}

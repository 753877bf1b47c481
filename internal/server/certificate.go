package server

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/usererr"
)

// certificateLooks is how often the files of a certificate are looked at, at most.
const certificateLooks = time.Second

// certificate is what a server shows of itself. Files that have changed are read again, when someone connects
// or reload is called; new ones that cannot be used leave the old certificate in place.
type certificate struct {
	certFile, keyFile string
	clients           *x509.CertPool // that sign the certificates of clients; nil: none are asked for
	log               *slog.Logger
	now               func() time.Time

	mu     sync.Mutex
	pair   *tls.Certificate
	stamps [2]stamp  // of the files from which the pair was read
	looked time.Time // at the stamps
	failed string    // why the files as they are now cannot be used; "": they can
}

// stamp tells a file from what it was before.
type stamp struct {
	size    int64
	changed time.Time
	file    os.FileInfo
}

func (s stamp) same(other stamp) bool {
	return s.size == other.size && s.changed.Equal(other.changed) && (s.file == nil) == (other.file == nil) && (s.file == nil || os.SameFile(s.file, other.file))
}

// openCertificate reads a certificate and its key from PEM files.
func openCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log, now: time.Now}
	return c, c.reload()
}

// reload reads the files now. With an error nothing has changed.
func (c *certificate) reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read(c.stampsNow())
}

func (c *certificate) read(stamps [2]stamp) error {
	c.looked = c.now()
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		// The stamps stay, so that the files are read again: what lets them be read, as chmod and chown do, changes no stamp.
		err = usererr.Errorf("tls_cert and tls_key: %v", err)
		c.failed = err.Error()
		return err
	}
	if left := pair.Leaf.NotAfter.Sub(c.now()); left < 0 {
		c.log.Warn("the certificate has expired: clients will refuse it", "file", c.certFile, "not_after", pair.Leaf.NotAfter)
	}
	if c.pair != nil {
		c.log.Info("certificate read again", "file", c.certFile, "not_after", pair.Leaf.NotAfter)
	}
	c.pair, c.stamps, c.failed = &pair, stamps, ""
	return nil
}

func (c *certificate) stampsNow() (out [2]stamp) {
	for i, name := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(name); err == nil {
			out[i] = stamp{info.Size(), info.ModTime(), info}
		}
	}
	return out
}

// current is the certificate to show, read again if its files have changed.
func (c *certificate) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if since := c.now().Sub(c.looked); since >= 0 && since < certificateLooks {
		return c.pair, nil
	}
	c.looked = c.now()
	if stamps := c.stampsNow(); stamps[0].same(c.stamps[0]) && stamps[1].same(c.stamps[1]) {
		c.failed = ""
	} else {
		// Certificate and key are two files: whoever replaces them may be between the two.
		before := c.failed
		if err := c.read(stamps); err != nil && err.Error() != before {
			c.log.Warn("the new certificate cannot be used; the old one stays", "err", err, "not_after", c.pair.Leaf.NotAfter)
		}
	}
	return c.pair, nil
}

// expires is when the certificate to show ends. It looks at the files: a server to which nobody connects has read nothing.
func (c *certificate) expires() time.Time {
	pair, _ := c.current(nil)
	return pair.Leaf.NotAfter
}

// config is for a listener.
func (c *certificate) config() *tls.Config {
	out := &tls.Config{GetCertificate: c.current, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if c.clients != nil {
		// Who shows none has a token.
		out.ClientCAs, out.ClientAuth = c.clients, tls.VerifyClientCertIfGiven
	}
	return out
}

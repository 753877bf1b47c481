package sink

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/mail"
	"net/smtp"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/lease"
)

// Ways to have TLS.
const (
	startTLS  = "starttls"
	directTLS = "tls"
	noTLS     = "none"
)

// farewell is how long a server that has taken a mail may take to say good-bye.
const farewell = time.Second

// email is told by a mail.
type email struct {
	config EmailConfig
	sink   string
	host   string // of the server
	addr   string // host and port
	tls    *tls.Config
	from   *mail.Address
	to     []*mail.Address
	gate   chan struct{} // bounds connections
}

func (*EmailConfig) name() string { return "email" }

func (c *EmailConfig) validate() error {
	_, err := c.parse()
	return err
}

func (c *EmailConfig) parse() (*email, error) {
	e := &email{config: *c, gate: make(chan struct{}, cmp.Or(max(c.Concurrency, 0), 4))}
	e.config.TLS, e.config.Hello = cmp.Or(c.TLS, startTLS), cmp.Or(c.Hello, "localhost")
	port, ok := map[string]string{startTLS: "587", directTLS: "465", noTLS: "25"}[e.config.TLS]
	if !ok {
		return nil, fmt.Errorf("tls %q; use %s, %s or %s", c.TLS, startTLS, directTLS, noTLS)
	}
	e.host, e.addr = c.Server, net.JoinHostPort(c.Server, port)
	if host, _, err := net.SplitHostPort(c.Server); err == nil {
		e.host, e.addr = host, c.Server
	}
	switch {
	case e.host == "" || strings.ContainsAny(e.host, "/@ "):
		return nil, fmt.Errorf("mail server %q; use HOST or HOST:PORT", clean(c.Server))
	case c.Concurrency < 0:
		return nil, errors.New("the number of mails that are sent at once cannot be negative")
	case c.User == "" && c.Password != "":
		return nil, errors.New("a password without a user")
	case c.User != "" && c.Password == "":
		return nil, errors.New("a user without a password")
	case c.User != "" && e.config.TLS == noTLS && !loopback(e.host):
		return nil, errors.New("a password is sent without TLS on loopback only")
	}
	if err := lease.ValidateText("hello", e.config.Hello, 1, 255); err != nil {
		return nil, err
	}
	return e, e.addresses()
}

func (e *email) addresses() (err error) {
	if e.from, err = address("from", e.config.From); err != nil {
		return err
	}
	if len(e.config.To) == 0 {
		return errors.New("a mail needs at least one address in to")
	}
	for _, to := range e.config.To {
		a, err := address("to", to)
		if err != nil {
			return err
		}
		e.to = append(e.to, a)
	}
	return nil
}

func address(what, s string) (*mail.Address, error) {
	a, err := mail.ParseAddress(s)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w; use name@example.com or Name <name@example.com>", what, clean(s), err)
	}
	if strings.ContainsFunc(a.Address, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("%s %q: use ASCII without spaces", what, clean(s))
	}
	return a, nil
}

// loopback tells what net/smtp takes for it.
func loopback(host string) bool {
	return slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host)
}

func (c *EmailConfig) open(sink string) (receiver, error) {
	e, err := c.parse()
	if err != nil {
		return receiver{}, err
	}
	e.sink, e.tls = sink, &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		if e.tls, err = target.Trust(c.CAFile); err != nil {
			return receiver{}, err
		}
	}
	e.tls.ServerName = e.host
	var to []string
	for _, a := range e.to {
		to = append(to, a.Address)
	}
	return receiver{address: strings.Join(to, ", ") + " by " + e.addr, secrets: []string{string(c.Password)}, deliver: e.deliver}, nil
}

func (e *email) deliver(ctx context.Context, a alarm) dispatch.Answer {
	select {
	case e.gate <- struct{}{}:
		defer func() { <-e.gate }()
	case <-ctx.Done():
		return dispatch.Answer{Outcome: dispatch.Busy, Detail: "not sent: other mails took too long"}
	}
	conn, err := e.dial(ctx)
	if err != nil {
		return unsent("no connection", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	c, err := smtp.NewClient(conn, e.host)
	if err != nil {
		return unsent("greeting", err)
	}
	if step, err := e.begin(c); err != nil {
		return unsent(step, err)
	}
	answer := e.send(ctx, c, a)
	if answer.Outcome == dispatch.Done && stop() {
		_ = conn.SetDeadline(time.Now().Add(farewell))
		_ = c.Quit()
	}
	return answer
}

func (e *email) dial(ctx context.Context) (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	raw, err := d.DialContext(ctx, "tcp", e.addr)
	if err != nil {
		return nil, err
	}
	conn := &talk{Conn: raw, left: maxTalk}
	if e.config.TLS != directTLS {
		return conn, nil
	}
	secure := tls.Client(conn, e.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

// maxTalk is how many bytes a server may say in all: net/smtp reads lines of any length.
const maxTalk = 256 << 10

// talk bounds what is read of a server.
type talk struct {
	net.Conn
	left int
}

func (t *talk) Read(p []byte) (int, error) {
	if t.left <= 0 {
		return 0, errors.New("the server talks without end")
	}
	n, err := t.Conn.Read(p[:min(len(p), t.left)])
	t.left -= n
	return n, err
}

// errLacks: the server does not offer what the configuration demands.
var errLacks = errors.New("the server does not offer")

// begin does all that comes before the mail, and names the step that failed.
func (e *email) begin(c *smtp.Client) (step string, err error) {
	if err := c.Hello(e.config.Hello); err != nil {
		return "EHLO", err
	}
	if e.config.TLS == startTLS {
		if ok, _ := c.Extension("STARTTLS"); !ok {
			return "STARTTLS", fmt.Errorf("%w STARTTLS", errLacks)
		}
		if err := c.StartTLS(e.tls); err != nil {
			return "STARTTLS", err
		}
	}
	if e.config.User == "" {
		return "", nil
	}
	_, offered := c.Extension("AUTH")
	ways := strings.Fields(strings.ToUpper(offered))
	switch {
	case slices.Contains(ways, "PLAIN"):
		return "AUTH", c.Auth(smtp.PlainAuth("", e.config.User, string(e.config.Password), e.host))
	case slices.Contains(ways, "LOGIN"):
		return "AUTH", c.Auth(&loginAuth{user: e.config.User, password: string(e.config.Password)})
	}
	return "AUTH", fmt.Errorf("%w a way to log in that is known here: PLAIN or LOGIN", errLacks)
}

// send delivers the mail to all recipients that the server takes.
func (e *email) send(ctx context.Context, c *smtp.Client, a alarm) dispatch.Answer {
	if err := c.Mail(e.from.Address); err != nil {
		return unsent("MAIL", err)
	}
	var refused []string
	var worst dispatch.Answer
	for _, to := range e.to {
		if err := c.Rcpt(to.Address); err != nil {
			answer := unsent(to.Address, err)
			refused = append(refused, answer.Detail)
			if worst.Outcome != dispatch.Busy { // what can be taken later has hope for all
				worst = answer
			}
		}
	}
	if len(refused) == len(e.to) {
		worst.Detail = strings.Join(refused, "; ")
		return worst
	}
	w, err := c.Data()
	if err != nil {
		return unsent("DATA", err)
	}
	// Until its end is written, nothing is a mail.
	if _, err := io.WriteString(w, e.mail(a, time.Now())); err != nil {
		return unsent("DATA", err)
	}
	// The deadline that ends the connection is set by another goroutine, which may be late.
	if err := ctx.Err(); err != nil {
		return unsent("DATA", err)
	}
	if err := w.Close(); err != nil {
		return judged(err)
	}
	out := dispatch.Answer{Outcome: dispatch.Done, Code: 250}
	if len(refused) > 0 {
		out.Detail = "not to all: " + strings.Join(refused, "; ")
	}
	return out
}

// unsent is the answer when something failed before the mail was whole: nobody has it.
func unsent(step string, err error) dispatch.Answer {
	out := dispatch.Answer{Outcome: dispatch.Busy, Detail: "not sent: " + step + ": " + err.Error()}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	if said, ok := errors.AsType[*textproto.Error](err); ok {
		out.Code = said.Code
		untrusted = said.Code >= 500
	}
	if untrusted || errors.Is(err, errLacks) {
		out.Outcome = dispatch.Misconfigured
	}
	return out
}

// judged is the answer when the server did not say that it took the mail.
func judged(err error) dispatch.Answer {
	said, ok := errors.AsType[*textproto.Error](err)
	switch {
	case !ok:
		return dispatch.Answer{Outcome: dispatch.Uncertain, Detail: "no answer to the mail: " + err.Error()}
	case said.Code >= 500:
		return dispatch.Answer{Outcome: dispatch.InvalidMessage, Code: said.Code, Detail: said.Error()}
	case said.Code >= 400:
		return dispatch.Answer{Outcome: dispatch.Busy, Code: said.Code, Detail: said.Error()}
	}
	return dispatch.Answer{Outcome: dispatch.Uncertain, Code: said.Code, Detail: said.Error()}
}

// loginAuth is AUTH LOGIN, which some servers have and net/smtp lacks.
type loginAuth struct{ user, password string }

// Start implements [smtp.Auth].
func (l *loginAuth) Start(server *smtp.ServerInfo) (string, []byte, error) {
	if !server.TLS && !loopback(server.Name) {
		return "", nil, errors.New("a password is not sent without TLS")
	}
	return "LOGIN", nil, nil
}

// Next implements [smtp.Auth]: servers ask for the user first, by various words.
func (l *loginAuth) Next(_ []byte, more bool) ([]byte, error) {
	if !more {
		return nil, nil
	}
	answer := l.user
	l.user, l.password = l.password, ""
	if answer == "" {
		return nil, errors.New("the server asks for more than user and password")
	}
	return []byte(answer), nil
}

package sink_test

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// smtpServer is a mail server for tests: strict about the order of commands and about
// line ends, and as bad as it is told to be.
type smtpServer struct {
	t    *testing.T
	addr string
	tls  *tls.Config
	ca   string // file
	// What it offers, and who may log in.
	startTLS, directTLS bool
	binary              bool   // what is no line is no fault
	auth                string // "PLAIN LOGIN"; "" offers none
	user, password      string
	// reply to a command instead of the usual one: a line, or "hang" or "cut". The
	// name of a mail's end is ".", that of the greeting "".
	reply func(command string) string

	mu    sync.Mutex
	mails []smtpMail
	done  chan struct{}
}

type smtpMail struct {
	from string
	to   []string
	text string // as it came, without dots doubled
	tls  bool
	user string
}

func newSMTP(t *testing.T, change func(*smtpServer)) *smtpServer {
	t.Helper()
	certs := httptest.NewTLSServer(http.NotFoundHandler())
	defer certs.Close()
	s := &smtpServer{t: t, tls: &tls.Config{Certificates: certs.TLS.Certificates}, ca: caFile(t, certs), done: make(chan struct{})}
	if change != nil {
		change(s)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() { close(s.done); l.Close(); all.Wait() })
	return s
}

func (s *smtpServer) taken() []smtpMail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]smtpMail(nil), s.mails...)
}

// session is one connection.
type session struct {
	*smtpServer
	conn     net.Conn
	r        *bufio.Reader
	mail     smtpMail
	greeted  bool
	loggedIn string
}

func (s *smtpServer) serve(conn net.Conn) {
	stopped := make(chan struct{})
	defer close(stopped)
	go func() {
		select {
		case <-s.done:
		case <-stopped:
		}
		conn.Close()
	}()
	if s.directTLS {
		conn = tls.Server(conn, s.tls)
	}
	c := &session{smtpServer: s, conn: conn, r: bufio.NewReader(conn)}
	c.mail.tls = s.directTLS
	if !c.say("", "220 mail.example.com ESMTP") {
		return
	}
	for {
		line, ok := c.line()
		if !ok || !c.obey(line) {
			return
		}
	}
}

// line reads one, which must end with CRLF and hold no other.
func (c *session) line() (string, bool) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", false
	}
	text, ok := strings.CutSuffix(line, "\r\n")
	if !c.binary && (!ok || strings.ContainsAny(text, "\r\x00")) {
		c.t.Errorf("the line %q is not ended by CRLF alone", line)
	}
	return text, true
}

// say answers a command, and reports whether the session continues.
func (c *session) say(command, usual string) bool {
	if c.reply != nil {
		if r := c.reply(command); r != "" {
			usual = r
		}
	}
	switch usual {
	case "hang":
		<-c.done
		return false
	case "cut":
		return false
	case "endless":
		for {
			if _, err := io.WriteString(c.conn, strings.Repeat("x", 4096)); err != nil {
				return false
			}
		}
	}
	_, err := io.WriteString(c.conn, usual+"\r\n")
	return err == nil
}

func (c *session) obey(line string) bool {
	verb, rest, _ := strings.Cut(line, " ")
	verb = strings.ToUpper(verb)
	switch {
	case verb == "EHLO":
		c.greeted = true
		lines := []string{"250-mail.example.com", "250-8BITMIME"}
		if c.startTLS && !c.mail.tls {
			lines = append(lines, "250-STARTTLS")
		}
		if c.auth != "" {
			lines = append(lines, "250-AUTH "+c.auth)
		}
		return c.say(verb, strings.Join(append(lines, "250 SIZE 1000000"), "\r\n"))
	case verb == "QUIT":
		c.say(verb, "221 bye")
		return false
	case !c.greeted:
		return c.say(verb, "503 EHLO first")
	case verb == "STARTTLS" && c.startTLS:
		if !c.say(verb, "220 go ahead") {
			return false
		}
		secure := tls.Server(c.conn, c.tls)
		c.conn, c.r, c.greeted, c.mail.tls = secure, bufio.NewReader(secure), false, true
		return secure.HandshakeContext(c.t.Context()) == nil
	case verb == "AUTH":
		return c.say(verb, c.login(rest))
	case verb == "MAIL" && (c.user == "" || c.loggedIn != ""):
		c.mail = smtpMail{from: strings.TrimSuffix(rest, " BODY=8BITMIME"), tls: c.mail.tls, user: c.loggedIn}
		return c.say(verb, "250 ok")
	case verb == "RCPT" && c.mail.from != "":
		reply := "250 ok"
		if c.reply != nil && c.reply(rest) != "" {
			return c.say(rest, reply)
		}
		c.mail.to = append(c.mail.to, rest)
		return c.say(verb, reply)
	case verb == "DATA" && len(c.mail.to) > 0:
		return c.say(verb, "354 go ahead") && c.data()
	}
	return c.say(verb, "503 not now")
}

func (c *session) login(rest string) string {
	ask := func(prompt string) string {
		if !c.say("prompt", "334 "+base64.StdEncoding.EncodeToString([]byte(prompt))) {
			return ""
		}
		line, _ := c.line()
		text, _ := base64.StdEncoding.DecodeString(line)
		return string(text)
	}
	var user, password string
	if way, initial, _ := strings.Cut(rest, " "); way == "PLAIN" {
		text, _ := base64.StdEncoding.DecodeString(initial)
		if parts := strings.Split(string(text), "\x00"); len(parts) == 3 {
			user, password = parts[1], parts[2]
		}
	} else {
		user, password = ask("Username:"), ask("Password:")
	}
	if user != c.user || password != c.password {
		return "535 no " + password // a server may repeat what it was sent
	}
	c.loggedIn = user
	return "235 welcome"
}

func (c *session) data() bool {
	var text strings.Builder
	for {
		line, ok := c.line()
		if !ok {
			return false
		}
		if line == "." {
			break
		}
		if len(line) > 998 || strings.Contains(line, "=?utf-8") && len(line) > 90 {
			c.t.Errorf("a line of %d bytes", len(line))
		}
		text.WriteString(strings.TrimPrefix(line, ".") + "\n")
	}
	c.mail.text = text.String()
	c.mu.Lock()
	c.mails = append(c.mails, c.mail)
	c.mu.Unlock()
	c.mail = smtpMail{tls: c.mail.tls}
	return c.say(".", "250 queued")
}

package sink_test

import (
	"context"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/sink"
)

func toMail(t *testing.T, s *smtpServer, change func(*sink.EmailConfig)) dispatch.Target {
	t.Helper()
	c := sink.EmailConfig{Server: s.addr, TLS: "none", From: "Understudy <monitor@example.com>", To: []string{"ops@example.com"}}
	if change != nil {
		change(&c)
	}
	return open(t, sink.Config{Email: &c})
}

// read reads a mail as a reader does.
func read(t *testing.T, m smtpMail) (mail.Header, string) {
	t.Helper()
	parsed, err := mail.ReadMessage(strings.NewReader(m.text))
	if err != nil {
		t.Fatalf("%v: %q", err, m.text)
	}
	text, err := io.ReadAll(quotedprintable.NewReader(parsed.Body))
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Header, string(text)
}

func TestEmail(t *testing.T) {
	at := newSMTP(t, nil)
	s := toMail(t, at, func(c *sink.EmailConfig) { c.To = append(c.To, "Bärbel <b@example.com>") })
	if want := "email ops@example.com, b@example.com by " + at.addr; s.Name() != want {
		t.Errorf("name %q, want %q", s.Name(), want)
	}
	for _, m := range []monitor.AlarmMessage{onset(), onset(), abated()} {
		wants(t, tell(t, s, m), dispatch.Done)
	}
	mails := at.taken()
	if len(mails) != 3 {
		t.Fatalf("%d mails", len(mails))
	}
	if m := mails[0]; m.from != "FROM:<monitor@example.com>" || !slices.Equal(m.to, []string{"TO:<ops@example.com>", "TO:<b@example.com>"}) {
		t.Errorf("envelope %+v", m)
	}
	type head struct{ From, To, Subject, ID, Answers, Refers, Auto, Type string }
	var heads []head
	var text string
	for _, m := range mails {
		var h mail.Header
		h, text = read(t, m)
		heads = append(heads, head{h.Get("From"), h.Get("To"), h.Get("Subject"), h.Get("Message-ID"), h.Get("In-Reply-To"), h.Get("References"), h.Get("Auto-Submitted"), h.Get("Content-Type")})
		if at, err := h.Date(); err != nil || time.Since(at) > time.Hour {
			t.Errorf("date %v, %v", at, err)
		}
	}
	id := "<" + requestID + ".ONSET.pager@example.com>"
	one := head{`"Understudy" <monitor@example.com>`, `<ops@example.com>, =?utf-8?q?B=C3=A4rbel?= <b@example.com>`,
		"ONSET: edge-17 is silent (Heartbeat_edge)", id, "", "", "auto-generated", "text/plain; charset=utf-8"}
	three := one
	three.Subject, three.ID, three.Answers, three.Refers = "ABATED: edge-17 is back (Heartbeat_edge)", strings.Replace(id, "ONSET", "ABATED", 1), id, id
	if diff := cmp.Diff([]head{one, one, three}, heads); diff != "" {
		t.Error(diff)
	}
	want := `ABATED: edge-17 is back (Heartbeat_edge)

Event:       Heartbeat_edge
Source:      edge-17
Reason:      silent
Severity:    major
Limit:       15s
Last beat:   2026-11-21 10:00:00 UTC
Began:       2026-11-21 10:00:15 UTC
Ended:       2026-11-21 10:01:45 UTC
Lasted:      1m30s
Tags:        edge, north
rack.no:     7
site:        berlin
Request id:  ` + requestID + "\n"
	if diff := cmp.Diff(want, strings.ReplaceAll(text, "\r\n", "\n")); diff != "" {
		t.Error(diff)
	}
}

// TestEmailHostileNames: no name makes a header, a recipient, a second mail or a line.
func TestEmailHostileNames(t *testing.T) {
	at := newSMTP(t, nil)
	s := toMail(t, at, nil)
	for i, name := range hostile() {
		for j, m := range []monitor.AlarmMessage{named(onset(), name), named(abated(), name)} {
			wants(t, tell(t, s, m), dispatch.Done)
			mails := at.taken()
			if len(mails) != 2*i+j+1 {
				t.Fatalf("%q: %d mails", name, len(mails))
			}
			got := mails[len(mails)-1]
			if !slices.Equal(got.to, []string{"TO:<ops@example.com>"}) {
				t.Errorf("%q: to %q", name, got.to)
			}
			header, text := read(t, got)
			for field, values := range header {
				known := []string{"From", "To", "Subject", "Date", "Message-Id", "In-Reply-To", "References", "Auto-Submitted", "Mime-Version", "Content-Type", "Content-Transfer-Encoding"}
				if !slices.Contains(known, field) || len(values) != 1 {
					t.Errorf("%q: header %s %q", name, field, values)
				}
			}
			if ids, err := mail.ParseAddress(header.Get("Message-ID")); err != nil || !strings.HasSuffix(ids.Address, ".pager@example.com") {
				t.Errorf("%q: message id %q: %v", name, header.Get("Message-ID"), err)
			}
			subject, err := new(mime.WordDecoder).DecodeHeader(header.Get("Subject"))
			if err != nil || strings.ContainsAny(subject, "\r\n\x00") || !strings.HasPrefix(subject, string(m.Status)+": ") || len(subject) > 203 {
				t.Errorf("%q: subject %q: %v", name, subject, err)
			}
			if strings.Contains(text, "\nBcc:") || strings.Contains(strings.TrimSuffix(strings.ReplaceAll(text, "\r\n", "\n"), "\n"), "\n.\n") {
				t.Errorf("%q: text %q", name, text)
			}
		}
	}
}

func TestEmailLogsIn(t *testing.T) {
	for name, c := range map[string]struct {
		server func(*smtpServer)
		config func(*sink.EmailConfig)
		want   dispatch.Outcome
	}{
		"starttls, plain": {func(s *smtpServer) { s.startTLS, s.auth = true, "CRAM-MD5 PLAIN" }, func(c *sink.EmailConfig) { c.TLS = "" }, dispatch.Done},
		"starttls, login": {func(s *smtpServer) { s.startTLS, s.auth = true, "LOGIN" }, func(c *sink.EmailConfig) { c.TLS = "starttls" }, dispatch.Done},
		"tls, plain":      {func(s *smtpServer) { s.directTLS, s.auth = true, "PLAIN LOGIN" }, func(c *sink.EmailConfig) { c.TLS = "tls" }, dispatch.Done},
		"loopback":        {func(s *smtpServer) { s.auth = "LOGIN" }, nil, dispatch.Done},
		"no starttls":     {func(s *smtpServer) { s.auth = "PLAIN" }, func(c *sink.EmailConfig) { c.TLS = "" }, dispatch.Misconfigured},
		"unknown ways":    {func(s *smtpServer) { s.auth = "CRAM-MD5" }, nil, dispatch.Misconfigured},
		"no way":          {nil, nil, dispatch.Misconfigured},
		"wrong password":  {func(s *smtpServer) { s.startTLS, s.auth = true, "LOGIN PLAIN" }, func(c *sink.EmailConfig) { c.TLS, c.Password = "", "s3cret-but-wrong" }, dispatch.Misconfigured},
		"not trusted":     {func(s *smtpServer) { s.startTLS, s.auth = true, "PLAIN" }, func(c *sink.EmailConfig) { c.TLS, c.CAFile = "", "" }, dispatch.Misconfigured},
		"no tls at all":   {func(s *smtpServer) { s.binary = true }, func(c *sink.EmailConfig) { c.TLS = "tls" }, dispatch.Busy},
		"later":           {func(s *smtpServer) { s.auth, s.reply = "PLAIN", only("AUTH", "454 later") }, nil, dispatch.Busy},
		"asks for more":   {func(s *smtpServer) { s.auth, s.reply = "LOGIN", only("AUTH", "334 bW9yZQ==") }, nil, dispatch.Busy},
	} {
		t.Run(name, func(t *testing.T) {
			at := newSMTP(t, func(s *smtpServer) {
				s.user, s.password = "monitor", "s3cret-password"
				if c.server != nil {
					c.server(s)
				}
			})
			s := toMail(t, at, func(e *sink.EmailConfig) {
				e.User, e.Password, e.CAFile = "monitor", "s3cret-password", at.ca
				if c.config != nil {
					c.config(e)
				}
			})
			got := tell(t, s, onset())
			wants(t, got, c.want)
			if strings.Contains(got.Detail+s.Name(), "s3cret") {
				t.Errorf("detail %q", got.Detail)
			}
			if mails := at.taken(); c.want == dispatch.Done && (len(mails) != 1 || mails[0].user != "monitor" || mails[0].tls == (name == "loopback")) {
				t.Errorf("mails %+v", mails)
			}
		})
	}
}

// only is a reply to one command.
func only(command, reply string) func(string) string {
	return func(c string) string {
		if c == command {
			return reply
		}
		return ""
	}
}

// TestEmailAnswers: before the mail is whole nobody has it, and after that only the
// server knows.
func TestEmailAnswers(t *testing.T) {
	for _, c := range []struct {
		command, reply string
		want           dispatch.Outcome
	}{
		{"", "421 too busy", dispatch.Busy}, {"", "554 go away", dispatch.Misconfigured}, {"", "cut", dispatch.Busy}, {"", "endless", dispatch.Busy},
		{"", "what?", dispatch.Busy}, {"EHLO", "cut", dispatch.Busy},
		{"MAIL", "451 later", dispatch.Busy}, {"MAIL", "550 not you", dispatch.Misconfigured}, {"MAIL", "cut", dispatch.Busy},
		{"TO:<ops@example.com>", "450 greylisted", dispatch.Busy}, {"TO:<ops@example.com>", "550 no such user", dispatch.Misconfigured},
		{"DATA", "451 later", dispatch.Busy}, {"DATA", "554 no", dispatch.Misconfigured}, {"DATA", "cut", dispatch.Busy},
		{".", "451 later", dispatch.Busy}, {".", "554 spam", dispatch.InvalidMessage}, {".", "cut", dispatch.Uncertain}, {".", "hm", dispatch.Uncertain},
		{".", "354 more", dispatch.Uncertain}, {".", "endless", dispatch.Uncertain},
		{"QUIT", "500 no", dispatch.Done}, {"QUIT", "cut", dispatch.Done}, {"QUIT", "hang", dispatch.Done},
	} {
		t.Run(c.command+" "+c.reply, func(t *testing.T) {
			at := newSMTP(t, func(s *smtpServer) { s.reply = only(c.command, c.reply) })
			wants(t, tell(t, toMail(t, at, nil), onset()), c.want)
		})
	}
}

func TestEmailRecipients(t *testing.T) {
	three := func(c *sink.EmailConfig) { c.To = []string{"a@example.com", "b@example.com", "c@example.com"} }
	replies := func(a, b string) func(*smtpServer) {
		return func(s *smtpServer) {
			s.reply = func(command string) string {
				return map[string]string{"TO:<a@example.com>": a, "TO:<b@example.com>": b, "TO:<c@example.com>": b}[command]
			}
		}
	}
	at := newSMTP(t, replies("", "550 unknown"))
	got := tell(t, toMail(t, at, three), onset())
	wants(t, got, dispatch.Done)
	if mails := at.taken(); len(mails) != 1 || len(mails[0].to) != 1 || !strings.Contains(got.Detail, "c@example.com") {
		t.Errorf("%+v, mails %+v", got, mails)
	}
	at = newSMTP(t, replies("450 later", "550 unknown"))
	wants(t, tell(t, toMail(t, at, three), onset()), dispatch.Busy)
	if mails := at.taken(); len(mails) != 0 {
		t.Errorf("mails %+v", mails)
	}
}

// TestD06EmailHangs: wherever a server hangs, the deadline of the telling holds, and so
// it does for those that wait for their turn.
func TestD06EmailHangs(t *testing.T) {
	for command, want := range map[string]dispatch.Outcome{"": dispatch.Busy, "EHLO": dispatch.Busy, "MAIL": dispatch.Busy, "DATA": dispatch.Busy, ".": dispatch.Uncertain} {
		t.Run("at "+command, func(t *testing.T) {
			reached := make(chan struct{}, 1)
			at := newSMTP(t, func(s *smtpServer) {
				s.reply = func(c string) string {
					if c != command {
						return ""
					}
					reached <- struct{}{}
					return "hang"
				}
			})
			s := toMail(t, at, func(c *sink.EmailConfig) { c.Concurrency = 1 })
			ctx, cancel := context.WithCancel(t.Context())
			a, answers := batch(t, onset()), make(chan dispatch.Answer, 2)
			go func() { answers <- s.Submit(ctx, a) }()
			<-reached
			go func() { answers <- s.Submit(ctx, a) }()
			cancel()
			got := []dispatch.Answer{<-answers, <-answers}
			slices.SortFunc(got, func(a, b dispatch.Answer) int { return strings.Compare(string(b.Outcome), string(a.Outcome)) })
			wants(t, got[0], want)
			wants(t, got[1], dispatch.Busy)
		})
	}
}

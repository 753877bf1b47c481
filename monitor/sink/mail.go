package sink

import (
	"crypto/sha256"
	"encoding/hex"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/understudy-ha/understudy/monitor"
)

// maxSubject is how many bytes of a title stand in a subject.
const maxSubject = 200

// mail is the whole mail, with CRLF at the ends of its lines. Two mails about one
// batch have one Message-ID, and an ABATED or a reminder answers its ONSET, so that readers show
// them together.
func (e *email) mail(a alarm, now time.Time) string {
	var b strings.Builder
	header := func(name, value string) { b.WriteString(name + ": " + value + "\r\n") }
	header("From", e.from.String())
	header("To", list(e.to))
	header("Subject", subject(a.m))
	header("Date", now.Format(time.RFC1123Z))
	header("Message-ID", e.messageID(a.ID))
	if a.m.Status == monitor.Abated || a.m.Reminder > 0 {
		onset := e.messageID(a.m.RequestID + "/" + string(monitor.Onset))
		header("In-Reply-To", onset)
		header("References", onset)
	}
	header("Auto-Submitted", "auto-generated") // no holiday answers, please
	header("MIME-Version", "1.0")
	header("Content-Type", "text/plain; charset=utf-8")
	header("Content-Transfer-Encoding", "quoted-printable")
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	body := text(a.m)
	if a.formatted {
		body = string(a.Payload) + "\n"
	}
	_, _ = w.Write([]byte(strings.ReplaceAll(body, "\n", "\r\n"))) // a Builder never fails
	_ = w.Close()
	return b.String()
}

func list(to []*mail.Address) string {
	texts := make([]string, 0, len(to))
	for _, a := range to {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",\r\n ")
}

// subject is the title as a header: cut, encoded where it is not plain ASCII, folded.
func subject(m monitor.AlarmMessage) string {
	s := title(m)
	if len(s) > maxSubject {
		n := maxSubject
		for !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "…"
	}
	// A name that is an encoded word would be decoded by those who read it.
	s = strings.ReplaceAll(s, "=?", "=\u200b?")
	return strings.ReplaceAll(mime.QEncoding.Encode("utf-8", s), "?= =?", "?=\r\n =?")
}

// messageID of a batch. The sink's name is in it: what another sink sends to the same
// reader is another mail.
func (e *email) messageID(id string) string {
	local := strings.ReplaceAll(id, "/", ".")
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_'
	}
	if local == "" || len(local) > 100 || strings.ContainsFunc(local, func(r rune) bool { return !plain(r) }) ||
		strings.HasPrefix(local, ".") || strings.HasSuffix(local, ".") || strings.Contains(local, "..") {
		sum := sha256.Sum256([]byte(id))
		local = hex.EncodeToString(sum[:])
	}
	domain := e.from.Address[strings.LastIndexByte(e.from.Address, '@')+1:]
	return "<" + local + "." + e.sink + "@" + domain + ">"
}

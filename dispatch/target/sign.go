package target

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Headers of a webhook, in the form in which net/http keeps them.
const (
	HeaderID        = "Idempotency-Key" // the message's ID
	HeaderQueue     = "Understudy-Queue"
	HeaderKey       = "Understudy-Key"
	HeaderTerm      = "Understudy-Term"
	HeaderAttempt   = "Understudy-Attempt"
	HeaderSequence  = "Understudy-Sequence"
	HeaderSignature = "Understudy-Signature"

	// Of https://www.standardwebhooks.com.
	HeaderWebhookID        = "Webhook-Id" // the message's ID
	HeaderWebhookTimestamp = "Webhook-Timestamp"
	HeaderWebhookSignature = "Webhook-Signature"
)

// Signature is how requests are signed.
type Signature string

// Signatures. That of Standard Webhooks covers the id, the time and the body; the other one the headers of the
// protocol, too.
const (
	StandardSignature   Signature = "standard" // the default
	UnderstudySignature Signature = "understudy"
)

// ErrSignature: a webhook's signature is missing, wrong or too old.
var ErrSignature = errors.New("target: signature not accepted")

// signed are the headers that a signature covers, in this order, before the body.
func signed() [7]string {
	return [...]string{HeaderID, HeaderQueue, HeaderKey, HeaderTerm, HeaderAttempt, HeaderSequence, "Content-Type"}
}

// signer signs webhooks. Its states are kept, because making one costs more than
// signing a small message.
type signer struct{ states sync.Pool }

func newSigner(secret []byte) *signer {
	return &signer{states: sync.Pool{New: func() any { return hmac.New(sha256.New, secret) }}}
}

// sign returns "t=SECONDS,v1=HEX": the HMAC-SHA256, under the secret, of the
// seconds and each signed header followed by a line feed, and of the body.
func (s *signer) sign(header http.Header, body []byte, at time.Time) string {
	mac := s.states.Get().(hash.Hash)
	defer s.states.Put(mac)
	mac.Reset()
	seconds := strconv.FormatInt(at.Unix(), 10)
	text := make([]byte, 0, 512)
	text = append(append(text, seconds...), '\n')
	for _, name := range signed() {
		text = append(append(text, header.Get(name)...), '\n')
	}
	mac.Write(text)
	mac.Write(body)
	var sum [sha256.Size]byte
	return "t=" + seconds + ",v1=" + hex.EncodeToString(mac.Sum(sum[:0]))
}

// standardKey is the key that a secret of Standard Webhooks stands for: what is base64, with or without the prefix
// whsec_, is decoded, as the specification's libraries do. Any other text is the key itself.
func standardKey(secret []byte) []byte {
	if key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(secret), "whsec_")); err == nil {
		return key
	}
	return secret
}

// signStandard sets the headers of Standard Webhooks; s has the key of its secret.
func (s *signer) signStandard(header http.Header, body []byte, at time.Time) {
	seconds := strconv.FormatInt(at.Unix(), 10)
	header[HeaderWebhookID] = header[HeaderID]
	header[HeaderWebhookTimestamp] = []string{seconds}
	header[HeaderWebhookSignature] = []string{"v1," + s.standardSum(header.Get(HeaderID), seconds, body)}
}

func (s *signer) standardSum(id, seconds string, body []byte) string {
	mac := s.states.Get().(hash.Hash)
	defer s.states.Put(mac)
	mac.Reset()
	mac.Write([]byte(id + "." + seconds + "."))
	mac.Write(body)
	var sum [sha256.Size]byte
	return base64.StdEncoding.EncodeToString(mac.Sum(sum[:0]))
}

// Verify tells a receiver whether a webhook is signed with the secret, in either way, and was sent
// not longer ago than age (nor further ahead). Its errors wrap [ErrSignature].
func Verify(secret []byte, header http.Header, body []byte, now time.Time, age time.Duration) error {
	if header.Get(HeaderWebhookSignature) != "" {
		return verifyStandard(secret, header, body, now, age)
	}
	got := header.Get(HeaderSignature)
	stamp, _, _ := strings.Cut(strings.TrimPrefix(got, "t="), ",")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: there is none, or it is of another form", ErrSignature)
	}
	at := time.Unix(seconds, 0)
	if !hmac.Equal([]byte(got), []byte(newSigner(secret).sign(header, body, at))) {
		return fmt.Errorf("%w: it is not of this secret and this content", ErrSignature)
	}
	return checkAge(now.Sub(at), age)
}

func verifyStandard(secret []byte, header http.Header, body []byte, now time.Time, age time.Duration) error {
	stamp := header.Get(HeaderWebhookTimestamp)
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: its time is %q", ErrSignature, stamp)
	}
	right := "v1," + newSigner(standardKey(secret)).standardSum(header.Get(HeaderWebhookID), stamp, body)
	for one := range strings.FieldsSeq(header.Get(HeaderWebhookSignature)) { // several while a secret is changed
		if hmac.Equal([]byte(one), []byte(right)) {
			return checkAge(now.Sub(time.Unix(seconds, 0)), age)
		}
	}
	return fmt.Errorf("%w: it is not of this secret and this content", ErrSignature)
}

func checkAge(d, age time.Duration) error {
	if d > age || d < -age {
		return fmt.Errorf("%w: its time and now are %v apart", ErrSignature, d.Abs())
	}
	return nil
}

// headerText makes any text fit for a header: bytes that are not printable ASCII,
// and '%', are written as in a URL, so that receivers of all languages
// read the same.
func headerText(s string) string {
	plain := func(c byte) bool { return c >= ' ' && c <= '~' && c != '%' }
	for i := range len(s) {
		if !plain(s[i]) {
			return escape(s, plain)
		}
	}
	return s
}

func escape(s string, plain func(byte) bool) string {
	const digits = "0123456789ABCDEF"
	out := make([]byte, 0, 3*len(s))
	for i := range len(s) {
		if c := s[i]; plain(c) {
			out = append(out, c)
		} else {
			out = append(out, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(out)
}

// unreserved bytes mean the same everywhere in a URL.
func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

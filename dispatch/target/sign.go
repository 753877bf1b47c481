package target

import (
	"crypto/hmac"
	"crypto/sha256"
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
	HeaderID        = "Idempotency-Key" // the batch's id
	HeaderQueue     = "Understudy-Queue"
	HeaderKey       = "Understudy-Key"
	HeaderTerm      = "Understudy-Term"
	HeaderAttempt   = "Understudy-Attempt"
	HeaderSequence  = "Understudy-Sequence"
	HeaderSignature = "Understudy-Signature"
)

// ErrSignature: a webhook's signature is missing, wrong or too old.
var ErrSignature = errors.New("target: signature not accepted")

// signed are the headers that a signature covers, in this order, before the body.
func signed() [7]string {
	return [...]string{HeaderID, HeaderQueue, HeaderKey, HeaderTerm, HeaderAttempt, HeaderSequence, "Content-Type"}
}

// signer signs webhooks. Its states are kept, because making one costs more than
// signing a small batch.
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

// Verify tells a receiver whether a webhook is signed with the secret and was sent
// not longer ago than age (nor further ahead). Its errors wrap [ErrSignature].
func Verify(secret []byte, header http.Header, body []byte, now time.Time, age time.Duration) error {
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
	if d := now.Sub(at); d > age || d < -age {
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

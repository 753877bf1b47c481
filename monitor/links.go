package monitor

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strings"
)

// Links are addresses that need no token: whoever has one may do what it is for, and cannot guess another.
type Links struct {
	// Base is the URL under which people reach the server. "" makes no link that goes into an alarm.
	Base string
	// Secret of [Settings].
	Secret []byte
}

// Acknowledge is where an alarm is acknowledged.
func (l Links) Acknowledge(alarm string) string {
	if l.Base == "" || len(l.Secret) == 0 {
		return ""
	}
	return strings.TrimSuffix(l.Base, "/") + "/acknowledge/" + url.PathEscape(alarm) + "/" + l.sign("acknowledge", alarm)
}

// Badge is the path of a source's badge.
func (l Links) Badge(of SourceRef) string {
	return "/badge/" + url.PathEscape(of.Check) + "/" + url.PathEscape(of.Source) + "/" + l.sign("badge", of.Check, of.Source) + ".svg"
}

// MayAcknowledge reports whether a signature is that of an alarm's link.
func (l Links) MayAcknowledge(alarm, signature string) bool {
	return l.signed(signature, "acknowledge", alarm)
}

// MaySeeBadge reports whether a signature, with ".svg" behind it, is that of a source's badge.
func (l Links) MaySeeBadge(of SourceRef, signature string) bool {
	return l.signed(strings.TrimSuffix(signature, ".svg"), "badge", of.Check, of.Source)
}

func (l Links) signed(signature string, of ...string) bool {
	return len(l.Secret) > 0 && hmac.Equal([]byte(signature), []byte(l.sign(of...)))
}

// sign is 128 bits, as text. No name has a zero byte, so that no two lists of texts are signed alike.
func (l Links) sign(of ...string) string {
	sum := hmac.New(sha256.New, l.Secret)
	sum.Write([]byte(strings.Join(of, "\x00")))
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:16])
}

// links of the watcher's alarms.
func (w *Watcher) links(s settingsCache) Links {
	return Links{Base: w.cfg.PublicURL, Secret: s.secret}
}

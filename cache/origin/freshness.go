package origin

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// minTTL is the time to live of what must not be kept: the smallest there is.
const minTTL = time.Second

// ttl is for how long an answer is fresh from now on, from a second to most; 0 when
// it does not say.
func ttl(h http.Header, now time.Time, most time.Duration) time.Duration {
	lifetime, ok := lifetime(h, now)
	if !ok {
		return 0
	}
	if age, ok := seconds(h.Get("Age")); ok {
		lifetime -= age
	}
	return max(minTTL, min(lifetime, most))
}

// lifetime is what an answer says of its own freshness; ok is false when it says
// nothing. What cannot be read counts as stale, as RFC 9111 advises.
func lifetime(h http.Header, now time.Time) (d time.Duration, ok bool) {
	directives := cacheControl(h)
	for _, never := range []string{"no-store", "no-cache"} {
		if _, has := directives[never]; has {
			return 0, true
		}
	}
	for _, name := range []string{"s-maxage", "max-age"} {
		if value, has := directives[name]; has {
			d, _ := seconds(value)
			return d, true
		}
	}
	if len(h.Values("Expires")) == 0 {
		return 0, false
	}
	expires, err := http.ParseTime(h.Get("Expires"))
	if err != nil {
		return 0, true
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date // so that its clock need not be ours
	}
	return expires.Sub(now), true
}

// cacheControl are the directives with their values; of those that come twice,
// the first.
func cacheControl(h http.Header) map[string]string {
	out := map[string]string{}
	for _, line := range h.Values("Cache-Control") {
		for part := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(part, "=")
			name = strings.ToLower(strings.TrimSpace(name))
			if _, has := out[name]; !has {
				out[name] = strings.Trim(strings.TrimSpace(value), `"`)
			}
		}
	}
	return out
}

// seconds reads a number of seconds, however large.
func seconds(s string) (d time.Duration, ok bool) {
	const most = 1 << 31 // what RFC 9111 makes of larger ones
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		n = most
	}
	return time.Duration(min(n, most)) * time.Second, true
}

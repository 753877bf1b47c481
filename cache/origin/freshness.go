package origin

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// minTTL is the shortest time to live of a copy that is kept.
const minTTL = time.Second

// freshness is for how long an answer is fresh from now on, from a second to most, 0 when it does not say; or that no
// copy may be kept (RFC 9111, sections 3 and 4). An answer that is stale on arrival is not kept either, because this
// cache cannot validate one, unless it may be served stale (RFC 5861).
func freshness(h http.Header, now time.Time, most time.Duration) (ttl time.Duration, noStore bool) {
	directives := cacheControl(h)
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { _, has := directives[name]; return has })
	}
	if has("no-store", "no-cache", "private") || slices.Contains(headerList(h, "Vary"), "*") {
		return 0, true
	}
	lifetime, ok := lifetime(h, directives, now)
	if !ok {
		return 0, false
	}
	if age, ok := seconds(h.Get("Age")); ok {
		lifetime -= age
	}
	if lifetime <= 0 && !has("stale-while-revalidate", "stale-if-error") {
		return 0, true
	}
	return max(minTTL, min(lifetime, most)), false
}

// lifetime is what an answer says of its own freshness; ok is false when it says nothing. A value that cannot be read
// counts as stale, as RFC 9111 advises.
func lifetime(h http.Header, directives map[string]string, now time.Time) (d time.Duration, ok bool) {
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

// headerList are the elements of a header that is a list, on one line or several.
func headerList(h http.Header, name string) (out []string) {
	for _, line := range h.Values(name) {
		for part := range strings.SplitSeq(line, ",") {
			out = append(out, strings.TrimSpace(part))
		}
	}
	return out
}

// cacheControl are the directives with their values; of those that come twice,
// the first.
func cacheControl(h http.Header) map[string]string {
	out := map[string]string{}
	for _, part := range headerList(h, "Cache-Control") {
		name, value, _ := strings.Cut(part, "=")
		name = strings.ToLower(strings.TrimSpace(name))
		if _, has := out[name]; !has {
			out[name] = strings.Trim(strings.TrimSpace(value), `"`)
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

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
)

// serveDirect answers requests whose path names a key: what follows /v1/cache/, with
// its percent-encoding undone, whatever it is.
func (c *cachePart) serveDirect(w http.ResponseWriter, r *http.Request) bool {
	key, ok := strings.CutPrefix(r.URL.Path, cachePath)
	if !ok {
		return false
	}
	out := &response{ResponseWriter: w}
	to := route{pattern: cacheGet, unlimited: true, costs: true}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		to = route{pattern: cacheDelete}
	}
	pattern := to.pattern
	r.Pattern = pattern // as the multiplexer does
	who, err := c.router.admit(r, to)
	if err == nil {
		if to.pattern == cacheDelete { // a hot key need not know who asks
			r = withCaller(r, who)
		}
		pattern, err = c.serveKey(out, r, key)
	}
	if err != nil {
		setSecurityHeaders(w.Header())
		c.router.writeError(out, r, err)
		c.router.refusals.record(r, who, out.status, err)
	}
	if pattern == cacheGet && out.status == http.StatusOK {
		c.hot.Inc()
	} else {
		c.router.traffic.requests.Of(pattern, strconv.Itoa(out.status)).Inc()
	}
	return true
}

func (c *cachePart) serveKey(w *response, r *http.Request, key string) (pattern string, err error) {
	switch {
	case c.peer == nil:
		return "other", errNoCache
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		return cacheGet, c.getValue(w, r, key)
	case r.Method == http.MethodDelete:
		return cacheDelete, c.remove(w, r, protocol.OneKey, key)
	default:
		w.Header().Set("Allow", "GET, HEAD, DELETE")
		return "other", errMethod
	}
}

func (c *cachePart) getValue(w *response, r *http.Request, key string) error {
	now := time.Now()
	want, err := parseDirectives(r, now)
	if err != nil {
		return err
	}
	item, err := c.find(w, r, key, want, now)
	if err != nil {
		return err
	}
	return c.writeValue(w, r, item, now)
}

// cacheDirectives is which copy will do.
type cacheDirectives struct {
	after    time.Time     // it expires later than this; zero: however stale
	fresh    time.Duration // … and so long after now
	age      time.Duration // it is no older; below 0: however old
	refresh  bool          // it is fetched now
	onlyHere bool          // it is here
	wait     time.Duration
}

// parseDirectives reads the query and, for what it leaves open, the header Cache-Control.
func parseDirectives(r *http.Request, now time.Time) (cacheDirectives, error) {
	out := cacheDirectives{age: -1, wait: defaultWait}
	for _, line := range r.Header["Cache-Control"] {
		out.parse(line, now)
	}
	if r.URL.RawQuery == "" {
		return out, nil
	}
	q := queryOf(r)
	if q.values.Has("max-stale") {
		out.after = now.Add(-q.duration("max-stale", 100*365*24*time.Hour, 0))
	}
	if q.values.Has("refresh") {
		// The parameter alone, without a value, means true.
		out.refresh = q.flag("refresh") || q.values.Get("refresh") == ""
	}
	out.wait = waitFor(q, defaultWait)
	return out, q.err
}

// parse reads the header Cache-Control of a request; what does not concern a
// cache that fetches for itself is left alone, as is what cannot be read.
func (w *cacheDirectives) parse(line string, now time.Time) {
	for directive := range strings.SplitSeq(line, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		seconds, err := strconv.ParseInt(strings.Trim(value, `"`), 10, 32)
		d := time.Duration(seconds) * time.Second
		given := err == nil && seconds >= 0
		switch name = strings.ToLower(name); {
		case name == "no-cache":
			w.refresh = true
		case name == "only-if-cached":
			w.onlyHere = true
		case name == "max-age" && given:
			if w.age = d; w.after.IsZero() {
				w.after = now
			}
		case name == "min-fresh" && given:
			w.after, w.fresh = now, d
		case name == "max-stale" && given:
			w.after = now.Add(-d)
		}
	}
}

func (w cacheDirectives) accepts(i cache.Item, now time.Time) bool {
	return (w.fresh == 0 || i.Expire.Sub(now) > w.fresh) && (w.after.IsZero() || i.Expire.After(w.after)) && (w.age < 0 || !i.Made.IsZero() && now.Sub(i.Made) <= w.age)
}

func (c *cachePart) find(w http.ResponseWriter, r *http.Request, key string, want cacheDirectives, now time.Time) (cache.Item, error) {
	if want.onlyHere {
		item, ok := c.peer.Peek(key)
		if !ok || !want.accepts(item, now) {
			return item, errNotHere
		}
		if item.From = cache.Hit; !item.Expire.After(now) {
			item.From = cache.Stale
		}
		return item, nil
	}
	if want.age >= 0 || want.fresh > 0 { // more than a peer knows to ask for
		if item, ok := c.peer.Peek(key); !ok || !want.accepts(item, now) {
			want.refresh = want.refresh || ok
		}
	}
	ctx, cancel := c.waitContext(w, r, want.wait)
	defer cancel()
	item, err := c.peer.Get(ctx, key, cache.GetOptions{After: want.after, Refresh: want.refresh})
	if err == nil && !want.refresh && item.Made.Before(now) && !want.accepts(item, now) { // it is another peer's copy
		item, err = c.peer.Get(ctx, key, cache.GetOptions{After: want.after, Refresh: true})
	}
	return item, c.waitError(r, err, want.wait)
}

// waitError tells a wait that ended from a caller who went and a server that stops.
func (c *cachePart) waitError(r *http.Request, err error, wait time.Duration) error {
	switch {
	case err == nil || r.Context().Err() != nil:
		return err
	case c.running.Err() != nil && errors.Is(err, context.Canceled):
		return errStopping
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: it did not come within %v; the fetch goes on, and a later request may find it (see wait=)", errNotYet, wait)
	default:
		return err
	}
}

// fixedHeaders are those that every value has, made once. Whoever stored a value
// decides what it is, so that a browser must neither show nor run it as a page of
// this server.
type fixedHeaders struct {
	kind, nosniff, policy, attachment, same []string
	from                                    map[cache.From][]string
}

func newFixedHeaders(kind string) fixedHeaders {
	out := fixedHeaders{
		kind: []string{kind}, nosniff: []string{"nosniff"}, policy: []string{"default-src 'none'; sandbox; frame-ancestors 'none'"},
		attachment: []string{"attachment"}, same: []string{"same-origin"}, from: map[cache.From][]string{},
	}
	for _, from := range []cache.From{cache.Hit, cache.Stale, cache.Miss} {
		out.from[from] = []string{string(from)}
	}
	return out
}

// writeValue answers with a value. Headers are put into the map as they are, and their
// values are parts of one string: this is the path that must cost little.
func (c *cachePart) writeValue(w http.ResponseWriter, r *http.Request, i cache.Item, now time.Time) error {
	h := w.Header()
	h["Content-Type"] = c.fixed.kind
	h["X-Content-Type-Options"] = c.fixed.nosniff
	h["Content-Security-Policy"] = c.fixed.policy
	h["Content-Disposition"] = c.fixed.attachment
	h["Cross-Origin-Resource-Policy"] = c.fixed.same
	h["X-Cache"] = c.fixed.from[i.From]
	setFreshnessHeaders(h, i, now)
	if len(i.Value) > 1<<20 {
		extendWriteDeadline(w, time.Minute)
	}
	if isConditional(r.Header) {
		return serveContent(w, r, i.Made, i.Value)
	}
	_, _ = w.Write(i.Value) // an error is a caller who has gone
	return nil
}

// setFreshnessHeaders sets the headers that say how old a value is and until when it is fresh.
func setFreshnessHeaders(h http.Header, i cache.Item, now time.Time) {
	var buf [256]byte
	var ends [7]int
	b := buf[:0]
	lifetime, age := i.Expire.Sub(now), time.Duration(0)
	if !i.Made.IsZero() {
		lifetime, age = i.Expire.Sub(i.Made), now.Sub(i.Made)
	}
	b = strconv.AppendInt(b, int64(max(0, age)/time.Second), 10)
	ends[0] = len(b)
	b = append(b, "max-age="...)
	b = strconv.AppendInt(b, int64(max(0, lifetime)/time.Second), 10)
	ends[1] = len(b)
	b = append(b, '"')
	b = strconv.AppendInt(b, i.Term, 36)
	b = append(b, '-')
	b = strconv.AppendUint(b, i.Digest, 36)
	b = append(b, '"')
	ends[2] = len(b)
	b = strconv.AppendInt(b, i.Term, 10)
	ends[3] = len(b)
	b = strconv.AppendInt(b, int64(len(i.Value)), 10)
	ends[4] = len(b)
	b = i.Expire.UTC().AppendFormat(b, http.TimeFormat)
	ends[5] = len(b)
	if !i.Made.IsZero() {
		b = i.Made.UTC().AppendFormat(b, http.TimeFormat)
	}
	ends[6] = len(b)

	text, values, from := string(b), make([]string, len(ends)), 0
	for n, name := range []string{"Age", "Cache-Control", "Etag", "Understudy-Term", "Content-Length", "Expires", "Last-Modified"} {
		values[n] = text[from:ends[n]]
		if from < ends[n] {
			h[name] = values[n : n+1 : n+1]
		}
		from = ends[n]
	}
}

func isConditional(h http.Header) bool {
	for _, name := range []string{"If-None-Match", "Range", "If-Modified-Since", "If-Match", "If-Unmodified-Since"} {
		if len(h[name]) > 0 {
			return true
		}
	}
	return false
}

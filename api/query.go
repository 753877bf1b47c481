package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/lease"
)

// query reads the parameters of a request's query. A parameter that is not acceptable reads as missing; err says what is
// wrong with the first of them.
type query struct {
	values url.Values
	err    error
}

// checkQuery refuses a query that cannot be read. [url.URL.Query], which handlers call, drops such parameters, and without a
// filter a request means everything. A heartbeat counts whatever its query is: losing it would raise an alarm. What anyone may
// ask (health, readiness) reads no query.
func checkQuery(r *http.Request, to route) error {
	if r.URL.RawQuery == "" || to.open && !to.keyed || to.keyed && to.scope == access.Ingest {
		return nil
	}
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return fmt.Errorf("%w: the query cannot be read: %w (write %% as %%25)", lease.ErrInvalid, err)
	}
	return nil
}

func queryOf(r *http.Request) *query { return &query{values: r.URL.Query()} }

// refuse keeps the first error.
func (q *query) refuse(format string, args ...any) {
	q.keep(fmt.Errorf("%w: "+format, append([]any{lease.ErrInvalid}, args...)...))
}

func (q *query) keep(err error) {
	if q.err == nil {
		q.err = err
	}
}

// name is a parameter that selects by a name. Of several names of the parameter, old ones last, the first that is given counts.
func (q *query) name(parameter string, old ...string) string {
	for _, other := range old {
		if !q.values.Has(parameter) {
			parameter = other
		}
	}
	text := q.values.Get(parameter)
	if err := lease.ValidateText(parameter, text, 0, lease.MaxKey); err != nil {
		q.keep(err)
		return ""
	}
	return text
}

// stored is a parameter that selects by the name of a key or message.
func (q *query) stored(parameter string) string {
	text := q.values.Get(parameter)
	if err := validateStored(parameter, text, 0); err != nil {
		q.keep(err)
		return ""
	}
	return text
}

// validateStored checks a name that is looked up in a queue. SQL enqueues names that [lease.ValidateText] refuses, as one with a
// no-break space; operators must be able to name those: what is refused here, no store has.
func validateStored(what, text string, least int) error {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	if len(text) < least || len(text) > lease.MaxKey || !utf8.ValidString(text) || strings.ContainsFunc(text, control) {
		return fmt.Errorf("%w: %s must have %d to %d bytes of UTF-8 without control characters", lease.ErrInvalid, what, least, lease.MaxKey)
	}
	return nil
}

// number is a whole number.
func (q *query) number(name string, least, most, missing int64) int64 {
	text := q.values.Get(name)
	if text == "" {
		return missing
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		q.refuse("%s=%.50q: use a number from %d to %d", name, text, least, most)
		return missing
	}
	return n
}

// limit is how many things of a list are wanted at most.
func (q *query) limit(most int64) int { return int(q.number("limit", 1, most, 100)) }

// duration is a duration, such as 10s.
func (q *query) duration(name string, most, missing time.Duration) time.Duration {
	text := q.values.Get(name)
	if text == "" {
		return missing
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > most {
		q.refuse("%s=%.50q: use a duration from 0s to %v, such as 10s", name, text, most)
		return missing
	}
	return d
}

// time is what a parameter says; the zero time when it is not given.
func (q *query) time(name, text string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil && text != "" {
		q.refuse("%s=%.50q: use a time as 2006-01-02T15:04:05Z", name, text)
	}
	return at
}

// flag is true or false.
func (q *query) flag(name string) bool {
	text := q.values.Get(name)
	if text != "" && text != "true" && text != "false" {
		q.refuse("%s=%.50q: use true or false", name, text)
	}
	return text == "true"
}

// cursor reads the parameter after as a [cursor] of n parts; nil when the request has none.
func (q *query) cursor(n int) []string {
	text := q.values.Get("after")
	if text == "" {
		return nil
	}
	parts, err := readCursor(text, n)
	if err != nil {
		q.keep(err)
	}
	return parts
}

// cursor is what a list of things with names of several parts gives as next, and takes as after.
func cursor(parts ...string) string {
	for i, p := range parts {
		parts[i] = url.PathEscape(p) // which has no slash
	}
	return strings.Join(parts, "/")
}

func readCursor(text string, n int) ([]string, error) {
	parts := strings.Split(text, "/")
	for i, p := range parts {
		plain, err := url.PathUnescape(p)
		if err == nil {
			err = validateStored("after", plain, 0)
		}
		if err != nil || len(parts) != n {
			return nil, fmt.Errorf("%w: after=%.50q: use the next of the page before", lease.ErrInvalid, text)
		}
		parts[i] = plain
	}
	return parts, nil
}

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// bodyOf reads the body as one value of a type.
func bodyOf[T any](r *http.Request) (v T, err error) {
	err = readJSON(r, &v)
	return v, err
}

// readJSON reads exactly one value, without fields that are not known. An empty
// body leaves v as it is. Bodies with long lists are for [readObject].
func readJSON(r *http.Request, v any) error {
	d := newDecoder(r.Body)
	return readBody(d, func() error { return decodeValue(d, v) })
}

func newDecoder(from io.Reader) *json.Decoder {
	d := json.NewDecoder(from)
	d.DisallowUnknownFields()
	return d
}

// readBody reads a body that has one value, if any.
func readBody(d *json.Decoder, decode func() error) error {
	err := decode()
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = errors.New("something follows the first value")
		}
	}
	if errors.Is(err, errBusy) || errors.Is(err, lease.ErrInvalid) {
		return err // which says already what is wrong
	}
	return fmt.Errorf("%w: the body is not the JSON that belongs here: %w", lease.ErrInvalid, err)
}

// writeJSON answers with one value.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error is a caller who has gone
	return nil
}

// inJSON is the handler that answers with what show returns.
func inJSON[T any](show func(*http.Request) (T, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		v, err := show(r)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, v)
	}
}

// views shows each of a list; the result is never null.
func views[T, V any](all []T, view func(T) V) []V {
	out := make([]V, 0, len(all))
	for _, one := range all {
		out = append(out, view(one))
	}
	return out
}

// pageOf is the page of a list, which is in the order of its positions, and where the next starts after; "" at the end.
func pageOf[T any](all []T, after string, limit int, position func(T) string) (page []T, next string) {
	first := sort.Search(len(all), func(i int) bool { return position(all[i]) > after })
	if page = all[first:]; len(page) <= limit {
		return page, ""
	}
	return page[:limit], position(page[limit-1])
}

// matching is what of a list has a name that contains a text, in small letters or not.
func matching[T any](all []T, text string, name func(T) string) []T {
	if text == "" {
		return all
	}
	var out []T
	for _, one := range all {
		if strings.Contains(strings.ToLower(name(one)), strings.ToLower(text)) {
			out = append(out, one)
		}
	}
	return out
}

// nextAfter is where a list goes on after a page that has as many as were asked for; "" where it ends.
func nextAfter[T any](page []T, limit int, position func(T) string) string {
	if len(page) < limit {
		return ""
	}
	return position(page[len(page)-1])
}

// serveContent answers with a file or a value, or with a part of it. [http.ServeContent] would refuse a range in plain text.
func serveContent(w http.ResponseWriter, r *http.Request, modified time.Time, body []byte) error {
	held := &withoutRefusal{ResponseWriter: w}
	http.ServeContent(held, r, "", modified, bytes.NewReader(body))
	if held.refused {
		return fmt.Errorf("%w: there are %d bytes", errRange, len(body))
	}
	return nil
}

// withoutRefusal holds back the refusals of a range and of too many at once, which are in plain text.
type withoutRefusal struct {
	http.ResponseWriter
	refused bool
}

// WriteHeader implements [http.ResponseWriter].
func (w *withoutRefusal) WriteHeader(status int) {
	if w.refused = status == http.StatusRequestedRangeNotSatisfiable || status == http.StatusServiceUnavailable; !w.refused {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write implements [http.ResponseWriter].
func (w *withoutRefusal) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

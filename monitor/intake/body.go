package intake

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// MaxBody is the most bytes of a request's body, packed or not.
const MaxBody int64 = 8 << 20

const (
	maxHeld = 16 * MaxBody // bytes of bodies in hand at once
	maxKept = 1 << 20      // of a buffer that is used again
)

var errBody = errors.New("the body did not arrive whole")

// desk is where one body is read and decoded.
type desk struct {
	body   bytes.Buffer
	packed *gzip.Reader
	decoder
}

// desks are those of all requests, and what lies on them.
type desks struct {
	free sync.Pool
	held atomic.Int64
}

// take reads a body. The desk must be put back by done.
func (s *desks) take(w http.ResponseWriter, r *http.Request) (d *desk, done func(), err error) {
	if err := acceptable(r.Header.Get("Content-Type")); err != nil {
		return nil, nil, err
	}
	packed := false
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "", "identity":
	case "gzip", "x-gzip":
		packed = true
	default:
		return nil, nil, errEncoding
	}
	size := r.ContentLength
	if size > MaxBody {
		return nil, nil, errLarge
	}
	if packed || size < 0 {
		size = MaxBody
	}
	if s.held.Add(size) > maxHeld {
		s.held.Add(-size)
		return nil, nil, errHeavy
	}
	d, _ = s.free.Get().(*desk)
	if d == nil {
		d = new(desk)
	}
	done = func() {
		s.held.Add(-size)
		if d.body.Cap() <= maxKept {
			d.body.Reset()
			d.reset()
			s.free.Put(d)
		}
	}
	if err := d.read(http.MaxBytesReader(w, r.Body, MaxBody), packed, int(min(r.ContentLength, MaxBody))); err != nil {
		done()
		return nil, nil, err
	}
	return d, done, nil
}

func (d *desk) read(body io.Reader, packed bool, size int) error {
	if !packed {
		d.body.Grow(max(0, size) + bytes.MinRead) // spares a copy at the end
		_, err := d.body.ReadFrom(body)
		if tooLarge := (*http.MaxBytesError)(nil); err == nil || errors.As(err, &tooLarge) {
			return err
		}
		return fmt.Errorf("%w: %w", errBody, err) // its sender's affair
	}
	var err error
	if d.packed == nil {
		d.packed, err = gzip.NewReader(body)
	} else {
		err = d.packed.Reset(body)
	}
	if err == nil {
		_, err = d.body.ReadFrom(io.LimitReader(d.packed, MaxBody+1))
	}
	switch tooLarge := (*http.MaxBytesError)(nil); {
	case errors.As(err, &tooLarge):
		return err
	case err != nil:
		return errGzip
	case int64(d.body.Len()) > MaxBody:
		return errLarge
	}
	return nil
}

// acceptable refuses bodies that say that they are no JSON. Browsers send those
// to other sites without asking.
func acceptable(contentType string) error {
	if contentType == "" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return errType
	}
	switch kind {
	case "application/json", "text/json", "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines":
		return nil
	}
	if strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json") {
		return nil
	}
	return errType
}

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
	// light bodies are taken whatever is in hand: who sends large ones, slowly, must
	// not keep everybody out.
	light = 64 << 10
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

// counted counts what arrives, and what it is unpacked to; not what was announced.
type counted struct {
	from  io.Reader
	desks *desks
	n     int64
}

// Read implements [io.Reader].
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	if c.desks.held.Add(int64(n)) > maxHeld && c.n > light {
		return n, errHeavy
	}
	return n, err
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
	if r.ContentLength > MaxBody {
		return nil, nil, errLarge
	}
	d, _ = s.free.Get().(*desk)
	if d == nil {
		d = new(desk)
	}
	in := &counted{from: http.MaxBytesReader(w, r.Body, MaxBody), desks: s}
	done = func() {
		s.held.Add(-in.n)
		if d.body.Cap() <= maxKept {
			d.body.Reset()
			d.reset()
			s.free.Put(d)
		}
	}
	if err := d.read(in, packed, r.ContentLength); err != nil {
		done()
		return nil, nil, err
	}
	return d, done, nil
}

func (d *desk) read(in *counted, packed bool, size int64) error {
	if !packed {
		d.body.Grow(int(min(max(0, size), light)) + bytes.MinRead) // spares a copy at the end
		_, err := d.body.ReadFrom(in)
		if tooLarge := (*http.MaxBytesError)(nil); err == nil || errors.As(err, &tooLarge) || errors.Is(err, errHeavy) {
			return err
		}
		return fmt.Errorf("%w: %w", errBody, err) // its sender's affair
	}
	body, err := in.from, error(nil)
	if d.packed == nil {
		d.packed, err = gzip.NewReader(body)
	} else {
		err = d.packed.Reset(body)
	}
	if err == nil {
		in.from = d.packed
		_, err = d.body.ReadFrom(io.LimitReader(in, MaxBody+1))
	}
	switch tooLarge := (*http.MaxBytesError)(nil); {
	case errors.As(err, &tooLarge), errors.Is(err, errHeavy):
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

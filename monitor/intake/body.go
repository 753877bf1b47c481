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
	maxHeld = 8 * MaxBody // bytes of bodies in hand at once; a buffer has up to twice its body, because it grows by doubling
	maxKept = 1 << 20     // of a buffer that is used again
	// smallBody is the size up to which a body is accepted whatever is in hand: a sender of large,
	// slow bodies must not shut out all others.
	smallBody = 64 << 10
)

var errBody = errors.New("the body did not arrive whole")

// buffer is where one body is read and decoded.
type buffer struct {
	body   bytes.Buffer
	packed *gzip.Reader
	decoder
}

// bufferPool are those of all requests, and what lies on them.
type bufferPool struct {
	free sync.Pool
	held atomic.Int64
}

// counted counts what arrives, and what it is unpacked to; not what was announced.
type counted struct {
	from       io.Reader
	bufferPool *bufferPool
	n          int64
}

// Read implements [io.Reader].
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += int64(n)
	if c.bufferPool.held.Add(int64(n)) > maxHeld && c.n > smallBody {
		return n, errHeavy
	}
	return n, err
}

// take reads a body into a buffer. The caller puts the buffer back by calling done.
func (s *bufferPool) take(w http.ResponseWriter, r *http.Request) (d *buffer, done func(), err error) {
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
	d, _ = s.free.Get().(*buffer)
	if d == nil {
		d = new(buffer)
	}
	in := &counted{from: http.MaxBytesReader(w, r.Body, MaxBody), bufferPool: s}
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

func (d *buffer) read(in *counted, packed bool, size int64) error {
	if !packed {
		d.body.Grow(int(min(max(0, size), smallBody)) + bytes.MinRead) // spares a copy at the end
		_, err := d.body.ReadFrom(in)
		if tooLarge := (*http.MaxBytesError)(nil); err == nil || errors.As(err, &tooLarge) || errors.Is(err, errHeavy) {
			return err
		}
		return fmt.Errorf("%w: %w", errBody, err) // the sender's fault, not the server's
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

// acceptable refuses bodies whose Content-Type is not JSON. Browsers send such bodies to other
// sites without asking first.
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

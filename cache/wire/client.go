package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Op is what a client asks for.
type Op byte

// What a client may ask for.
const (
	OpGet      Op = '?'
	OpDiscover Op = '*'
)

// Request is what a client asks. Its bytes are part of the frames it was decoded
// from.
type Request struct {
	ID     []byte // opaque to the server, 1 to 64 bytes
	Op     Op
	Expire int64 // Unix milliseconds after which the server ignores it; above 0
	Key    []byte
	After  int64 // Unix milliseconds that the copy must outlive; 0: any copy
	// Extended is that the client knows [ReplyError] and where a value comes from. The
	// fields that follow are sent only with it.
	Extended bool
	Refresh  bool  // asks for a fetch even where a fresh copy is held
	Patience int64 // milliseconds that the client will still wait; 0: see Expire
}

// Flags of a request.
const (
	flagExtended = 1
	flagRefresh  = 2
)

const (
	maxID   = 64
	maxWait = time.Hour
)

var errRequest = fmt.Errorf("%w of a client", ErrMalformed)

func badRequest(frame, why string) error {
	return fmt.Errorf("%w: %s: %s", errRequest, frame, why)
}

// Decode reads a request. When it fails, ID and Extended are set as far as they
// could be read, so that a client that knows errors can be told; without an ID
// there is nobody to tell. How long a key may be is for the caller to say.
func (r *Request) Decode(frames [][]byte) error {
	*r = Request{}
	if len(frames) < 3 {
		return badRequest("frames", "an id, an operation and an expiry are needed")
	}
	if n := len(frames[0]); n == 0 || n > maxID {
		return badRequest("id (frame 0)", "it must have 1 to 64 bytes")
	}
	r.ID = frames[0]
	// The flags come first, for they say how to answer whatever is wrong.
	if err := r.extension(frames); err != nil {
		return err
	}
	if len(frames[1]) != 1 {
		return badRequest("operation (frame 1)", "it must have one byte")
	}
	r.Op = Op(frames[1][0])
	var err error
	if r.Expire, err = parseUint(frames[2]); err != nil {
		return badRequest("expiry (frame 2)", err.Error())
	}
	switch r.Op {
	case OpDiscover:
		return nil
	case OpGet:
	default:
		return fmt.Errorf("%w of a client: %q", ErrUnknown, byte(r.Op))
	}
	if len(frames) < 4 || len(frames[3]) == 0 {
		return badRequest("key (frame 3)", "it is missing or empty")
	}
	r.Key = frames[3]
	if len(frames) > 4 {
		if r.After, err = parseUint(frames[4]); err != nil && !errors.Is(err, errEmpty) {
			return badRequest("after (frame 4)", err.Error())
		}
	}
	return nil
}

func (r *Request) extension(frames [][]byte) error {
	if len(frames) < 6 || len(frames[5]) == 0 {
		return nil
	}
	flags, err := parseUint(frames[5])
	if err != nil {
		return badRequest("flags (frame 5)", err.Error())
	}
	if flags&flagExtended == 0 {
		return nil
	}
	r.Extended, r.Refresh = true, flags&flagRefresh != 0
	if len(frames) > 6 && len(frames[6]) > 0 {
		if r.Patience, err = parseUint(frames[6]); err != nil {
			return badRequest("patience (frame 6)", err.Error())
		}
	}
	return nil
}

// Wait is how long the client still waits, at most one hour; 0: it does not wait any
// more. wall is the server's clock in Unix milliseconds at the receipt, and is
// compared with the client's only when that has not said how patient it is.
func (r *Request) Wait(wall int64) time.Duration {
	ms := r.Patience
	if ms == 0 {
		ms = r.Expire - wall
	}
	return time.Duration(min(max(ms, 0), maxWait.Milliseconds())) * time.Millisecond
}

// AppendID appends a request id as the original's client makes it: the number in
// base 36.
func AppendID(dst []byte, n uint32) []byte { return strconv.AppendUint(dst, uint64(n), 36) }

// ParseID reads what [AppendID] makes, and nothing else.
func ParseID(b []byte) (uint32, bool) {
	if len(b) > maxID {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b), 36, 32)
	var canonical [8]byte
	return uint32(n), err == nil && bytes.Equal(AppendID(canonical[:0], uint32(n)), b)
}

// Encoder makes frames of GETs and replies in memory of its own, which it uses again: what it returns
// is valid until its next call. It takes values and keys as they are, without
// copying them. It is for one goroutine; its zero value is ready.
type Encoder struct {
	b builder
}

func (e *Encoder) start() *builder {
	clear(e.b.frames) // lets go of the last value
	e.b.frames, e.b.buf = e.b.frames[:0], e.b.buf[:0]
	return &e.b
}

// Request encodes a request, without the frames that are 0 or not Extended, so that
// one that asks for nothing new is what the original sends.
func (e *Encoder) Request(r *Request) [][]byte {
	b := e.start()
	b.frames = append(b.frames, r.ID)
	b.byte(byte(r.Op)).uint(r.Expire)
	b.frames = append(b.frames, r.Key)
	if r.After != 0 || r.Extended {
		b.uint(r.After)
	}
	if r.Extended {
		b.uint(flagExtended | bit(r.Refresh, flagRefresh)).uint(r.Patience)
	}
	return b.frames
}

package zmtp

import (
	"fmt"
	"io"
	"slices"
)

// Sizes of a connection's buffers: what it has at first, and what it may keep when
// it does not need it at the moment.
const (
	firstBuffer = 16 << 10
	keptBuffer  = 128 << 10
)

// assembler makes frames into messages where they lie: the buffer that is read into.
// It does no I/O but in fill, and never waits.
type assembler struct {
	maxBytes, maxFrames int
	opener              *sealer // CURVE, after the handshake; else nil

	buf  []byte
	from int // begin of the message being read
	pos  int // first byte that was not parsed
	to   int // end of what was read

	frames []span // of the message being read
	size   int    // their bytes
	plain  []byte // what the opener made of them
	kept   int    // how much of plain belongs to frames
	done   bool   // the message was handed out: its bytes are free
	msg    Message
}

// span is where a frame lies: from the start of the message in buf, or in plain.
type span struct{ at, size int }

// item is one message or one command.
type item struct {
	message Message
	command []byte // nil for a message
}

// next returns the next message or command in the buffer, which is valid until the next call of
// next or fill. It returns false while more bytes must come.
func (a *assembler) next() (item, bool, error) {
	a.release()
	for {
		messageMax, commandMax := a.maxBytes-a.size, maxCommand
		if a.opener != nil {
			messageMax, commandMax = messageMax+sealOverhead, messageMax+sealOverhead
		}
		f, n, err := parseFrame(a.buf[a.pos:a.to], messageMax, commandMax)
		if err != nil || n == 0 {
			return item{}, false, err
		}
		at := a.pos + n - len(f.body) - a.from
		a.pos += n
		if a.opener != nil {
			at = len(a.plain) + 1
			if f, err = a.decrypt(f); err != nil {
				return item{}, false, err
			}
		}
		if f.flags&flagCommand != 0 {
			return item{command: f.body}, true, nil
		}
		if err := a.append(span{at, len(f.body)}); err != nil {
			return item{}, false, err
		}
		if f.flags&flagMore == 0 {
			return item{message: a.message()}, true, nil
		}
	}
}

// decrypt decrypts a frame to the end of plain. Nothing else needs its bytes in buf.
func (a *assembler) decrypt(f frame) (frame, error) {
	if f.flags&flagMore != 0 {
		return f, fmt.Errorf("%w: more frames are announced outside of the box", ErrProtocol)
	}
	at := len(a.plain)
	plain, err := a.opener.open(a.plain, f.body)
	if err != nil {
		return f, err
	}
	a.plain, a.from = plain, a.pos
	f = frame{plain[at], plain[at+1:]}
	switch {
	case f.flags&^(flagMore|flagCommand) != 0:
		return f, fmt.Errorf("%w: a box has the flags %#02x", ErrProtocol, f.flags)
	case f.flags&flagCommand == 0:
		a.kept = len(plain)
	case len(f.body) > maxCommand:
		return f, fmt.Errorf("%w: a command of %d bytes; %d are allowed", ErrTooLarge, len(f.body), maxCommand)
	}
	return f, nil
}

func (a *assembler) append(s span) error {
	if len(a.frames) == a.maxFrames {
		return fmt.Errorf("%w: a message of more than %d frames", ErrTooLarge, a.maxFrames)
	}
	a.frames = append(a.frames, s)
	a.size += s.size
	return nil
}

// message hands out the message that has just become complete.
func (a *assembler) message() Message {
	base := a.buf[a.from:]
	if a.opener != nil {
		base = a.plain
	}
	a.msg = a.msg[:0]
	for _, s := range a.frames {
		a.msg = append(a.msg, base[s.at:s.at+s.size:s.at+s.size])
	}
	a.done = true
	return a.msg
}

// release gives back what was handed out.
func (a *assembler) release() {
	if a.done {
		a.frames, a.size, a.kept, a.done = a.frames[:0], 0, 0, false
		if cap(a.plain) > keptBuffer {
			a.plain = nil
		}
	}
	if len(a.frames) == 0 {
		a.from = a.pos
	}
	// A command's text lies behind that of the message that it came in between.
	a.plain = a.plain[:a.kept]
}

// fill reads once, into as much room as there is, and makes room first.
func (a *assembler) fill(src io.Reader) (int, error) {
	a.release()
	if err := a.growBuffer(); err != nil {
		return 0, err
	}
	n, err := src.Read(a.buf[a.to:])
	a.to += n
	if n > 0 {
		err = nil // it comes again with the next read
	}
	return n, err
}

// growBuffer makes the buffer larger only when it is full of bytes that have come: what
// the other side announces takes no memory.
func (a *assembler) growBuffer() error {
	left := a.to - a.from
	switch {
	case a.buf == nil:
		a.buf = make([]byte, firstBuffer)
	case left == 0:
		if len(a.buf) > keptBuffer {
			a.buf = make([]byte, firstBuffer)
		}
		a.from, a.pos, a.to = 0, 0, 0
	case a.to < len(a.buf):
	case left <= len(a.buf)/2:
		a.move(a.buf)
	case left > a.maxBytes+a.maxFrames*(9+sealOverhead)+2*maxCommand:
		// Only commands in between the frames of a message can fill so much.
		return fmt.Errorf("%w: a message with %d bytes of commands in between", ErrTooLarge, left-a.size)
	default:
		a.move(make([]byte, 2*len(a.buf)))
	}
	return nil
}

func (a *assembler) move(to []byte) {
	copy(to, a.buf[a.from:a.to])
	a.buf, a.from, a.pos, a.to = to, 0, a.pos-a.from, a.to-a.from
}

// takeBytes returns the next n bytes, or false while they have not come; for the greeting.
func (a *assembler) takeBytes(n int) ([]byte, bool) {
	if a.to-a.pos < n {
		return nil, false
	}
	b := a.buf[a.pos : a.pos+n]
	a.pos += n
	a.from = a.pos
	return b, true
}

// peek returns what has come and was not parsed.
func (a *assembler) peek() []byte { return a.buf[a.pos:a.to] }

// partial reports whether a message or command has started and is not complete.
func (a *assembler) partial() bool { return a.to > a.pos || len(a.frames) > 0 && !a.done }

// wireSize is how many bytes a message takes on the wire.
func wireSize(m Message, sealed bool) int {
	n := 0
	for _, f := range m {
		n += frameSize(len(f), sealed)
	}
	return n
}

func frameSize(body int, sealed bool) int {
	if sealed {
		body += sealOverhead
	}
	if body > 255 {
		return 9 + body
	}
	return 2 + body
}

// appendMessage appends the frames of a message, or a command, as they continue the wire.
func appendMessage(dst []byte, m Message, s *sealer) []byte {
	dst = slices.Grow(dst, wireSize(m, s != nil))
	for i, f := range m {
		var flags byte
		if i < len(m)-1 {
			flags = flagMore
		}
		dst = appendPart(dst, flags, f, s)
	}
	return dst
}

func appendPart(dst []byte, flags byte, body []byte, s *sealer) []byte {
	if s == nil {
		return appendFrame(dst, flags, body)
	}
	return s.seal(appendHeader(dst, 0, len(body)+sealOverhead), flags, body)
}

package resp

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// What zero [Limits] stand for.
const (
	defaultLine  = 4 << 10
	defaultArgs  = 1024
	defaultBytes = 64 << 10
)

// Limits bound what a client can send.
type Limits struct {
	Line  int // bytes of a line, 64 at least. Default 4 KiB.
	Args  int // arguments of a request. Default 1024.
	Bytes int // all of them together. Default 64 KiB.
}

// ProtocolError is what a client did wrong, in Redis' words.
type ProtocolError string

// Error is the text of the answer, without "ERR".
func (e ProtocolError) Error() string { return "Protocol error: " + string(e) }

// Reader reads requests. It is for one goroutine.
type Reader struct {
	r   *bufio.Reader
	lim Limits
}

// NewReader reads from r.
func NewReader(r io.Reader, l Limits) *Reader {
	l.Line = max(cmp.Or(l.Line, defaultLine), 64)
	l.Args = cmp.Or(l.Args, defaultArgs)
	l.Bytes = cmp.Or(l.Bytes, defaultBytes)
	return &Reader{bufio.NewReaderSize(r, l.Line), l}
}

// Request returns the next request, which has at least one argument. The error is a
// ProtocolError, or that of the connection: io.EOF between requests, io.ErrUnexpectedEOF
// within one.
func (r *Reader) Request() ([]string, error) {
	for {
		line, err := r.line("too big inline request")
		if err != nil {
			return nil, err
		}
		var args []string
		if len(line) > 0 && line[0] == '*' {
			args, err = r.array(line[1:])
		} else {
			args, err = r.inline(line)
		}
		if err != nil || len(args) > 0 {
			return args, err
		}
	}
}

// line returns a line without its end. It is valid until the next read.
func (r *Reader) line(tooLong ProtocolError) ([]byte, error) {
	line, err := r.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, tooLong
	case errors.Is(err, io.EOF) && len(line) > 0:
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	}
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, nil
}

func (r *Reader) array(count []byte) ([]string, error) {
	n, ok := number(count)
	if !ok || n > r.lim.Args {
		return nil, ProtocolError("invalid multibulk length")
	}
	if n <= 0 {
		return nil, nil
	}
	args := make([]string, 0, min(n, 16))
	for left := r.lim.Bytes; len(args) < n; {
		arg, err := r.bulk(left)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		left -= len(arg)
		args = append(args, arg)
	}
	return args, nil
}

func (r *Reader) bulk(most int) (string, error) {
	line, err := r.line("too big bulk count string")
	if err != nil {
		return "", err
	}
	if len(line) == 0 || line[0] != '$' {
		got := byte(' ')
		if len(line) > 0 && line[0] > ' ' && line[0] < 0x7f {
			got = line[0]
		}
		return "", ProtocolError(fmt.Sprintf("expected '$', got '%c'", got))
	}
	n, ok := number(line[1:])
	if !ok || n < 0 || n > most {
		return "", ProtocolError("invalid bulk length")
	}
	text := make([]byte, n+2)
	if _, err := io.ReadFull(r.r, text); err != nil {
		return "", err
	}
	return string(text[:n]), nil // Redis does not look at the two bytes either
}

// number reads the decimal numbers that Redis reads: no sign but '-', no spaces.
func number(b []byte) (int, bool) {
	if len(b) == 0 || len(b) > 10 || b[0] == '+' {
		return 0, false
	}
	n, err := strconv.Atoi(string(b))
	return n, err == nil
}

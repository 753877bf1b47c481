package resp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ErrReply: the server does not speak RESP, or more of it than the [ReplyLimits] allow.
var ErrReply = errors.New("not a Redis protocol answer")

// ReplyLimits bound what a server can send.
type ReplyLimits struct {
	Line  int // bytes of a line
	Bulk  int // bytes of a string
	Items int // elements of an array
	Depth int // of arrays in arrays
	Total int // bytes of all that one ReplyReader reads; 0: no limit
}

// Reply is one answer.
type Reply struct {
	// Text of a string or an error; "" for nil.
	Text  string
	Int   int64
	Nil   bool
	Items []Reply // of an array
	// Kind is the first byte: + - : $ *
	Kind byte
}

// ServerError is an answer that starts with '-'.
type ServerError string

func (e ServerError) Error() string { return string(e) }

// Code is the first word: "ERR", "READONLY".
func (e ServerError) Code() string {
	code, _, _ := strings.Cut(string(e), " ")
	return code
}

// Err is the answer as a [ServerError], or nil if it is not an error.
func (r Reply) Err() error {
	if r.Kind == '-' {
		return ServerError(r.Text)
	}
	return nil
}

// AppendCommand appends a command as an array of strings.
func AppendCommand(b []byte, words []string) []byte {
	b = append(b, '*')
	b = append(strconv.AppendInt(b, int64(len(words)), 10), "\r\n"...)
	for _, word := range words {
		b = append(b, '$')
		b = append(strconv.AppendInt(b, int64(len(word)), 10), "\r\n"...)
		b = append(append(b, word...), "\r\n"...)
	}
	return b
}

// ReplyReader reads answers. It is for one goroutine.
type ReplyReader struct {
	r       *bufio.Reader
	lim     ReplyLimits
	read    int
	started bool
}

// NewReplyReader reads from r.
func NewReplyReader(r *bufio.Reader, l ReplyLimits) *ReplyReader { return &ReplyReader{r: r, lim: l} }

// Started reports whether a byte of an answer came.
func (p *ReplyReader) Started() bool { return p.started }

// Reply returns the next answer. The error wraps ErrReply, or is that of the connection: io.EOF before the first byte,
// io.ErrUnexpectedEOF within.
func (p *ReplyReader) Reply() (Reply, error) { return p.reply(0) }

func (p *ReplyReader) reply(depth int) (Reply, error) {
	line, err := p.line()
	if err != nil {
		return Reply{}, err
	}
	if line == "" {
		return Reply{}, fmt.Errorf("%w: an empty line", ErrReply)
	}
	r := Reply{Kind: line[0]}
	if r.Kind == '+' || r.Kind == '-' {
		r.Text = strings.ToValidUTF8(line[1:], "?")
		return r, nil
	}
	n, err := strconv.ParseInt(line[1:], 10, 64)
	isArray := r.Kind == '*'
	switch {
	case !isArray && r.Kind != ':' && r.Kind != '$':
		return r, fmt.Errorf("%w: %.60q", ErrReply, line)
	case err != nil:
		return r, fmt.Errorf("%w: number %.60q", ErrReply, line[1:])
	case r.Kind == ':':
		r.Int = n
	case n == -1:
		r.Nil = true
	case !isArray:
		r.Text, err = p.bulk(n)
		return r, err
	case n < 0 || n > int64(p.lim.Items) || depth >= p.lim.Depth:
		return r, fmt.Errorf("%w: an array of %d, %d deep", ErrReply, n, depth+1)
	default:
		for range n {
			item, err := p.reply(depth + 1)
			if err != nil {
				return r, err
			}
			r.Items = append(r.Items, item)
		}
	}
	return r, nil
}

func (p *ReplyReader) line() (string, error) {
	if !p.started {
		if _, err := p.r.Peek(1); err != nil {
			return "", err
		}
		p.started = true
	}
	var line []byte
	for {
		part, err := p.r.ReadSlice('\n')
		line = append(line, part...)
		p.read += len(part)
		switch {
		case len(line) > p.lim.Line || p.isOver(0):
			return "", fmt.Errorf("%w: too long; it starts with %.60q", ErrReply, line)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return "", io.ErrUnexpectedEOF
		case err != nil:
			return "", err
		default:
			return strings.TrimRight(string(line), "\r\n"), nil
		}
	}
}

// isOver reports whether more bytes would be too many.
func (p *ReplyReader) isOver(more int64) bool {
	return p.lim.Total > 0 && int64(p.read)+more > int64(p.lim.Total)
}

func (p *ReplyReader) bulk(n int64) (string, error) {
	if n < 0 || n > int64(p.lim.Bulk) || p.isOver(n) {
		return "", fmt.Errorf("%w: a string of %d bytes", ErrReply, n)
	}
	p.read += int(n) + 2
	text := make([]byte, n+2)
	if _, err := io.ReadFull(p.r, text); err != nil {
		return "", err
	}
	if text[n] != '\r' || text[n+1] != '\n' {
		return "", fmt.Errorf("%w: a string without its end", ErrReply)
	}
	return string(text[:n]), nil
}

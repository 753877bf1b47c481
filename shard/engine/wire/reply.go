package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ErrProtocol: the other side does not speak RESP, or more of it than anybody wants.
var ErrProtocol = errors.New("wire: not a Redis protocol answer")

// Limits of what is read.
const (
	MaxReply = 4 << 20 // bytes of the answers of one exchange
	maxLine  = 16 << 10
	maxItems = 1 << 14
	maxDepth = 4
)

// Reply is one answer.
type Reply struct {
	// Text of a string or an error; "" for nil.
	Text  string
	Int   int64
	Nil   bool
	Items []Reply // of an array
	kind  byte
}

// ServerError is an answer that begins with '-'.
type ServerError string

func (e ServerError) Error() string { return string(e) }

// Code is the first word: "ERR", "READONLY".
func (e ServerError) Code() string {
	code, _, _ := strings.Cut(string(e), " ")
	return code
}

// Err is the answer as a [ServerError], or nil if it is none.
func (r Reply) Err() error {
	if r.kind == '-' {
		return ServerError(r.Text)
	}
	return nil
}

// reader reads the answers of one exchange, and not more than MaxReply bytes of them.
type reader struct {
	r    *bufio.Reader
	left int
	seen bool // a byte came
}

func (p *reader) read(depth int) (Reply, error) {
	line, err := p.line()
	if err != nil {
		return Reply{}, err
	}
	if line == "" {
		return Reply{}, fmt.Errorf("%w: an empty line", ErrProtocol)
	}
	r := Reply{kind: line[0]}
	switch rest := line[1:]; r.kind {
	case '+', '-':
		r.Text = strings.ToValidUTF8(rest, "?")
		return r, nil
	case ':':
		r.Int, err = p.number(rest)
		return r, err
	case '$':
		n, err := p.number(rest)
		if err != nil || n == -1 {
			r.Nil = true
			return r, err
		}
		r.Text, err = p.bulk(n)
		return r, err
	case '*':
		n, err := p.number(rest)
		if err != nil || n == -1 {
			r.Nil = true
			return r, err
		}
		if n < 0 || n > maxItems || depth >= maxDepth {
			return r, fmt.Errorf("%w: an array of %d, %d deep", ErrProtocol, n, depth+1)
		}
		for range n {
			item, err := p.read(depth + 1)
			if err != nil {
				return r, err
			}
			r.Items = append(r.Items, item)
		}
		return r, nil
	default:
		return r, fmt.Errorf("%w: %.60q", ErrProtocol, line)
	}
}

func (p *reader) line() (string, error) {
	if !p.seen {
		if _, err := p.r.Peek(1); err != nil {
			return "", err
		}
		p.seen = true
	}
	line, err := p.r.ReadSlice('\n')
	p.left -= len(line)
	switch {
	case errors.Is(err, bufio.ErrBufferFull) || p.left < 0:
		return "", fmt.Errorf("%w: too long; it begins %.60q", ErrProtocol, line)
	case errors.Is(err, io.EOF):
		return "", io.ErrUnexpectedEOF
	case err != nil:
		return "", err
	}
	return strings.TrimRight(string(line), "\r\n"), nil
}

func (p *reader) bulk(n int64) (string, error) {
	if n < 0 || n > int64(p.left) {
		return "", fmt.Errorf("%w: a string of %d bytes", ErrProtocol, n)
	}
	p.left -= int(n) + 2
	text := make([]byte, n+2)
	if _, err := io.ReadFull(p.r, text); err != nil {
		return "", err
	}
	if text[n] != '\r' || text[n+1] != '\n' {
		return "", fmt.Errorf("%w: a string without its end", ErrProtocol)
	}
	return string(text[:n]), nil
}

func (p *reader) number(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: number %.60q", ErrProtocol, text)
	}
	return n, nil
}

// encode appends a command as an array of strings.
func encode(b []byte, command []string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(command))
	for _, arg := range command {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b
}

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// respConn speaks to one server, without a library's retries and queues between it and the moment.
type respConn struct {
	net.Conn
	address string
	in      *bufio.Reader
	out     []byte
}

// errRefusedByServer is an answer that says no.
var errRefusedByServer = errors.New("the server refuses")

// errNoValue is the answer that there is nothing.
var errNoValue = errors.New("no value")

func dialResp(address string, within time.Duration) (*respConn, error) {
	conn, err := net.DialTimeout("tcp", address, within)
	if err != nil {
		return nil, err
	}
	return newResp(conn, address), nil
}

func newResp(conn net.Conn, address string) *respConn {
	return &respConn{Conn: conn, address: address, in: bufio.NewReaderSize(conn, 16<<10)}
}

// queue appends a command to what flush sends.
func (c *respConn) queue(args ...string) {
	c.out = append(c.out, '*')
	c.out = strconv.AppendInt(c.out, int64(len(args)), 10)
	c.out = append(c.out, "\r\n"...)
	for _, a := range args {
		c.out = append(c.out, '$')
		c.out = strconv.AppendInt(c.out, int64(len(a)), 10)
		c.out = append(c.out, "\r\n"...)
		c.out = append(c.out, a...)
		c.out = append(c.out, "\r\n"...)
	}
}

// flush sends what was queued. within bounds it and the answers to it.
func (c *respConn) flush(within time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(within))
	_, err := c.Write(c.out)
	c.out = c.out[:0]
	return err
}

// do sends a command and returns its answer: text, or a list of texts.
func (c *respConn) do(within time.Duration, args ...string) (reply, error) {
	c.queue(args...)
	if err := c.flush(within); err != nil {
		return reply{}, err
	}
	return c.answer()
}

// reply is an answer: text, or a list.
type reply struct {
	text string
	list []reply
}

// pairs of a flat list.
func (r reply) pairs() map[string]string {
	out := map[string]string{}
	for i := 0; i+1 < len(r.list); i += 2 {
		out[r.list[i].text] = r.list[i+1].text
	}
	return out
}

// answer reads one.
func (c *respConn) answer() (reply, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return reply{}, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return reply{}, fmt.Errorf("bench: %s answers an empty line", c.address)
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ':':
		return reply{text: rest}, nil
	case '-':
		return reply{}, fmt.Errorf("%w: %s", errRefusedByServer, rest)
	}
	n, err := strconv.Atoi(rest)
	switch {
	case err != nil:
		return reply{}, fmt.Errorf("bench: %s answers %q", c.address, line)
	case n < 0:
		return reply{}, errNoValue
	case kind == '$':
		text := make([]byte, n+2)
		if _, err := io.ReadFull(c.in, text); err != nil {
			return reply{}, err
		}
		return reply{text: string(text[:n])}, nil
	case kind != '*':
		return reply{}, fmt.Errorf("bench: %s answers %q", c.address, line)
	}
	r := reply{list: make([]reply, 0, n)}
	for range n {
		one, err := c.answer()
		if err != nil && !errors.Is(err, errNoValue) {
			return reply{}, err
		}
		r.list = append(r.list, one)
	}
	return r, nil
}

// ask sends one command on a connection of its own.
func ask(address string, args ...string) (reply, error) {
	c, err := dialResp(address, time.Second)
	if err != nil {
		return reply{}, err
	}
	defer c.Close()
	return c.do(5*time.Second, args...)
}

// infoField is a field of INFO, "" if the server does not answer or has none.
func infoField(address, section, name string) string {
	r, err := ask(address, "INFO", section)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(r.text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// senderRole sends heartbeats. It speaks just enough HTTP, so that it costs the machine as
// little as may be.
const senderRole = "monitor-sender"

// Ways to send heartbeats.
const (
	byArray = "array" // POST /v1/beats, many in each
	byPing  = "ping"  // POST /v1/ping/EVENT/SOURCE
	byPost  = "post"  // POST /v1/beats, one in each
)

// senderOptions tell a process what to send, and where.
type senderOptions struct {
	Address string
	Event   string
	Way     string
	Each    int // heartbeats in a request
	Conns   int // keep-alive connections
	Sources int
}

func sourceName(i int) string { return fmt.Sprintf("source-%07d", i) }

// appendSource is sourceName without what that costs.
func appendSource(out []byte, i int) []byte {
	out = append(out, "source-0000000"...)
	for at := len(out) - 1; i > 0; at, i = at-1, i/10 {
		out[at] = byte('0' + i%10)
	}
	return out
}

// stride leads from one source to the next, so that they come in no order, and all
// before one comes again: it has no factor in common with their number.
const stride = 7919

// senderConn is one connection.
type senderConn struct {
	o    *senderOptions
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	body []byte
}

var errBusy = errors.New("too much waits there")

func dialSender(o *senderOptions) (*senderConn, error) {
	conn, err := net.Dial("tcp", o.Address)
	if err != nil {
		return nil, err
	}
	return &senderConn{o: o, conn: conn, in: bufio.NewReader(conn)}, nil
}

// send sends a heartbeat of n sources, those with the numbers that which gives, and returns when
// they are stored.
func (c *senderConn) send(n int, which func(int) int) error {
	if c.o.Way == byPing {
		c.out = append(append(append(c.out[:0], "POST /v1/ping/"...), c.o.Event...), '/')
		c.out = append(appendSource(c.out, which(0)), " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"...)
		return c.roundTrip()
	}
	c.body = c.body[:0]
	for i := range n {
		c.body = append(append(append(c.body, `,{"event":"`...), c.o.Event...), `","source":"`...)
		c.body = append(appendSource(c.body, which(i)), `"}`...)
	}
	if c.o.Way == byArray {
		c.body[0] = '['
		c.body = append(c.body, ']')
	} else {
		c.body[0] = ' '
	}
	c.out = append(c.out[:0], "POST /v1/beats HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "...)
	c.out = append(strconv.AppendInt(c.out, int64(len(c.body)), 10), "\r\n\r\n"...)
	c.out = append(c.out, c.body...)
	return c.roundTrip()
}

func (c *senderConn) roundTrip() error {
	_ = c.conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	return readAccepted(c.in)
}

// readAccepted reads an answer, which says that all was taken.
func readAccepted(in *bufio.Reader) error {
	status, length, err := readHead(in)
	if err != nil {
		return err
	}
	if length < 0 {
		return errors.New("an answer without its length")
	}
	body, err := in.Peek(min(length, 400))
	said := string(body)
	if _, e := in.Discard(length); err == nil {
		err = e
	}
	switch {
	case err != nil:
		return err
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return errBusy
	case status != http.StatusOK:
		return fmt.Errorf("%d: %s", status, said)
	}
	return nil
}

// sender is a process that sends heartbeats.
type sender struct {
	o     senderOptions
	conns []*senderConn
	next  atomic.Int64
}

func newSender(o senderOptions) (*sender, error) {
	s := &sender{o: o}
	for range o.Conns {
		c, err := dialSender(&s.o)
		if err != nil {
			return nil, err
		}
		s.conns = append(s.conns, c)
	}
	return s, nil
}

// all sends requests on all connections, for as long as there is another: next
// waits until it is time for that and returns its first heartbeat's number, and how many. What was
// refused because too much waited is sent again after a moment.
func (s *sender) all(which func(int) int, next func() (from, n int)) (lots, error) {
	took := make([]sample, len(s.conns))
	errs := make([]error, len(s.conns))
	var heartbeats atomic.Int64
	var senders sync.WaitGroup
	began := time.Now()
	for i, c := range s.conns {
		senders.Go(func() {
			for from, n := next(); n > 0; from, n = next() {
				at := time.Now()
				err := c.send(n, func(k int) int { return which(from + k) })
				for ; errors.Is(err, errBusy); err = c.roundTrip() {
					time.Sleep(5 * time.Millisecond)
				}
				if err != nil {
					errs[i] = err
					return
				}
				heartbeats.Add(int64(n))
				took[i] = append(took[i], time.Since(at))
			}
		})
	}
	senders.Wait()
	out := lotsOf(took, began)
	out.Count = int(heartbeats.Load())
	return out, errors.Join(errs...)
}

// obey is one command: "hammer DURATION", as fast as it goes; "pace DURATION RATE",
// so many heartbeats a second; "once FROM TO", each of some sources once.
func (s *sender) obey(words []string) (lots, error) {
	scattered := func(i int) int { return i * stride % s.o.Sources }
	each := int64(s.o.Each)
	switch {
	case len(words) == 2 && words[0] == "hammer":
		d, err := time.ParseDuration(words[1])
		end := time.Now().Add(d)
		return s.finish(err, scattered, func() (int, int) {
			if time.Now().After(end) {
				return 0, 0
			}
			return int(s.next.Add(each) - each), s.o.Each
		})
	case len(words) == 3 && words[0] == "pace":
		d, err := time.ParseDuration(words[1])
		rate, err2 := strconv.ParseFloat(words[2], 64)
		began, first := time.Now(), s.next.Load()
		return s.finish(errors.Join(err, err2), scattered, func() (int, int) {
			from := s.next.Add(each) - each
			at := time.Duration(float64(from-first) / rate * float64(time.Second))
			if at >= d {
				return 0, 0
			}
			time.Sleep(time.Until(began.Add(at)))
			return int(from), s.o.Each
		})
	case len(words) == 3 && words[0] == "once":
		from, err := strconv.Atoi(words[1])
		to, err2 := strconv.Atoi(words[2])
		var next atomic.Int64
		next.Store(int64(from))
		return s.finish(errors.Join(err, err2), func(i int) int { return i }, func() (int, int) {
			at := int(next.Add(each) - each)
			return at, max(0, min(s.o.Each, to-at))
		})
	}
	return lots{}, fmt.Errorf("unknown command %q", words)
}

func (s *sender) finish(err error, which func(int) int, next func() (int, int)) (lots, error) {
	if err != nil {
		return lots{}, err
	}
	return s.all(which, next)
}

func runSender(c *child, o senderOptions) error {
	s, err := newSender(o)
	if err != nil {
		return err
	}
	c.answer(s.obey)
	return nil
}

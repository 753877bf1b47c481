package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// hotValue is the size of the value that everybody asks for.
const hotValue = 100

// bareServers are an echo of framed messages and an HTTP server, both with nothing
// behind them, in a process of their own: what loopback and Go give at best.
type bareServers struct{ Echo, HTTP string }

func startBare(b *bed) (m *member, out bareServers) {
	m = launch(b, bareRole, struct{}{})
	b.check(json.Unmarshal([]byte(m.await(saidReady, time.Minute).more), &out), "reading where the bare servers are")
	return m, out
}

func runBare(c *child, _ struct{}) error {
	var listeners [2]net.Listener
	for i := range listeners {
		var err error
		if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
	}
	go serveEach(listeners[0], func(conn net.Conn) { _ = echo(conn) })
	value := make([]byte, hotValue)
	go func() {
		_ = http.Serve(listeners[1], http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Content-Length", strconv.Itoa(len(value)))
			_, _ = w.Write(value)
		}))
	}()
	data, _ := json.Marshal(bareServers{listeners[0].Addr().String(), listeners[1].Addr().String()})
	c.say(saidReady, string(data))
	c.untilClosed()
	return nil
}

// serveEach calls serve for every connection, until the listener is closed.
func serveEach(l net.Listener, serve func(net.Conn)) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go serve(conn)
	}
}

// echo answers each frame with the same, and writes when no more has come.
func echo(conn net.Conn) error {
	defer conn.Close()
	in, out := bufio.NewReaderSize(conn, 16<<10), bufio.NewWriterSize(conn, 16<<10)
	frame := make([]byte, 4096)
	for {
		n, err := readFrame(in, frame)
		if err != nil {
			return err
		}
		_, _ = out.Write(frame[:n])
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
}

// readFrame reads a length in four bytes and as many bytes after it.
func readFrame(in *bufio.Reader, frame []byte) (int, error) {
	if _, err := io.ReadFull(in, frame[:4]); err != nil {
		return 0, err
	}
	n := 4 + int(binary.BigEndian.Uint32(frame))
	if n > len(frame) {
		return 0, fmt.Errorf("a frame of %d bytes", n)
	}
	_, err := io.ReadFull(in, frame[4:n])
	return n, err
}

// plain are bare connections that send the same bytes again and again, and read a
// reply in between.
type plain struct {
	o       loadOptions
	request []byte
	read    func(*bufio.Reader) error
}

// newEchoes has frames of about the size of a reply with the value.
func newEchoes(o loadOptions) *plain {
	request := binary.BigEndian.AppendUint32(nil, hotValue+30)
	request = append(request, make([]byte, hotValue+30)...)
	buffers := sync.Pool{New: func() any { return new([4096]byte) }}
	return &plain{o, request, func(in *bufio.Reader) error {
		frame := buffers.Get().(*[4096]byte)
		defer buffers.Put(frame)
		_, err := readFrame(in, frame[:])
		return err
	}}
}

// newBrowsers ask over HTTP, with a client that does as little as may be.
func newBrowsers(o loadOptions) *plain {
	request := fmt.Appendf(nil, "GET /v1/cache/%s HTTP/1.1\r\nHost: %s\r\n\r\n", o.Key, o.Servers[0])
	return &plain{o, request, readResponse}
}

func readResponse(in *bufio.Reader) error {
	status, length, err := readHead(in)
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		return fmt.Errorf("the server answers %d", status)
	case length != hotValue:
		return fmt.Errorf("a value of %d bytes", length)
	}
	_, err = in.Discard(length)
	return err
}

// readHead reads an answer up to its body: its status, and how long the body is, or -1.
func readHead(in *bufio.Reader) (status, length int, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := bytes.Cut(line, []byte(" "))
	code, _, _ := bytes.Cut(rest, []byte(" "))
	if status, err = strconv.Atoi(string(code)); err != nil {
		return 0, 0, err
	}
	length = -1
	for {
		line, err := in.ReadSlice('\n')
		if err != nil || len(line) <= 2 {
			return status, length, err
		}
		if name, value, _ := bytes.Cut(line, []byte(":")); bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, 0, err
			}
		}
	}
}

// hammer connects anew: a server of HTTP does not wait long for the first request.
func (p *plain) hammer(d time.Duration) (lots, error) {
	conns := make([]net.Conn, p.o.Conns)
	for i := range conns {
		var err error
		if conns[i], err = net.Dial("tcp", p.o.Servers[0]); err != nil {
			return lots{}, err
		}
		defer conns[i].Close()
	}
	took, failed := make([]sample, len(conns)), make([]error, len(conns))
	began := time.Now()
	var all sync.WaitGroup
	for i, conn := range conns {
		took[i] = make(sample, 0, 1<<16)
		all.Go(func() { failed[i] = p.keepAsking(conn, began.Add(d), &took[i]) })
	}
	all.Wait()
	return lotsOf(took, began), errors.Join(failed...)
}

// keepAsking has as many requests in flight as are wanted. Replies come in the order
// of requests.
func (p *plain) keepAsking(conn net.Conn, until time.Time, took *sample) error {
	in, out := bufio.NewReaderSize(conn, 16<<10), bufio.NewWriterSize(conn, 16<<10)
	sent := make([]time.Time, p.o.Flight)
	for i := range sent {
		sent[i] = time.Now()
		_, _ = out.Write(p.request)
	}
	for i, left := 0, len(sent); left > 0; i++ {
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
		if err := p.read(in); err != nil {
			return err
		}
		now := time.Now()
		at := &sent[i%len(sent)]
		*took = append(*took, now.Sub(*at))
		*at = now
		if !now.Before(until) {
			left--
			continue
		}
		_, _ = out.Write(p.request)
	}
	return nil
}

// directly asks the origin itself, without a cache.
type directly string

// each asks for keys by number, all at once.
func (u directly) each(prefix string, from, to int) (lots, error) {
	c := http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: to - from}}
	defer c.CloseIdleConnections()
	took, failed := make([]sample, to-from), make([]error, to-from)
	began := time.Now()
	var all sync.WaitGroup
	for i := range took {
		all.Go(func() {
			at := time.Now()
			resp, err := c.Get(fmt.Sprintf("%s/0/%s", u, coldKey(prefix, from+i)))
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			took[i], failed[i] = sample{time.Since(at)}, err
		})
	}
	all.Wait()
	out := lotsOf(took, began)
	out.Samples = slices.Concat(took...)
	return out, errors.Join(failed...)
}

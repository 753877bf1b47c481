package startlistener

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/understudy-ha/understudy/api/apitype"
)

// problemConn is a connection on which a request that cannot be parsed is refused as every other one is. net/http answers
// it before any handler, with a text of its own. A TLS connection cannot be wrapped without losing HTTP/2, and is not.
type problemConn struct{ net.Conn }

// problemListener is a listener of such connections.
type problemListener struct{ net.Listener }

// Accept implements [net.Listener].
func (l problemListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return wrapConn(c), nil
}

// wrapConn wraps what may be wrapped.
func wrapConn(c net.Conn) net.Conn {
	if tcp, ok := c.(*net.TCPConn); ok {
		return problemConn{tcp}
	}
	return c
}

// textHeaders follow the status line of what net/http refuses by itself, and of no answer of a handler: that has a Date.
const textHeaders = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

// Write implements [net.Conn].
func (c problemConn) Write(p []byte) (int, error) {
	line := p[:max(0, bytes.IndexByte(p, '\r'))]
	text, refused := bytes.CutPrefix(p[len(line):], []byte(textHeaders))
	var status int
	if refused {
		_, err := fmt.Sscanf(string(line), "HTTP/1.1 %d", &status)
		refused = err == nil && status >= http.StatusBadRequest
	}
	if !refused {
		return c.Conn.Write(p)
	}
	if _, err := c.Conn.Write(refusal(status, string(text))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite lets net/http end its side first, so that the answer arrives.
func (c problemConn) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// refusal is the whole answer to a request that has no handler.
func refusal(status int, text string) []byte {
	p := apitype.Problem{Title: http.StatusText(status), Status: status, Code: "bad_request", Detail: strings.TrimPrefix(text, fmt.Sprint(status, " "))}
	if status == http.StatusRequestHeaderFieldsTooLarge {
		p.Code, p.Detail = "headers_too_large", "the headers of the request are too large; a long query or body belongs elsewhere"
	}
	body, _ := json.Marshal(p) // of texts and numbers
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\nX-Content-Type-Options: nosniff\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status, p.Title, len(body), body)
}

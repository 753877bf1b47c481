package redis

import (
	"bufio"
	"context"
	"net"
	"testing"

	"github.com/understudy-ha/understudy/internal/resp"
)

// What the server answers decides whether a connection, and those made before it, are used again.
func TestPool(t *testing.T) {
	for answer, kept := range map[string]bool{
		"+READONLY": true,
		"-ERR what": true,
		"-READONLY You can't write against a read only replica.":                                  false,
		"-ERR Error running script: @user_script:1: -READONLY You can't write against a replica.": false, // before version 7
		"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":       false,
	} {
		t.Run(answer, func(t *testing.T) {
			s := &Store{}
			s.heart, s.rest, s.waits = s.newPool(2), s.newPool(2), s.newPool(2)
			p, dialled, idle := s.rest, 0, 0
			defer p.close()
			p.dial = func(context.Context) (*connection, error) {
				dialled++
				return dialAnswering(t, answer)
			}
			// One that was made before is in use meanwhile.
			err := p.use(t.Context(), func(*connection) error {
				return p.use(t.Context(), func(c *connection) error { _, _ = c.do("PING"); return nil })
			})
			if err != nil {
				t.Fatal(err)
			}
			if kept {
				idle = 2
			}
			if len(p.idle) != idle || dialled != 2 {
				t.Errorf("of %d connections %d are kept, want %d of 2", dialled, len(p.idle), idle)
			}
		})
	}
}

// dialAnswering returns a connection to something that answers each request with the same.
func dialAnswering(t *testing.T, answer string) (*connection, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	server, err := l.Accept()
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		in := resp.NewReplyReader(bufio.NewReader(server), limits)
		for {
			if _, err := in.Reply(); err != nil {
				return
			}
			_, _ = server.Write([]byte(answer + "\r\n"))
		}
	}()
	return newConnection(conn), nil
}

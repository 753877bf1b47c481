//go:build linux

package fault

import (
	"strings"
	"sync"
	"time"
)

// Crowd is connections to a node that write without waiting for answers.
type Crowd struct {
	conns []*nodeConn
	each  int
}

// NewCrowd connects, and has every connection used once.
func NewCrowd(addr string, connections int) (*Crowd, error) {
	c := &Crowd{}
	for range connections {
		conn, err := dialNode(addr)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.conns = append(c.conns, conn)
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := conn.do("PING"); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// Send sends so many writes on each connection.
func (c *Crowd) Send(each int) error {
	c.each = each
	for _, conn := range c.conns {
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write([]byte(strings.Repeat("*2\r\n$4\r\nINCR\r\n$5\r\ncrowd\r\n", each))); err != nil {
			return err
		}
	}
	return nil
}

// Accepted reads the answers, or the connections' ends, and counts the writes that were accepted.
func (c *Crowd) Accepted() (n int) {
	var mu sync.Mutex
	var reading sync.WaitGroup
	for _, conn := range c.conns {
		reading.Go(func() {
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			for range c.each {
				r, err := conn.read()
				if err != nil {
					return
				}
				if r.err == nil {
					mu.Lock()
					n++
					mu.Unlock()
				}
			}
		})
	}
	reading.Wait()
	return n
}

// Close closes the connections.
func (c *Crowd) Close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

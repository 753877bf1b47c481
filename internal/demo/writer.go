package demo

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/understudy-ha/understudy/internal/resp"
)

// writer writes into the shard, and knows what was acknowledged: by the primary and by
// one replica at least (WAIT 1), as whoever must not lose it would.
type writer struct {
	d     *demo
	shard *shardAct

	mu      sync.Mutex
	address string // of the primary, as far as it is known
	acked   []int64
	refused int64 // writes that failed, or that nobody confirmed: they may or may not be there
	missing int   // of those that were acknowledged, at the last look
}

// writeEvery is the pause between two writes.
const writeEvery = 20 * time.Millisecond

func newWriter(d *demo, s *shardAct) *writer { return &writer{d: d, shard: s} }

func (w *writer) currentAddress() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.address
}

func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

func (w *writer) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%d writes acknowledged, %d lost, %d refused", len(w.acked), w.missing, w.refused)
}

// redisConn is a connection to a node, for commands that are answered by a word or a number.
type redisConn struct {
	conn net.Conn
	in   *resp.ReplyReader
}

func dialRedis(ctx context.Context, address string) (*redisConn, error) {
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &redisConn{conn: conn, in: resp.NewReplyReader(bufio.NewReader(conn), resp.ReplyLimits{Line: 1 << 10})}, nil
}

// call sends a command once, and returns the number of its answer; a word is 0.
func (r *redisConn) call(args ...string) (int64, error) {
	if err := r.conn.SetDeadline(time.Now().Add(3 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := r.conn.Write(resp.AppendCommand(nil, args)); err != nil {
		return 0, err
	}
	answer, err := r.in.Reply()
	return answer.Int, cmp.Or(err, answer.Err())
}

// run writes until ctx ends, wherever the primary is.
func (w *writer) run(ctx context.Context) {
	number := int64(0)
	for ctx.Err() == nil {
		if p, err := w.d.page.ShardPrimary(ctx, w.shard.name, 0); err == nil && w.shard.process(p.Address) != nil {
			number = w.writeTo(ctx, p.Address, number)
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// writeTo writes to one node until that fails.
func (w *writer) writeTo(ctx context.Context, address string, number int64) int64 {
	c, err := dialRedis(ctx, address)
	if err != nil {
		return number
	}
	defer c.conn.Close()
	for ctx.Err() == nil {
		number++
		_, err := c.call("SET", w.key(number), "written")
		var replicas int64
		if err == nil {
			replicas, err = c.call("WAIT", "1", "1000")
		}
		w.mu.Lock()
		w.address = address
		if err == nil && replicas > 0 {
			w.acked = append(w.acked, number)
		} else {
			w.refused++
		}
		w.mu.Unlock()
		if err != nil {
			return number
		}
		if replicas > 0 && w.shard.recordWrite(address, c) != nil {
			return number
		}
		pause(ctx, writeEvery)
	}
	return number
}

func (w *writer) key(number int64) string { return "write:" + strconv.FormatInt(number, 10) }

// countLost looks on the primary for everything that was acknowledged.
func (w *writer) countLost(c *redisConn) error {
	w.mu.Lock()
	acked := slices.Clone(w.acked)
	w.mu.Unlock()
	missing := 0
	for numbers := range slices.Chunk(acked, 1000) {
		keys := []string{"EXISTS"}
		for _, number := range numbers {
			keys = append(keys, w.key(number))
		}
		there, err := c.call(keys...)
		if err != nil {
			return err
		}
		missing += len(numbers) - int(there)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missing = missing
	return nil
}

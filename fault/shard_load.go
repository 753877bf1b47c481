//go:build linux

package fault

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// ShardLoad writes to every node of a shard all the time, whoever is its primary, and
// remembers what was acknowledged. It follows the row's lineages too.
type ShardLoad struct {
	Shard *Shard
	// Number tells the keys of this load from those of one before it on the same shard.
	Number uint64
	// Every is how long a writer rests after a write. Default 10 ms.
	Every time.Duration

	mu       sync.Mutex
	writes   []ShardWrite
	lineages []shard.Lineage
	hung     []Hang
	count    atomic.Int64
	running  sync.WaitGroup
	stop     context.CancelFunc
	stopped  bool
}

// Start starts to write, until the test ends or Stop.
func (l *ShardLoad) Start() {
	if l.Every == 0 {
		l.Every = 10 * time.Millisecond
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.Shard.Store()
	for _, n := range l.Shard.Nodes {
		l.running.Go(func() { l.write(ctx, n) })
	}
	l.running.Go(func() { l.follow(ctx) })
	l.Shard.tb.Cleanup(func() { stop(); l.running.Wait() })
}

// Stop ends it and returns what was seen. Final are the keys that the primary has then.
func (l *ShardLoad) Stop(primary *ShardNode) ShardEvidence {
	l.Shard.tb.Helper()
	l.stopped = true
	l.stop()
	l.running.Wait()
	l.note(l.Shard.View())
	e := ShardEvidence{Writes: l.writes, Lineages: l.lineages, Hangs: l.hung, Others: len(l.Shard.Nodes) - 1, Final: map[string]bool{}}
	c, err := dialNode(primary.Addr)
	if err != nil {
		l.Shard.tb.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	keys, err := c.do("KEYS", l.prefix()+"*")
	if err != nil {
		l.Shard.tb.Fatal(err)
	}
	for _, k := range keys.items {
		e.Final[k.text] = true
	}
	return e
}

func (l *ShardLoad) prefix() string { return fmt.Sprintf("w:%d:", l.Number) }

// Stopped reports whether Stop was called.
func (l *ShardLoad) Stopped() bool { return l.stopped }

// Hung notes that a node was stopped until now.
func (l *ShardLoad) Hung(n *ShardNode, from time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hung = append(l.hung, Hang{n.Addr, from, lease.BootClock().Now()})
}

// Writes so far to a node that were sent after a reading of the boot clock.
func (l *ShardLoad) Writes(n *ShardNode, since time.Duration) []ShardWrite {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.writes), func(w ShardWrite) bool { return w.Node != n.Addr || w.Sent < since })
}

// follow remembers every lineage that the row ever had, in its order.
func (l *ShardLoad) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if v, err := l.Shard.Look(); err == nil {
			l.note(v)
		}
		wait(ctx, 50*time.Millisecond)
	}
}

func (l *ShardLoad) note(v shard.View) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, seen := range v.Row.Lineages {
		i := slices.IndexFunc(l.lineages, func(o shard.Lineage) bool { return o.ID == seen.ID })
		if i < 0 {
			l.lineages = append(l.lineages, seen)
			continue
		}
		l.lineages[i] = seen
	}
}

// write writes to one node. A connection without an answer is left to wait for it, and
// another is made: what a node that hangs accepts later is seen too.
func (l *ShardLoad) write(ctx context.Context, n *ShardNode) {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	slots := make(chan struct{}, 30)
	for ctx.Err() == nil {
		c, err := dialNode(n.Addr)
		if err != nil {
			wait(ctx, 20*time.Millisecond)
			continue
		}
		slow := l.serve(ctx, n, c)
		if slow == nil {
			c.Close()
			wait(ctx, 20*time.Millisecond)
			continue
		}
		select {
		case slots <- struct{}{}:
			waiting.Go(func() {
				defer c.Close()
				defer func() { <-slots }()
				closing := context.AfterFunc(ctx, func() { c.Close() })
				defer closing()
				<-slow
			})
		case <-ctx.Done():
			c.Close()
			<-slow
		}
	}
}

// serve uses one connection until it breaks, and then returns nil, or until an answer is
// late, and then returns a channel that is closed when it came or never will.
func (l *ShardLoad) serve(ctx context.Context, n *ShardNode, c *nodeConn) (slow chan struct{}) {
	for ctx.Err() == nil {
		done := make(chan struct{})
		var err error
		go func() {
			defer close(done)
			_ = c.SetDeadline(time.Now().Add(2 * patience))
			err = l.once(n, c)
		}()
		select {
		case <-done:
		case <-time.After(500 * time.Millisecond):
			return done
		}
		if err != nil && !errors.As(err, new(refusedWrite)) {
			return nil
		}
		wait(ctx, l.Every)
	}
	return nil
}

// once writes a key that nobody wrote before.
func (l *ShardLoad) once(n *ShardNode, c *nodeConn) error {
	number := l.count.Add(1)
	w := ShardWrite{Key: l.prefix() + strconv.FormatInt(number, 10), Node: n.Addr, Sent: lease.BootClock().Now()}
	copies := number%10 == 0
	batch := [][]string{{"MULTI"}, {"SET", w.Key, "1"}, {"INFO", "replication"}, {"EXEC"}, {"INFO", "replication"}}
	if copies {
		batch = append(batch, []string{"WAIT", "8", "30"})
	}
	answers, err := c.all(batch...)
	if err != nil {
		return err
	}
	done := answers[3]
	if done.err != nil || len(done.items) != 2 || done.items[0].err != nil {
		return refusedWrite{done.err}
	}
	w.Acked = lease.BootClock().Now()
	w.Lineage = field(done.items[1].text, "master_replid")
	if field(answers[4].text, "master_replid") == w.Lineage {
		w.Txn, _ = strconv.ParseInt(field(answers[4].text, "master_repl_offset"), 10, 64)
	}
	if copies {
		w.Copies = answers[5].number
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes = append(l.writes, w)
	return nil
}

// refusedWrite is a node's answer that it does not take a write.
type refusedWrite struct{ error }

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// field of an INFO text.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), name+":"); ok {
			return value
		}
	}
	return ""
}

// nodeConn speaks to a redis-server without the product's own code.
type nodeConn struct {
	net.Conn
	r *bufio.Reader
}

// nodeReply is an answer; err is one that starts with '-'.
type nodeReply struct {
	text   string
	number int
	items  []nodeReply
	err    error
}

func dialNode(addr string) (*nodeConn, error) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	return &nodeConn{c, bufio.NewReader(c)}, nil
}

func (c *nodeConn) do(args ...string) (nodeReply, error) {
	all, err := c.all(args)
	if err != nil {
		return nodeReply{}, err
	}
	return all[0], all[0].err
}

// all sends commands together and reads their answers.
func (c *nodeConn) all(commands ...[]string) ([]nodeReply, error) {
	var b strings.Builder
	for _, args := range commands {
		fmt.Fprintf(&b, "*%d\r\n", len(args))
		for _, a := range args {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
		}
	}
	if _, err := io.WriteString(c.Conn, b.String()); err != nil {
		return nil, err
	}
	answers := make([]nodeReply, len(commands))
	for i := range answers {
		var err error
		if answers[i], err = c.read(); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func (c *nodeConn) read() (nodeReply, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nodeReply{}, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nodeReply{}, errors.New("an empty line instead of an answer")
	}
	n, _ := strconv.Atoi(line[1:])
	switch line[0] {
	case '-':
		return nodeReply{err: errors.New(line[1:])}, nil
	case '$':
		if n < 0 {
			return nodeReply{}, nil
		}
		text := make([]byte, n+2)
		_, err := io.ReadFull(c.r, text)
		return nodeReply{text: string(text[:n])}, err
	case '*':
		r := nodeReply{}
		for range n {
			item, err := c.read()
			if err != nil {
				return r, err
			}
			r.items = append(r.items, item)
		}
		return r, nil
	default:
		return nodeReply{text: line[1:], number: n}, nil
	}
}

// AskRedis sends one command to a redis-server, on a connection of its own.
func AskRedis(addr string, args ...string) (string, error) {
	c, err := dialNode(addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	r, err := c.do(args...)
	return r.text, err
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/cache/client"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
)

// cachePeers of a cluster.
const cachePeers = 3

// announceTimeout of the peers, their default.
const announceTimeout = 2 * time.Second

// origin is the slow source: it counts what it is asked for, and by whom. Each peer
// asks at a path of its own. It speaks just enough HTTP for them, so that the source
// costs the machine as little as may be.
type origin struct {
	url   string
	clock lease.Clock
	delay atomic.Int64 // nanoseconds until an answer
	size  atomic.Int64 // bytes of a value

	mu    sync.Mutex
	asked map[string][]asking // by key
	heard chan struct{}       // closed and made anew when somebody asks
}

// asking is one request for a value.
type asking struct {
	at   time.Duration // boot clock
	peer int
}

func startOrigin(b *bed) *origin {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	b.check(err, "listening")
	o := &origin{url: "http://" + listener.Addr().String(), clock: lease.BootClock(), asked: map[string][]asking{}, heard: make(chan struct{})}
	go serveEach(listener, func(conn net.Conn) {
		defer conn.Close()
		if err := o.serve(conn); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			b.Logf("bench: the source: %v", err)
		}
	})
	b.Cleanup(func() { _ = listener.Close() })
	return o
}

func (o *origin) set(delay time.Duration, size int) {
	o.delay.Store(int64(delay))
	o.size.Store(int64(size))
}

// serve answers GET /PEER/KEY, one request after the other.
func (o *origin) serve(conn net.Conn) error {
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		words := strings.Fields(line)
		if len(words) != 3 || words[0] != "GET" || len(words[1]) < 3 {
			return fmt.Errorf("a request %q", line)
		}
		peer, key, _ := strings.Cut(words[1][1:], "/")
		for blank := false; !blank; {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return err
			}
			blank = len(line) <= 2
		}
		o.note(peer, key)
		time.Sleep(time.Duration(o.delay.Load()))
		size := int(o.size.Load())
		answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%-*s", size, size, key)
		if _, err := conn.Write(answer); err != nil {
			return nil // who asked is gone
		}
	}
}

func (o *origin) note(peer, key string) {
	n, _ := strconv.Atoi(peer)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked[key] = append(o.asked[key], asking{o.clock.Now(), n})
	close(o.heard)
	o.heard = make(chan struct{})
}

// await returns the n-th request for a key, from 1, or fails.
func (o *origin) await(b *bed, key string, n int, within time.Duration) asking {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		o.mu.Lock()
		asked, heard := o.asked[key], o.heard
		o.mu.Unlock()
		if len(asked) >= n {
			return asked[n-1]
		}
		select {
		case <-heard:
		case <-timer.C:
			b.Fatalf("bench: the source was asked %d times for %s within %v, not %d", len(asked), key, within, n)
		}
	}
}

// asks are how many keys that begin with a prefix were asked for, and how many
// requests beyond the first there were for one.
func (o *origin) asks(prefix string) (keys, again int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key, asked := range o.asked {
		if strings.HasPrefix(key, prefix) {
			keys++
			again += len(asked) - 1
		}
	}
	return keys, again
}

func (o *origin) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.asked)
}

// cachePeer is a process of understudy cache serve.
type cachePeer struct {
	b              *bed
	url, api, http string
	argv           []string
	proc           *realserver.Process
}

// startPeers runs a cluster on loopback and waits until each of its peers has
// fetched something. With data, each keeps its copies in a directory.
func startPeers(ctx context.Context, b *bed, from *origin, data bool) []*cachePeer {
	program := buildProgram(ctx, b)
	peers := make([]*cachePeer, cachePeers)
	var among []string
	for i := range peers {
		peers[i] = &cachePeer{b: b, url: "tcp://" + realserver.FreeAddress(b), api: "tcp://" + realserver.FreeAddress(b), http: realserver.FreeAddress(b)}
		among = append(among, "--peer", peers[i].url+","+peers[i].api)
	}
	for i, p := range peers {
		p.argv = append([]string{program, "cache", "serve", "--url", p.url, "--api", p.api, "--http", p.http,
			"--origin-url", fmt.Sprintf("%s/%d/{key+}", from.url, i), "--fetches", strconv.Itoa(coldAtOnce), "--log-level", "info"}, among...)
		if data {
			p.argv = append(p.argv, "--data", b.TempDir())
		}
		p.start()
	}
	for i, p := range peers {
		p.warm(ctx, fmt.Sprintf("warm-%d", i))
	}
	return peers
}

// start runs the process, again if it has ended.
func (p *cachePeer) start() {
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Dir = p.b.TempDir()
	p.proc = realserver.Start(p.b, cmd)
}

// get asks this peer alone, until it answers or a minute is over.
func (p *cachePeer) get(ctx context.Context, key string) error {
	c, err := client.New(client.Config{Servers: []string{p.api}, Timeout: time.Minute})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Get(ctx, key, client.Options{})
	return err
}

// warm has the peer answer for a key.
func (p *cachePeer) warm(ctx context.Context, key string) {
	if err := p.get(ctx, key); err != nil {
		p.b.Fatalf("bench: peer %s: %v\n%s", p.url, err, p.proc.Output())
	}
}

// metric is a number that a process tells over HTTP, or an error while it does not
// serve yet.
func metric(address, name string) (float64, error) {
	c := http.Client{Timeout: 10 * time.Second}
	defer c.CloseIdleConnections()
	resp, err := c.Get("http://" + address + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(rest, 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}

// votes tells whether the peer serves, and what it promised before its start is over.
func (p *cachePeer) votes() bool {
	v, err := metric(p.http, "understudy_cache_abstaining")
	return err == nil && v == 0
}

// holds tells whether the peer has as many copies.
func (p *cachePeer) holds(keys int) bool {
	v, err := metric(p.http, "understudy_cache_keys")
	return err == nil && v >= float64(keys)
}

// stop ends the process in order.
func (p *cachePeer) stop() { p.proc.Stop(syscall.SIGTERM) }

//go:build linux

package fault_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/client"
	"github.com/understudy-ha/understudy/cache/zmtp"
	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// impostor is the third member of a cluster whose other two run: it listens at its
// address, and says whatever it is told to.
func impostor(t *testing.T, programs fault.Programs, change func(*fault.PeersConfig)) (*fault.Peers, *zmtp.Listener) {
	t.Helper()
	c := peersOf(t, programs, change)
	third := c.Named("p3")
	for _, p := range c.But(third) {
		p.Start()
	}
	pub, err := zmtp.Listen(third.URL, zmtp.Config{Kind: zmtp.PUB, Queue: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pub.Close() })
	c.Ready()
	realserver.Eventually(t, patience, "both hear it", func() error {
		if n := pub.Publish(frames("*", third.URL, ".")); n != 2 {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
	return c, pub
}

func frames(parts ...string) zmtp.Message {
	out := make(zmtp.Message, len(parts))
	for i, p := range parts {
		out[i] = []byte(p)
	}
	return out
}

// now is the time as the wire has it, so far from now.
func wireTime(d time.Duration) string {
	b := binary.LittleEndian.AppendUint64(nil, uint64(time.Now().Add(d).UnixMilli()))
	return string(bytes.TrimRight(b, "\x00"))
}

const huge = "\xff\xff\xff\xff\xff\xff\xff\xff"

// malformed sends every message that must be ignored, to both sockets.
func malformed(t *testing.T, programs fault.Programs) {
	c, pub := impostor(t, programs, nil)
	from, p1 := c.Named("p3").URL, c.Named("p1")
	counted := func(name string, before float64, n int) {
		t.Helper()
		realserver.Eventually(t, patience, fmt.Sprint(n, " are counted"), func() error {
			if got := p1.Metric(name) - before; got != float64(n) {
				return fmt.Errorf("%v are", got)
			}
			return nil
		})
	}
	taken := func(name string, before float64) {
		t.Helper()
		realserver.Eventually(t, patience, "what is right is taken", func() error {
			if got := p1.Metric(name) - before; got < 100 {
				return fmt.Errorf("%v are of 100", got)
			}
			return nil
		})
	}
	t.Run("peer socket", func(t *testing.T) {
		before := p1.Metric("messages_malformed_total")
		bad := badFrames(from, p1.URL)
		for _, m := range bad {
			pub.Publish(m)
		}
		counted("messages_malformed_total", before, len(bad))
		// What is right is not counted: otherwise the count would show nothing.
		received := p1.Metric("messages_received_total")
		for range 100 {
			pub.Publish(frames("*", from, "."))
		}
		taken("messages_received_total", received)
		counted("messages_malformed_total", before, len(bad))
	})
	t.Run("api socket", func(t *testing.T) {
		d, err := zmtp.Dial(p1.API, zmtp.Config{Kind: zmtp.DEALER})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		realserver.Eventually(t, patience, "connected", func() error {
			if d.Conn() == nil {
				return errors.New("not yet")
			}
			return nil
		})
		before := p1.Metric("client_bad_requests_total")
		bad := badRequests()
		for _, m := range bad {
			d.Send(m)
		}
		counted("client_bad_requests_total", before, len(bad))
		requests := p1.Metric("client_requests_total")
		for range 100 {
			d.Send(frames("1", "*", wireTime(time.Minute)))
		}
		taken("client_requests_total", requests)
		counted("client_bad_requests_total", before, len(bad))
	})
	for _, p := range c.But(c.Named("p3")) {
		got(t, seek(t, p, "after"))
	}
}

// badFrames are messages among peers that break a rule.
func badFrames(from, to string) []zmtp.Message {
	bad := []zmtp.Message{
		frames("*"), frames("*", from), frames("*", from, ""), frames("*", from, "QQ"), frames("*", from, "?"), frames("*", from, "\x00"),
		frames("*", "", "."), frames("*", "tcp://10.0.0.9:1", "."), frames("*", to, "."), frames("*", strings.Repeat("x", 300), "."),
		frames("*anything", from, "."), frames(to+"9", from, "."), frames(to+"9", from, "Q", "k", "\x01"),
		frames("*", from, "E", ""), frames("*", from, "E", strings.Repeat("k", 1025)),
		frames("*", from, "Q", "k", huge), frames("*", from, "!", "k", huge, "\x00"), frames("*", from, "!", "k", "\x01", huge),
		frames("*", from, "A", "k", huge, "\x00", "\x01"), frames("*", from, "=", "k", "\x01", huge, "v"), frames("*", from, "=", "k", huge, "\x00", "v"),
		// A term that is days ahead would use up all that come.
		frames("*", from, "Q", "k", wireTime(48*time.Hour)), frames("*", from, "!", "k", wireTime(48*time.Hour), "\x00"),
		// A copy that never expires would stay for ever.
		frames("*", from, "=", "k", wireTime(0), wireTime(100*365*24*time.Hour), "v"),
	}
	for _, whole := range []zmtp.Message{
		frames("*", from, "Q", "k", "\x01"), frames("*", from, "A", "k", "\x01", "\x00", "\x01"), frames("*", from, "E", "k"),
		frames("*", from, "!", "k", "\x01", "\x00"), frames("*", from, "=", "k", "\x01", "\x00", "v"),
		frames("*", from, "h", "12345678"), frames("*", from, "k", "k", "\x01"), frames("*", from, "r", "k"), frames("*", from, "f", "k"),
		frames("*", from, "x", "k"), frames("*", from, "X", "k"), frames("*", from, "m", "\x01"),
	} {
		// The last frame of the extensions' messages here is not their last.
		short := len(whole) - 1
		if strings.Contains("hkrfxXm", string(whole[2])) {
			short = len(whole)
		}
		for n := 3; n <= short; n++ {
			bad = append(bad, whole[:n])
		}
	}
	return bad
}

// badRequests are requests of clients that break a rule.
func badRequests() []zmtp.Message {
	later := wireTime(time.Minute)
	return []zmtp.Message{
		frames("1"), frames("1", "?"), frames("1", "?", later), frames("1", "?", later, ""), frames("1", "??", later, "k"), frames("1", "", later, "k"),
		frames("1", "!", later, "k"), frames("1", "?", huge, "k"), frames("1", "*", huge), frames("1", "?", "", "k"), frames("1", "?", "\x00", "k"),
		frames("1", "?", wireTime(-time.Hour), "k"), frames("1", "?", later, "k", huge), frames("", "?", later, "k"),
		frames(strings.Repeat("i", 65), "?", later, "k"), frames("1", "?", later, strings.Repeat("k", 1025)),
		frames("1", "?", later, "k", "", huge), frames("1", "?", later, "k", "", "\x01", huge),
	}
}

// randomBytes sends what means nothing to both sockets, from the first byte on and
// after a handshake.
func randomBytes(t *testing.T, programs fault.Programs) {
	c, pub := impostor(t, programs, nil)
	seed := givenSeed()
	t.Logf("UNDERSTUDY_SEED=%d", seed)
	random, length := rand.New(rand.NewPCG(seed, 5)), 3*time.Second
	if prove {
		length = time.Minute
	}
	from, p1 := c.Named("p3").URL, c.Named("p1")
	requests, err := zmtp.Dial(p1.API, zmtp.Config{Kind: zmtp.DEALER})
	if err != nil {
		t.Fatal(err)
	}
	defer requests.Close()
	peers, clients := slices.Concat(badFrames(from, p1.URL), goodFrames(from, p1.URL)), slices.Concat(badRequests(), []zmtp.Message{
		frames("1", "?", wireTime(time.Minute), "k", "", "\x01", "\xff"), frames("1", "*", wireTime(time.Minute))})
	for end := time.Now().Add(length); time.Now().Before(end); {
		for range 100 {
			pub.Publish(spoilt(random, peers[random.IntN(len(peers))]))
			requests.Send(spoilt(random, clients[random.IntN(len(clients))]))
		}
		for _, addr := range []string{p1.URL, p1.API} {
			noise(t, random, strings.TrimPrefix(addr, "tcp://"))
		}
	}
	for _, p := range c.But(c.Named("p3")) {
		if p.Exited() {
			t.Fatalf("%s has ended", p.Name)
		}
		got(t, seek(t, p, "after"))
		if m := p.Memory(); m > 512<<20 {
			t.Errorf("%s has %d MiB", p.Name, m>>20)
		}
	}
	t.Logf("ignored %v messages and %v requests", p1.Metric("messages_malformed_total"), p1.Metric("client_bad_requests_total"))
}

// goodFrames are messages that break no rule.
func goodFrames(from, to string) []zmtp.Message {
	term, expire := wireTime(0), wireTime(time.Minute)
	return []zmtp.Message{
		frames("*", from, "Q", "k", term), frames(to, from, "A", "k", term, "\x00", "\x01"), frames(to, from, "A", "k", term, expire, ""),
		frames(to, from, "E", "k"), frames("*", from, "!", "k", term, "\x00", "\x05", "\x01"), frames("*", from, "=", "k", term, expire, "v"),
		frames("*", from, "."), frames(to, from, "-"), frames(to, from, "k", "k", term, "\x07"), frames("*", from, "r", "k", term),
		frames("*", from, "f", "k", term, "\x10", "no", "\x01"), frames("*", from, "x", "k", "k", term), frames("*", from, "x", "p", "", term),
		frames(to, from, "m", "\x01", "\x01", "\x00", "\x02", "u", "a"),
		frames("*", from, "h", "12345678", "87654321", "\x01", "12345678", term, "\x00"),
	}
}

// spoilt is a message with something changed, mostly.
func spoilt(random *rand.Rand, m zmtp.Message) zmtp.Message {
	out := make(zmtp.Message, len(m))
	for i := range m {
		out[i] = slices.Clone(m[i])
	}
	at := random.IntN(len(out))
	switch random.IntN(7) {
	case 0:
		out = slices.Delete(out, at, at+1)
	case 1:
		out = slices.Insert(out, at, noiseOf(random, 40))
	case 2:
		out[at] = noiseOf(random, 40)
	case 3:
		if len(out[at]) > 0 {
			out[at][random.IntN(len(out[at]))] ^= 1 << random.IntN(8)
		}
	case 4:
		if len(out) > 3 {
			out[3] = noiseOf(random, 2)
		}
	case 5:
		out = append(out, out[at])
	}
	if len(out) == 0 {
		return frames("*")
	}
	return out
}

func noiseOf(random *rand.Rand, longest int) []byte {
	b := make([]byte, random.IntN(longest))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

// greeting is how a connection of ZMTP 3.1 starts, without protection.
func greeting() []byte {
	g := make([]byte, 64)
	g[0], g[8], g[9], g[10], g[11] = 0xff, 1, 0x7f, 3, 1
	copy(g[12:], "NULL")
	return g
}

// ready says which kind of socket one is.
func ready(kind string) []byte {
	body := append([]byte("\x05READY\x0bSocket-Type\x00\x00\x00"), byte(len(kind)))
	body = append(body, kind...)
	return append([]byte{4, byte(len(body))}, body...)
}

// noise connects, says some of what is right, and then what means nothing.
func noise(t *testing.T, random *rand.Rand, addr string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	var b []byte
	switch random.IntN(4) {
	case 1:
		b = greeting()
	case 2:
		b = append(greeting(), ready("SUB")...)
	case 3:
		b = append(greeting(), ready("DEALER")...)
	}
	_, _ = conn.Write(append(b, noiseOf(random, 4096)...))
}

// raw is a client's connection by hand, after its handshake.
func raw(t *testing.T, addr, kind string) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", strings.TrimPrefix(addr, "tcp://"), patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * patience))
	if _, err := conn.Write(append(greeting(), ready(kind)...)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 66)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// wired is a message as it is on the wire.
func wired(m zmtp.Message) (out []byte) {
	for i, f := range m {
		flags := byte(1)
		if i == len(m)-1 {
			flags = 0
		}
		out = append(append(out, flags, byte(len(f))), f...)
	}
	return out
}

// service is how a peer served while something went on.
type service struct {
	answered, refused int
	slowest           time.Duration
	last              error
}

func (s service) String() string {
	return fmt.Sprintf("%d answers, the slowest after %v, and %d refusals", s.answered, s.slowest, s.refused)
}

// served asks a peer for keys, fresh and new ones, and wants answers.
func served(t *testing.T, p *fault.Peer, length time.Duration) (s service) {
	t.Helper()
	asking := fault.NewCacheClient(t, p)
	begun := time.Now()
	for time.Since(begun) < length || s.answered < 4 && time.Since(begun) < length+patience {
		a := p.Ask(t.Context(), asking, fmt.Sprint("served", s.answered/4), client.Options{}, patience)
		if a.Err != nil {
			s.refused, s.last = s.refused+1, a.Err
			continue
		}
		s.answered++
		s.slowest = max(s.slowest, a.Got-a.Asked)
	}
	if s.answered < 4 {
		t.Errorf("%s: %v, the last: %v", p.Name, s, s.last)
	}
	return s
}

// unhindered is served without a refusal.
func unhindered(t *testing.T, p *fault.Peer, length time.Duration) {
	t.Helper()
	s := served(t, p, length)
	if t.Logf("%s: %v; memory %d MiB", p.Name, s, p.Memory()>>20); s.refused > 0 {
		t.Errorf("%s: %v", p.Name, s.last)
	}
}

// flood has a member and a client that send as fast as they can.
func flood(t *testing.T, programs fault.Programs) {
	c, pub := impostor(t, programs, nil)
	from, p1 := c.Named("p3").URL, c.Named("p1")
	over := make(chan struct{})
	var floods sync.WaitGroup
	var sent [2]int
	floods.Go(func() {
		good := goodFrames(from, p1.URL)
		good = slices.DeleteFunc(good, func(m zmtp.Message) bool { return strings.Contains("hxm", string(m[2])) })
		for i := 0; ; i++ {
			select {
			case <-over:
				sent[0] = i
				return
			default:
			}
			m := slices.Clone(good[i%len(good)])
			if len(m) > 3 {
				m[3] = fmt.Appendf(nil, "flood%d", i)
			}
			if pub.Publish(m) == 0 {
				<-time.After(time.Millisecond)
			}
		}
	})
	flooder, err := zmtp.Dial(p1.API, zmtp.Config{Kind: zmtp.DEALER})
	if err != nil {
		t.Fatal(err)
	}
	defer flooder.Close()
	floods.Go(func() {
		later := wireTime(time.Minute)
		for i := 0; ; i++ {
			select {
			case <-over:
				sent[1] = i
				return
			default:
			}
			m := frames("1", "?", later, fmt.Sprint("drown", i))
			if i%2 == 1 {
				m = frames("1", "?", huge, "k")
			}
			if !flooder.Send(m) {
				<-time.After(time.Millisecond)
			}
		}
	})
	other := served(t, c.Named("p2"), 3*time.Second)
	flooded := served(t, p1, 3*time.Second)
	close(over)
	floods.Wait()
	t.Logf("beside %d messages and %d requests: %v; at the peer that got the requests: %v; memory %d MiB",
		sent[0], sent[1], other, flooded, p1.Memory()>>20)
	for _, p := range c.But(c.Named("p3")) {
		if m := p.Memory(); m > 1<<30 {
			t.Errorf("%s has %d MiB", p.Name, m>>20)
		}
	}
}

// fickle is someone who subscribes and cancels as fast as it can, in the name of a
// member, and of nobody.
func fickle(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, nil)
	c.Start()
	p := c.Named("p1")
	var over sync.WaitGroup
	defer over.Wait()
	for _, url := range []string{c.Named("p2").URL, "tcp://127.0.0.1:1"} {
		var both []byte
		for _, command := range []string{"\x09SUBSCRIBE" + url, "\x06CANCEL" + url} {
			both = append(append(both, 4, byte(len(command))), command...)
		}
		both = bytes.Repeat(both, 100)
		conn := raw(t, p.URL, "SUB")
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		over.Go(func() {
			for {
				if _, err := conn.Write(both); err != nil {
					return
				}
			}
		})
		defer conn.Close()
	}
	sent := p.Metric("messages_sent_total")
	c.Pass(time.Second)
	if n := p.Metric("messages_sent_total") - sent; n > 100 {
		t.Errorf("subscriptions had it say %v messages in a second", n)
	}
	unhindered(t, p, time.Second)
	unhindered(t, c.Named("p2"), time.Second)
}

// manyConnections are clients that connect and say little or nothing.
func manyConnections(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, nil)
	c.Start()
	p := c.Named("p1")
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			conn.Close()
		}
	}()
	for i := range 2500 {
		conn, err := net.DialTimeout("tcp", strings.TrimPrefix(p.API, "tcp://"), patience)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		open = append(open, conn)
		switch i % 3 {
		case 1:
			_, _ = conn.Write(greeting()[:30])
		case 2:
			_, _ = conn.Write(append(greeting(), ready("DEALER")...))
		}
	}
	unhindered(t, p, time.Second)
	if m := p.Memory(); m > 512<<20 {
		t.Errorf("%s has %d MiB", p.Name, m>>20)
	}
	// Who has not said who it is goes after a while.
	realserver.Eventually(t, 2*patience, "half-open connections are closed", func() error {
		_ = open[0].SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := io.Copy(io.Discard, open[0]); err != nil {
			return err
		}
		return nil
	})
}

// deafClients ask for large values and do not read them.
func deafClients(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, nil)
	c.Start()
	c.Origin.Answer(func(call fault.Call) fault.Plan {
		if call.Key == "large" {
			return fault.Plan{Size: 1 << 20}
		}
		return fault.Plan{}
	})
	p := c.Named("p1")
	got(t, seek(t, p, "large"))
	for range 20 {
		conn := raw(t, p.API, "DEALER")
		go func() {
			ask := wired(frames("1", "?", wireTime(time.Minute), "large"))
			for range 200 {
				if _, err := conn.Write(ask); err != nil {
					return
				}
			}
		}()
	}
	unhindered(t, p, 2*time.Second)
	// 20 queues of 8 MiB, and what the garbage collector has not seen to.
	if m := p.Memory(); m > 768<<20 {
		t.Errorf("%s has %d MiB", p.Name, m>>20)
	}
	// A connection for which nothing waits costs nothing, and may stay. What waits for others keeps large values from all.
	realserver.Eventually(t, 2*patience, "who does not read what waits is disconnected", func() error {
		if p.Metric("clients_slow_total") == 0 {
			return errors.New("nobody yet")
		}
		return nil
	})
	got(t, seek(t, p, "large"))
}

// fleeting are clients that go while they wait.
func fleeting(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, nil)
	c.Start()
	p := c.Named("p1")
	c.Origin.Answer(func(fault.Call) fault.Plan { return fault.Plan{Hold: true} })
	level := func(name string, right func(float64) bool) {
		t.Helper()
		realserver.Eventually(t, 2*patience, name, func() error {
			if n := p.Metric(name); !right(n) {
				return fmt.Errorf("it is %v", n)
			}
			return nil
		})
	}
	var conns []net.Conn
	for i := range 200 {
		conn := raw(t, p.API, "DEALER")
		for j := range 20 {
			_, _ = conn.Write(wired(frames(fmt.Sprint(j), "?", wireTime(time.Minute), fmt.Sprint("held", (i+j)%10))))
		}
		conns = append(conns, conn)
	}
	level("waiting", func(n float64) bool { return n > 1000 }) // some are refused: nobody reads so fast
	for i, conn := range conns {
		if i%2 == 0 {
			_ = conn.(*net.TCPConn).SetLinger(0)
		}
		conn.Close()
	}
	level("waiting", func(n float64) bool { return n == 0 })
	level("clients", func(n float64) bool { return n == 0 })
	c.Origin.Takes(0)
	got(t, seek(t, p, "other"))
}

// slowPeer has a member whom the others hear late.
func slowPeer(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, nil)
	p := c.Named("p3")
	behind := strings.Replace(p.URL, ":7701", ":7702", 1)
	link := fault.NewProxy(t, strings.TrimPrefix(behind, "tcp://"), 1)
	p.URL, p.Options = "tcp://"+link.Addr, []string{"--bind-url", behind}
	c.Start()
	link.Set(fault.Way{Delay: 50 * time.Millisecond}, fault.Way{Delay: 400 * time.Millisecond})
	l := asking(t, c, 6)
	unhindered(t, c.Named("p1"), 4*time.Second)
	judged(t, l)
}

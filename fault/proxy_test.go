package fault_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
)

// echo is a server that sends back what it gets.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); _, _ = io.Copy(c, c) }()
		}
	}()
	return l.Addr().String()
}

type link struct {
	net.Conn
	t *testing.T
}

func dial(t *testing.T, p *fault.Proxy) link {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return link{c, t}
}

func (l link) say(text string) {
	l.t.Helper()
	if _, err := io.WriteString(l, text); err != nil {
		l.t.Fatal(err)
	}
}

// hear waits for the text.
func (l link) hear(text string) {
	l.t.Helper()
	_ = l.SetReadDeadline(time.Now().Add(time.Minute))
	got := make([]byte, len(text))
	if _, err := io.ReadFull(l, got); err != nil || string(got) != text {
		l.t.Fatalf("heard %q, %v; want %q", got, err, text)
	}
}

// silent tells that nothing comes for a moment.
func (l link) silent() {
	l.t.Helper()
	_ = l.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := l.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		l.t.Fatalf("read %d bytes, %v; want silence", n, err)
	}
}

// ended tells that the connection ends.
func (l link) ended() {
	l.t.Helper()
	_ = l.SetReadDeadline(time.Now().Add(time.Minute))
	if rest, err := io.ReadAll(l); errors.Is(err, os.ErrDeadlineExceeded) || len(rest) > 0 {
		l.t.Fatalf("read %q, %v; want the end", rest, err)
	}
}

func TestProxyHoldsAndDelivers(t *testing.T) {
	for name, ways := range map[string][2]fault.Way{
		"both": {{Hold: true}, {Hold: true}}, "up": {{Hold: true}, {}}, "down": {{}, {Hold: true}},
	} {
		t.Run(name, func(t *testing.T) {
			p := fault.NewProxy(t, echo(t), 1)
			c := dial(t, p)
			c.say("one")
			c.hear("one")
			p.Set(ways[0], ways[1])
			c.say("two")
			c.silent()
			p.Set(fault.Way{}, fault.Way{})
			c.hear("two")
		})
	}
}

func TestProxySwallows(t *testing.T) {
	p := fault.NewProxy(t, echo(t), 1)
	spoilt, untouched := dial(t, p), dial(t, p)
	spoilt.say("one")
	spoilt.hear("one")
	untouched.say("one")
	untouched.hear("one")
	p.Set(fault.Way{}, fault.Way{Swallow: true})
	spoilt.say("two")
	spoilt.silent()
	p.Set(fault.Way{}, fault.Way{})
	spoilt.ended()
	untouched.say("two")
	untouched.hear("two")
}

func TestProxyConnectsAfterTheCut(t *testing.T) {
	p := fault.NewProxy(t, echo(t), 1)
	p.Set(fault.Way{Hold: true}, fault.Way{Hold: true})
	c := dial(t, p)
	c.say("one")
	c.silent()
	p.Set(fault.Way{}, fault.Way{})
	c.hear("one")
}

func TestProxyDelays(t *testing.T) {
	p := fault.NewProxy(t, echo(t), 1)
	p.Set(fault.Way{Delay: 60 * time.Millisecond}, fault.Way{Delay: 60 * time.Millisecond})
	c := dial(t, p)
	start := time.Now()
	c.say("one")
	c.hear("one")
	if took := time.Since(start); took < 120*time.Millisecond {
		t.Errorf("took %v; the two delays are 120 ms", took)
	}
}

func TestProxyResets(t *testing.T) {
	p := fault.NewProxy(t, echo(t), 1)
	c := dial(t, p)
	c.say("one")
	c.hear("one")
	p.Reset()
	c.ended()
	again := dial(t, p)
	again.say("two")
	again.hear("two")
}

// A lost piece comes late or the connection breaks; nothing is ever missing in
// between.
func TestProxyLoses(t *testing.T) {
	p := fault.NewProxy(t, echo(t), 1)
	lossy := fault.Way{Loss: 0.3, Again: time.Millisecond}
	p.Set(lossy, lossy)
	whole, broken := 0, 0
	// A busy machine passes on several words in one piece, and has fewer of them to lose.
	for n, begun := 0, time.Now(); n < 50 || whole*broken == 0 && time.Since(begun) < time.Minute; n++ {
		c := dial(t, p)
		for range 5 {
			_, _ = io.WriteString(c, "word.")
			<-time.After(time.Millisecond)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		got := make([]byte, 25)
		n, err := io.ReadFull(c, got)
		switch {
		case err == nil:
			whole++
		case errors.Is(err, os.ErrDeadlineExceeded):
			t.Fatalf("silence after %q", got[:n])
		default:
			broken++
		}
		if want := bytes.Repeat([]byte("word."), 5)[:n]; !bytes.Equal(got[:n], want) {
			t.Fatalf("read %q; want %q", got[:n], want)
		}
	}
	if whole == 0 || broken == 0 {
		t.Errorf("%d connections whole, %d broken; want some of each", whole, broken)
	}
}

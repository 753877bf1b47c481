package cache

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/cache/wire"
	"github.com/understudy-ha/understudy/cache/zmtp"
)

// raw is a client that sends and sees frames.
type raw struct {
	t       *testing.T
	dialer  *zmtp.Dialer
	replies chan zmtp.Message
	alive   atomic.Int64 // keep-alives
}

func newRaw(t *testing.T, api string, security zmtp.Security) *raw {
	t.Helper()
	r := &raw{t: t, replies: make(chan zmtp.Message, 10_000)}
	connected := make(chan struct{})
	var err error
	r.dialer, err = zmtp.Dial(api, zmtp.Config{Kind: zmtp.DEALER, Security: security, Handler: zmtp.Handler{
		Connected: func(*zmtp.Conn) { close(connected) },
		Message: func(_ *zmtp.Conn, m zmtp.Message) {
			if len(m) == 1 {
				r.alive.Add(1)
				return
			}
			var own zmtp.Message
			for _, frame := range m {
				own = append(own, bytes.Clone(frame))
			}
			r.replies <- own
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.dialer.Close() })
	select {
	case <-connected:
	case <-time.After(patience):
		t.Fatal("not connected")
	}
	return r
}

// uint is a number as the protocol writes it.
func decimal(n int64) string {
	b := bytes.TrimRight(binary.LittleEndian.AppendUint64(nil, uint64(n)), "\x00")
	return string(append(b, make([]byte, max(0, 1-len(b)))...))
}

// soon is an expiry that a client of the original's gives; later than its 5 s, for a
// busy machine.
func soon() string { return decimal(time.Now().Add(patience).UnixMilli()) }

func (r *raw) send(frames ...string) {
	r.t.Helper()
	var m zmtp.Message
	for _, f := range frames {
		m = append(m, []byte(f))
	}
	if !r.dialer.Send(m) {
		r.t.Fatalf("%q cannot be sent", frames)
	}
}

// next is the next reply that is not a keep-alive.
func (r *raw) next() (out []string) {
	r.t.Helper()
	select {
	case m := <-r.replies:
		for _, f := range m {
			out = append(out, string(f))
		}
	case <-time.After(patience):
		r.t.Fatal("no reply")
	}
	return out
}

// want is that the next reply has these first frames.
func (r *raw) want(frames ...string) []string {
	r.t.Helper()
	got := r.next()
	if len(got) < len(frames) || !slices.Equal(got[:len(frames)], frames) {
		r.t.Fatalf("reply %q, want %q", got, frames)
	}
	return got
}

func TestOriginalClient(t *testing.T) {
	c := newCluster(t, 1, func(ctx context.Context, f Fetch) (Value, error) {
		if f.Key == "fails" {
			return Value{}, errors.New("no")
		}
		return echo(ctx, f)
	}, nil).settled()
	r := newRaw(t, c.members[0].API, nil)
	for i, what := range []string{"cold", "hot"} {
		r.send(fmt.Sprint(i), "?", soon(), "key")
		got := r.want(fmt.Sprint(i), "=", "value of key")
		if len(got) != 4 || len(got[3]) != 6 {
			t.Errorf("%s: %q", what, got)
		}
	}
	r.send("3", "?", soon(), "key", decimal(time.Now().UnixMilli()))
	r.want("3", "=", "value of key")
	began := time.Now()
	r.send("4", "?", soon(), "fails")
	r.want("4", "#")
	if r.alive.Load() < 2 {
		t.Error("it is not told that it has to wait")
	}
	if took := time.Since(began); took < refuseAfter {
		t.Errorf("it may ask again after %v already", took)
	}
	if s := c.peers[0].Stats(); s.Requests != 4 || s.Hits != 2 || s.Refused != 1 || s.Clients != 1 {
		t.Errorf("counted %+v", s)
	}
}

func TestClientGetsStale(t *testing.T) {
	var c *cluster
	c = newCluster(t, 1, func(context.Context, Fetch) (Value, error) {
		return Value{Data: fmt.Append(nil, c.calls.Load())}, nil
	}, nil).settled()
	c.get(0, "key", "1")
	c.ahead.Add(int64(2 * time.Hour))
	r := newRaw(t, c.members[0].API, nil)
	r.send("1", "?", decimal(time.Now().Add(3*time.Hour).UnixMilli()), "key")
	r.want("1", "=", "1")
	eventually(t, "it is refreshed", func() bool {
		item, _ := c.peers[0].Peek("key")
		return string(item.Value) == "2"
	})
	if s := c.peers[0].Stats(); s.Stales != 1 {
		t.Errorf("counted %+v", s)
	}
}

func TestDiscovery(t *testing.T) {
	c := newCluster(t, 3, echo, nil)
	r := newRaw(t, c.members[0].API, nil)
	r.send("1", "*", soon())
	got := r.want("1", "*")
	for _, m := range c.members {
		if !strings.HasPrefix(got[2], "\x93") || !strings.Contains(got[2], string([]byte{byte(0xa0 + len(m.API))})+m.API) {
			t.Errorf("servers %q", got)
		}
	}
}

func TestExtendedClient(t *testing.T) {
	var slow atomic.Int64 // calls that nobody may have waited for any more
	c := newCluster(t, 1, func(ctx context.Context, f Fetch) (Value, error) {
		switch f.Key {
		case "fails":
			return Value{}, &RetryAfter{time.Minute, errors.New("the origin is down")}
		case "missing":
			return Value{}, ErrNotFound
		case "slow":
			slow.Add(1)
			<-ctx.Done()
			return Value{}, ctx.Err()
		}
		return echo(ctx, f)
	}, nil).settled()
	r := newRaw(t, c.members[0].API, nil)
	ask := func(id, key string, patience int64) { r.send(id, "?", "\x01", key, "", "\x01", decimal(patience)) } // its clock is far behind
	ask("1", "key", 60_000)
	if got := r.want("1", "=", "value of key"); len(got) != 6 {
		t.Errorf("%d frames", len(got))
	}
	ask("2", "fails", 60_000)
	r.want("2", "!", string(wire.CodeFailed))
	ask("3", "missing", 60_000)
	r.want("3", "!", string(wire.CodeNotFound))
	ask("4", string(make([]byte, 1025)), 60_000)
	r.want("4", "!", string(wire.CodeTooLarge))
	ask("5", "", 60_000)
	r.want("5", "!", string(wire.CodeBadRequest))
	ask("8", "key", 0) // judged by its clock
	r.want("8", "!", string(wire.CodeBadRequest))
	ask("6", "slow", 100)
	r.want("6", "!")
	r.send("7", "?", "\x01", "key", "", "\x03", decimal(60_000)) // refresh
	r.want("7", "=", "value of key")
	if n := c.calls.Load() - slow.Load(); n != 4 {
		t.Errorf("%d calls of the origin, beside the slow one", n)
	}
}

// What makes no sense is counted, and nothing else happens.
func TestMalformedRequests(t *testing.T) {
	c := newCluster(t, 1, echo, nil).settled()
	r := newRaw(t, c.members[0].API, nil)
	bad := [][]string{
		{"1"}, {"1", "?"}, {"", "?", soon(), "key"}, {"1", "", soon(), "key"}, {"1", "??", soon(), "key"},
		{"1", "?", "\xff\xff\xff\xff\xff\xff\xff\xff", "key"}, // killed the original's process
		{"1", "?", "", "key"}, {"1", "?", soon()}, {"1", "?", soon(), ""}, {"1", "x", soon(), "key"},
		{"1", "?", decimal(time.Now().UnixMilli() - 60_000), "key"}, // expired
		{"1", "?", soon(), "key", "\xff\xff\xff\xff\xff\xff\xff\xff"},
		{"1", "?", soon(), string(make([]byte, 1025))},
		{string(make([]byte, 65)), "?", soon(), "key"},
	}
	for _, frames := range bad {
		r.send(frames...)
	}
	r.send("2", "?", soon(), "key")
	r.want("2", "=", "value of key")
	if s := c.peers[0].Stats(); s.BadRequests != int64(len(bad)) || s.Requests != int64(len(bad))+1 {
		t.Errorf("%d of %d counted as bad", s.BadRequests, len(bad))
	}
	select {
	case m := <-r.replies:
		t.Errorf("replied %q", m)
	default:
	}
}

// The clock of a client of the original's may be behind.
func TestClientSkew(t *testing.T) {
	c := newCluster(t, 1, echo, nil).settled()
	r := newRaw(t, c.members[0].API, nil)
	r.send("1", "?", decimal(time.Now().UnixMilli()-1000), "key")
	r.want("1", "=", "value of key")
}

func TestClientGoesAway(t *testing.T) {
	c := newCluster(t, 1, func(ctx context.Context, _ Fetch) (Value, error) {
		<-ctx.Done()
		return Value{}, ctx.Err()
	}, nil).settled()
	r := newRaw(t, c.members[0].API, nil)
	for i := range 10 {
		r.send(fmt.Sprint(i), "?", soon(), fmt.Sprint("key ", i), "", "\x01", decimal(time.Hour.Milliseconds()))
	}
	eventually(t, "ten wait", func() bool { return c.peers[0].Stats().Waiting == 10 && c.calls.Load() == 10 })
	_ = r.dialer.Close()
	eventually(t, "nobody waits", func() bool { return c.peers[0].Stats().Waiting == 0 && c.peers[0].Stats().Clients == 0 })
	waiting := -1
	err := c.peers[0].inLoop(c.ctx(), func(*protocol.Machine) {
		waiting = len(c.peers[0].loop.waiters)
	})
	if err != nil || waiting != 0 {
		t.Errorf("%d waiters are remembered, %v", waiting, err)
	}
}

// A client that floods is refused beyond its bound; others are served.
func TestClientIsBounded(t *testing.T) {
	c := newCluster(t, 1, func(ctx context.Context, f Fetch) (Value, error) {
		if f.Key == "key" {
			return echo(ctx, f)
		}
		<-ctx.Done()
		return Value{}, ctx.Err()
	}, nil).settled()
	c.get(0, "key", "value of key")
	flood, other := newRaw(t, c.members[0].API, nil), newRaw(t, c.members[0].API, nil)
	for i := range clientWaiting + 100 {
		flood.send(fmt.Sprint(i), "?", "\x01", fmt.Sprint("slow ", i), "", "\x01", decimal(60_000))
	}
	for range 100 {
		if got := flood.next(); got[1] != "!" || got[2] != string(wire.CodeOverloaded) {
			t.Fatalf("reply %q", got)
		}
	}
	other.send("1", "?", soon(), "key")
	other.want("1", "=", "value of key")
	if n := c.peers[0].Stats().Waiting; n > clientWaiting {
		t.Errorf("%d wait", n)
	}
}

// A client that does not read loses replies, and nobody else does.
func TestSlowClient(t *testing.T) {
	c := newCluster(t, 1, func(context.Context, Fetch) (Value, error) {
		return Value{Data: make([]byte, 1<<20)}, nil
	}, nil).settled()
	c.get(0, "key", string(make([]byte, 1<<20)))
	hold := make(chan struct{})
	slow, err := zmtp.Dial(c.members[0].API, zmtp.Config{Kind: zmtp.DEALER, Handler: zmtp.Handler{
		Connected: func(c *zmtp.Conn) {
			for range 100 {
				c.Send(zmtp.Message{[]byte("1"), []byte("?"), []byte(soon()), []byte("key")})
			}
		},
		Message: func(*zmtp.Conn, zmtp.Message) { <-hold },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	defer close(hold)
	other := newRaw(t, c.members[0].API, nil)
	eventually(t, "its queue is full", func() bool { return c.peers[0].Stats().Refused > 0 })
	other.send("1", "?", soon(), "key")
	other.want("1", "=")
	if n := c.peers[0].Stats().Dropped; n != 0 {
		t.Errorf("%d messages to peers are dropped, and there is no other peer", n)
	}
}

// A client that asks faster than it reads gets an answer to every request: the value, or that it is overloaded.
func TestSlowClientIsAnswered(t *testing.T) {
	made := make(chan struct{})
	c := newCluster(t, 1, func(ctx context.Context, f Fetch) (Value, error) {
		if f.Key == "slow" {
			select {
			case <-made:
			case <-ctx.Done():
			}
		}
		return Value{Data: make([]byte, 1<<20)}, nil
	}, nil).settled()
	c.get(0, "key", string(make([]byte, 1<<20)))
	const each = 40
	hold, replies := make(chan struct{}), make(chan string, 2*each)
	slow, err := zmtp.Dial(c.members[0].API, zmtp.Config{Kind: zmtp.DEALER, Handler: zmtp.Handler{
		Connected: func(c *zmtp.Conn) {
			for _, key := range []string{"slow", "key"} {
				for range each {
					c.Send(zmtp.Message{[]byte("1"), []byte("?"), []byte("\x01"), []byte(key), nil, []byte("\x01"), []byte(decimal(patience.Milliseconds()))})
				}
			}
		},
		Message: func(_ *zmtp.Conn, m zmtp.Message) {
			<-hold
			if len(m) > 2 {
				replies <- string(m[1]) + string(m[2][:min(len(m[2]), 20)])
			}
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	read := sync.OnceFunc(func() { close(hold) })
	defer read()
	eventually(t, "all wait or are answered", func() bool { return c.peers[0].Stats().Requests == 2*each && c.peers[0].Stats().Waiting == each })
	close(made)
	eventually(t, "nobody waits", func() bool { return c.peers[0].Stats().Waiting == 0 })
	read()
	values, refused := 0, 0
	for range 2 * each {
		select {
		case r := <-replies:
			switch {
			case r == "="+string(make([]byte, 20)):
				values++
			case r == "!"+string(wire.CodeOverloaded):
				refused++
			default:
				t.Errorf("reply %q", r)
			}
		case <-time.After(patience):
			t.Fatalf("%d values and %d refusals for %d requests", values, refused, 2*each)
		}
	}
	if values < 15 || refused == 0 {
		t.Errorf("%d values, %d refusals", values, refused)
	}
}

func TestNotes(t *testing.T) {
	var n recentKeys
	n.seed = maphash.MakeSeed()
	if !n.isNew([]byte("key"), time.Hour) || n.isNew([]byte("key"), time.Hour+time.Millisecond) {
		t.Error("noted twice at once, or not at all")
	}
	if !n.isNew([]byte("other"), time.Hour) {
		t.Error("another key is not noted")
	}
	if !n.isNew([]byte("key"), time.Hour+staleHitEvery) {
		t.Error("never noted again")
	}
}

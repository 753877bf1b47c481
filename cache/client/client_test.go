package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/cache/wire"
	"github.com/understudy-ha/understudy/cache/zmtp"
)

func get(t testing.TB, c *Client, key string) string {
	t.Helper()
	item, err := c.Get(t.Context(), key, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return string(item.Value)
}

func TestGet(t *testing.T) {
	requests := make(chan asked, 10)
	s := serve(t, func(a asked) { requests <- a; a.value("bar") })
	c := dial(t, Config{}, s)
	item, err := c.Get(t.Context(), "foo", Options{After: time.UnixMilli(1479145000000), Refresh: true})
	if err != nil {
		t.Fatal(err)
	}
	want := Item{Value: []byte("bar"), Expire: time.UnixMilli(2000), Made: time.UnixMilli(1000), Term: 7}
	if diff := cmp.Diff(want, item); diff != "" {
		t.Error(diff)
	}
	a := <-requests
	ahead := time.Until(time.UnixMilli(a.Expire))
	if string(a.Key) != "foo" || a.After != 1479145000000 || !a.Extended || !a.Refresh || ahead > validity ||
		a.Patience <= 0 || a.Patience > patience.Milliseconds() {
		t.Errorf("asked %+v", a.Request)
	}
	if _, err := c.Get(t.Context(), "foo", Options{}); err != nil {
		t.Fatal(err)
	}
	// The frames that the original reads are those of its own client.
	if b := <-requests; string(b.frames[0]) != "2" || string(b.frames[1]) != "?" || string(b.frames[3]) != "foo" || b.frames[4][0] != 0 || len(b.frames) != 7 {
		t.Errorf("sent %q", b.frames)
	}
	if st := c.Stats(); st.Gets != 2 || st.Errors != 0 || st.Retries != 0 || st.Connected != 1 {
		t.Errorf("%+v", st)
	}
}

// TestOriginalServer has replies as the original sends them.
func TestOriginalServer(t *testing.T) {
	s := serve(t, func(a asked) {
		a.say()
		a.say("=", "bar", "\xc0\x7a\x20\x64\x58\x01")
	})
	item, err := dial(t, Config{}, s).Get(t.Context(), "foo", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Item{Value: []byte("bar"), Expire: time.UnixMilli(1479148600000)}, item); diff != "" {
		t.Error(diff)
	}
}

func TestRoundRobin(t *testing.T) {
	var all []*script
	for i := range 3 {
		all = append(all, serve(t, func(a asked) { a.value(fmt.Sprint(i)) }))
	}
	c := dialed(t, Config{}, all...)
	for range 30 {
		get(t, c, "foo")
	}
	for i, s := range all {
		if s.got() != 10 {
			t.Errorf("server %d was asked %d times, want 10", i, s.got())
		}
	}
}

// TestDeadServer: a server that is not connected costs nothing.
func TestDeadServer(t *testing.T) {
	s := serve(t, func(a asked) { a.value("bar") })
	c := dialed(t, Config{Servers: nil}, s)
	two := dial(t, Config{Servers: []string{nobody(t), s.address}})
	for range 20 {
		get(t, c, "foo")
		get(t, two, "foo")
	}
	if st := two.Stats(); st.Retries != 0 || st.Silent != 0 {
		t.Errorf("%+v", st)
	}
	eventually(t, "an attempt to fail", func() bool { return two.Servers()[0].Err != nil })
}

// TestBreak: when a connection breaks, what waits there is asked elsewhere at once.
// Nothing else could bring the value: silence lasts longer than the test.
func TestBreak(t *testing.T) {
	arrived := make(chan struct{}, 10)
	stuck := serve(t, func(asked) { arrived <- struct{}{} })
	good := serve(t, func(a asked) { a.value("bar") })
	c := dialed(t, Config{}, stuck, good)
	results := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := c.Get(context.Background(), "foo", Options{})
			results <- err
		}()
	}
	<-arrived
	stuck.stop()
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if c.Stats().Retries != 1 {
		t.Errorf("%+v", c.Stats())
	}
}

// TestComesBack: a request waits for a server that is not there yet.
func TestComesBack(t *testing.T) {
	s := serve(t, func(a asked) { a.value("bar") })
	addr := s.address
	c := dialed(t, Config{}, s)
	s.stop()
	eventually(t, "the end of the connection", func() bool { return c.connected() == 0 })
	result := make(chan error, 1)
	go func() {
		_, err := c.Get(context.Background(), "foo", Options{})
		result <- err
	}()
	s.start(addr)
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestSilent(t *testing.T) {
	t.Parallel()
	late := make(chan asked, 1)
	mute := serve(t, func(a asked) {
		select {
		case late <- a:
		default:
		}
	})
	good := serve(t, func(a asked) { a.value("bar") })
	c := dialed(t, Config{rules: quick()}, mute, good)
	for range 20 {
		get(t, c, "foo")
	}
	if mute.got() != 1 {
		t.Errorf("the silent server was asked %d times, want once: it is passed over", mute.got())
	}
	if !c.Servers()[0].Silent || c.Stats().Silent < 1 {
		t.Errorf("%+v, %+v", c.Servers(), c.Stats())
	}
	// A late reply is ignored, and shows that the server lives.
	(<-late).value("late")
	eventually(t, "the late reply", func() bool { return c.Stats().Late == 1 })
	mute.then(func(a asked) { a.value("again") })
	eventually(t, "an answer of the server that was silent", func() bool { return get(t, c, "foo") == "again" })
}

// TestProbe: a server that was silent is tried again by one request at a time.
func TestProbe(t *testing.T) {
	mute := serve(t, func(asked) {})
	good := serve(t, func(a asked) { a.value("bar") })
	r := quick()
	r.first, r.avoid = 60*time.Millisecond, 10*time.Millisecond
	c := dialed(t, Config{rules: r}, mute, good)
	eventually(t, "more tries of the silent server", func() bool { get(t, c, "foo"); return mute.got() >= 3 })
}

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	s := serve(t, func(a asked) {
		// Longer than the first wait, each time before the next has ended.
		go func() {
			for range 12 {
				a.say()
				<-time.After(time.Second)
			}
			a.value("bar")
		}()
	})
	c := dialed(t, Config{rules: rules{first: 10 * time.Second, alive: patience, avoid: time.Hour, backOff: time.Millisecond}}, s)
	if got := get(t, c, "foo"); got != "bar" || s.got() != 1 {
		t.Errorf("%q after %d requests", got, s.got())
	}
}

// TestKeepAliveEnds: after a keep-alive, silence is noticed too.
func TestKeepAliveEnds(t *testing.T) {
	t.Parallel()
	s := serve(t, func(a asked) { a.say() })
	good := serve(t, func(a asked) { a.value("bar") })
	c := dialed(t, Config{rules: quick()}, s, good)
	get(t, c, "foo")
	get(t, c, "foo")
	if s.got() != 1 || c.Stats().Silent != 1 {
		t.Errorf("asked %d times, %+v", s.got(), c.Stats())
	}
}

// TestDeadline: keep-alives for ever do not move it.
func TestDeadline(t *testing.T) {
	end := make(chan struct{})
	var senders sync.WaitGroup
	s := serve(t, func(a asked) {
		senders.Go(func() {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					a.say()
				case <-end:
					return
				}
			}
		})
	})
	t.Cleanup(func() { close(end); senders.Wait() })
	c := dialed(t, Config{Timeout: time.Second}, s)
	begin := time.Now()
	_, err := c.Get(t.Context(), "foo", Options{})
	if !errors.Is(err, ErrTimeout) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), s.address) || !strings.Contains(err.Error(), "waiting") {
		t.Errorf("%v", err)
	}
	if d := time.Since(begin); d < time.Second {
		t.Errorf("after %v", d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Get(ctx, "foo", Options{}); !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := c.Get(ctx, "foo", Options{}); !errors.Is(err, context.Canceled) || errors.Is(err, ErrTimeout) {
		t.Errorf("%v", err)
	}
	eventually(t, "no request to be left", func() bool { return c.Servers()[0].InFlight == 0 })
}

func TestCancelWhileWaiting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serve(t, func(asked) { cancel() })
	if _, err := dialed(t, Config{}, s).Get(ctx, "foo", Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestNobody(t *testing.T) {
	addr := nobody(t)
	c := dial(t, Config{Servers: []string{addr}, Timeout: 300 * time.Millisecond})
	_, err := c.Get(t.Context(), "foo", Options{})
	if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "no server was connected") || !strings.Contains(err.Error(), addr) {
		t.Error(err)
	}
}

// TestSeeOther: servers that send a client round are asked, but not in a storm.
func TestSeeOther(t *testing.T) {
	first := serve(t, func(a asked) { a.say("#") })
	second := serve(t, func(a asked) { a.value("bar") })
	c := dialed(t, Config{}, first, second)
	get(t, c, "foo")
	get(t, c, "foo")
	if first.got() != 1 || c.Stats().Referred != 1 {
		t.Errorf("asked %d times, %+v", first.got(), c.Stats())
	}
	lone := serve(t, func(a asked) { a.say("#") })
	c = dialed(t, Config{Timeout: 5 * time.Second, rules: rules{first: patience, alive: patience, avoid: time.Hour, backOff: 200 * time.Millisecond}}, lone)
	_, err := c.Get(t.Context(), "foo", Options{})
	// The last time is perhaps not answered yet.
	if !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "ask another") && !strings.Contains(err.Error(), "had not answered") {
		t.Error(err)
	}
	// 5+10+20+40+80 ms, then at least 100 ms each: without the back-off it is thousands.
	if n := lone.got(); n > 56 {
		t.Errorf("asked %d times in 5 s", n)
	}
}

func TestRefusals(t *testing.T) {
	for code, want := range map[wire.Code]error{
		wire.CodeFailed: ErrFailed, wire.CodeNotFound: ErrNotFound, wire.CodePartitioned: ErrPartitioned, wire.CodeOverloaded: ErrOverloaded,
		wire.CodeTooLarge: ErrTooLarge, wire.CodeBadRequest: ErrBadRequest, "new": ErrFailed,
	} {
		says := func(a asked) {
			a.reply(wire.Reply{Kind: wire.ReplyError, Code: code, Retry: 1500 * time.Millisecond, Text: "exit status 1"})
		}
		one, two := serve(t, says), serve(t, says)
		c := dialed(t, Config{}, one, two)
		_, err := c.Get(t.Context(), "foo", Options{})
		refusal, ok := errors.AsType[*Refusal](err)
		if !errors.Is(err, want) || !ok || refusal.RetryAfter != 1500*time.Millisecond || refusal.Text != "exit status 1" || !strings.Contains(err.Error(), "exit status 1") {
			t.Errorf("%s: %v", code, err)
		}
		tries := 1
		if want == ErrPartitioned || want == ErrOverloaded {
			tries = 2
		}
		if n := one.got() + two.got(); n != tries {
			t.Errorf("%s: %d servers were asked, want %d", code, n, tries)
		}
	}
}

// TestElsewhere: what one server is too busy or too cut off for, another may have.
func TestElsewhere(t *testing.T) {
	cut := serve(t, func(a asked) { a.reply(wire.Reply{Kind: wire.ReplyError, Code: wire.CodePartitioned}) })
	good := serve(t, func(a asked) { a.value("bar") })
	c := dialed(t, Config{}, cut, good)
	for range 10 {
		get(t, c, "foo")
	}
	if cut.got() != 5 {
		t.Errorf("asked %d times, want 5", cut.got())
	}
}

func TestBadKeys(t *testing.T) {
	c := dial(t, Config{Servers: []string{nobody(t)}})
	if _, err := c.Get(t.Context(), "", Options{}); !errors.Is(err, ErrBadRequest) {
		t.Error(err)
	}
	if _, err := c.Get(t.Context(), strings.Repeat("k", maxKey+1), Options{}); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

// TestMalformed: whatever a server sends, the client continues.
func TestMalformed(t *testing.T) {
	s := serve(t, func(a asked) {
		a.say("=")
		a.say("=", "bar")
		a.say("=", "bar", "")
		a.say("=", "bar", "\xff\xff\xff\xff\xff\xff\xff\xff")
		a.say("==", "bar", "\x01")
		a.say("z")
		a.say("*", "\xc0")
		a.conn.Send(zmtp.Message{nil})
		a.conn.Send(zmtp.Message{[]byte("not mine")})
		a.conn.Send(zmtp.Message{[]byte("zzz"), []byte("#")})
		a.value("bar")
	})
	c := dialed(t, Config{}, s)
	if got := get(t, c, "foo"); got != "bar" {
		t.Errorf("%q", got)
	}
	if st := c.Stats(); st.Malformed != 9 || st.Late != 1 {
		t.Errorf("%+v", st)
	}
}

func TestInFlight(t *testing.T) {
	const bound = 4
	held := make(chan asked, 2*bound)
	s := serve(t, func(a asked) { held <- a })
	c := dialed(t, Config{InFlight: bound}, s)
	results := make(chan error, 2*bound)
	for range bound {
		go func() {
			_, err := c.Get(context.Background(), "foo", Options{})
			results <- err
		}()
	}
	eventually(t, "requests", func() bool { return s.got() == bound })
	if _, err := c.Get(t.Context(), "foo", Options{}); !errors.Is(err, ErrOverloaded) {
		t.Errorf("%v", err)
	}
	// Answered in another order than asked.
	var all []asked
	for range bound {
		all = append(all, <-held)
	}
	slices.Reverse(all)
	for _, a := range all {
		a.value("bar")
	}
	for range bound {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := c.Servers()[0].InFlight; n != 0 {
		t.Errorf("%d are in flight", n)
	}
}

func TestClose(t *testing.T) {
	var arrived atomic.Int64
	s := serve(t, func(asked) { arrived.Add(1) })
	c := dialed(t, Config{}, s)
	down := dial(t, Config{Servers: []string{nobody(t)}})
	results := make(chan error, 20)
	for range 10 {
		go func() {
			_, err := c.Get(context.Background(), "foo", Options{})
			results <- err
		}()
		go func() {
			_, err := down.Get(context.Background(), "foo", Options{})
			results <- err
		}()
	}
	eventually(t, "requests", func() bool { return arrived.Load() == 10 })
	c.Close()
	down.Close()
	for range 20 {
		if err := <-results; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	c.Close()
	if _, err := c.Get(t.Context(), "foo", Options{}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestManyAtOnce(t *testing.T) {
	var all []*script
	for range 3 {
		all = append(all, serve(t, func(a asked) { a.value("value of " + string(a.Key)) }))
	}
	c := dialed(t, Config{}, all...)
	var group sync.WaitGroup
	for g := range 16 {
		group.Go(func() {
			for i := range 200 {
				key := fmt.Sprintf("%d/%d", g, i)
				item, err := c.Get(context.Background(), key, Options{})
				if err != nil || string(item.Value) != "value of "+key {
					t.Errorf("%s: %q, %v", key, item.Value, err)
				}
				if i == 100 && g < 3 {
					all[g].cut()
				}
			}
		})
	}
	group.Wait()
}

func TestCurve(t *testing.T) {
	key, own := zmtp.NewCurveKey(), zmtp.NewCurveKey()
	l, err := zmtp.Listen("tcp://127.0.0.1:0", zmtp.Config{Kind: zmtp.ROUTER,
		Security: zmtp.Curve{Secret: key.Secret, Allow: zmtp.AllowKeys(own.Public)},
		Handler: zmtp.Handler{Message: func(c *zmtp.Conn, m zmtp.Message) {
			c.Send(zmtp.Message{m[0], []byte("="), []byte("bar"), {1}})
		}}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	servers := []string{l.Addr()}
	c := dial(t, Config{Servers: servers, Curve: &Curve{Key: own, Servers: map[string][32]byte{l.Addr(): key.Public}}})
	if got := get(t, c, "foo"); got != "bar" {
		t.Errorf("%q", got)
	}
	stranger := zmtp.NewCurveKey()
	for why, curve := range map[string]Curve{
		"a client that is not allowed":  {Key: stranger, Servers: map[string][32]byte{l.Addr(): key.Public}},
		"a server that is someone else": {Key: own, Servers: map[string][32]byte{l.Addr(): stranger.Public}},
	} {
		c := dial(t, Config{Servers: servers, Timeout: 300 * time.Millisecond, Curve: &curve})
		if _, err := c.Get(t.Context(), "foo", Options{}); !errors.Is(err, ErrTimeout) {
			t.Errorf("%s: %v", why, err)
		}
	}
}

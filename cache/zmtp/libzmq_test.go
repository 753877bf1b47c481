package zmtp

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

const python = "/usr/bin/python3"

// libzmq is a process with one socket of the real library.
type libzmq struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out chan report // closed at its end
	at  string
}

type report struct {
	At     string
	Frames Message
	Sums   []string
	Seen   int
	Wrong  int
}

// needLibzmq skips the test where the library is missing, unless it must not be.
func needLibzmq(t testing.TB) {
	t.Helper()
	if out, err := exec.Command(python, "-c", "import zmq; assert zmq.has('curve')").CombinedOutput(); err != nil {
		if os.Getenv(realserver.RequireEnv) == "1" {
			t.Fatalf("%s has no zmq with CURVE and %s=1: run `make test` as root, or install python3-zmq\n%s",
				python, realserver.RequireEnv, out)
		}
		t.Skipf("%s has no zmq with CURVE: install python3-zmq", python)
	}
}

func startLibzmq(t testing.TB, args ...string) *libzmq {
	t.Helper()
	p := &libzmq{t: t, cmd: exec.Command(python, append([]string{"testdata/peer.py"}, args...)...)}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.out = make(chan report, 100)
	go func() {
		defer close(p.out)
		lines := bufio.NewReaderSize(out, 1<<20)
		for {
			line, err := lines.ReadBytes('\n')
			var r report
			if err != nil || json.Unmarshal(line, &r) != nil {
				return
			}
			p.out <- r
		}
	}()
	t.Cleanup(p.stop)
	p.at = p.hear().At
	return p
}

func (p *libzmq) stop() {
	_ = p.cmd.Process.Kill()
	for range p.out {
		// until it is closed: only then Wait may close the pipe
	}
	_ = p.cmd.Wait()
}

func (p *libzmq) tell(do string, what map[string]any) {
	p.t.Helper()
	if what == nil {
		what = map[string]any{}
	}
	what["do"] = do
	line, _ := json.Marshal(what)
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		p.t.Fatal(err)
	}
}

// hear waits for a report.
func (p *libzmq) hear() report {
	p.t.Helper()
	r := recv(p.t, "a report of libzmq", p.out)
	if r.At == "" && r.Frames == nil && p.at == "" {
		p.t.Fatal("libzmq has not started")
	}
	return r
}

// mechanisms are the configurations of the two sides, and what libzmq is told for each.
type mechanisms struct {
	name                   string
	listen, dial           Security // ours
	bindOption, connection []string // libzmq's, for the other side
}

func bothMechanisms() []mechanisms {
	ours, theirs := NewCurveKey(), NewCurveKey()
	return []mechanisms{{name: "NULL"}, {
		name:       "CURVE",
		listen:     Curve{Secret: ours.Secret, Allow: AllowKeys(theirs.Public)},
		dial:       Curve{Secret: ours.Secret, ServerKey: theirs.Public},
		bindOption: []string{"server=" + EncodeKey(theirs.Secret)},
		connection: []string{
			"public=" + EncodeKey(theirs.Public), "secret=" + EncodeKey(theirs.Secret), "key=" + EncodeKey(ours.Public),
		},
	}}
}

// sizes are of the frames of the messages that are sent beside many small ones.
func sizes() [][]int {
	return [][]int{{10 << 20}, {0}, {255, 256, 0, 70_000}, {1, 1 << 20, 1}}
}

// filled is a message as peer.py fills it.
func filled(sizes []int) Message {
	var m Message
	for _, n := range sizes {
		f := make([]byte, n)
		for i := range f {
			f[i] = byte(i % 251)
		}
		m = append(m, f)
	}
	return m
}

// heard compares a message with what libzmq says that it got.
func (p *libzmq) heard(want Message) {
	p.t.Helper()
	r := p.hear()
	if r.Sums == nil {
		same(p.t, want, r.Frames)
		return
	}
	var sums []string
	for _, f := range want {
		sums = append(sums, fmt.Sprintf("%x", sha256.Sum256(f)))
	}
	if !slices.Equal(sums, r.Sums) {
		p.t.Fatalf("libzmq got another message: digests %v, want %v", r.Sums, sums)
	}
}

const manyMessages = 5000

func TestLibzmqDealerToRouter(t *testing.T) {
	needLibzmq(t)
	for _, m := range bothMechanisms() {
		t.Run(m.name, func(t *testing.T) {
			l := listen(t, Config{Kind: ROUTER, Security: m.listen, Queue: 64 << 20, Handler: Handler{
				Message: func(c *Conn, m Message) { c.Send(m) },
			}})
			p := startLibzmq(t, append([]string{"DEALER", "connect", l.Addr(), "print"}, m.connection...)...)
			for _, s := range sizes() {
				p.tell("long", map[string]any{"frames": text("x"), "sizes": s})
				p.heard(append(text("x"), filled(s)...))
			}
			c := startLibzmq(t, append([]string{"DEALER", "connect", l.Addr(), "count"}, m.connection...)...)
			c.tell("many", map[string]any{"frames": text("a", "b"), "n": manyMessages})
			counted(t, c, manyMessages)
			if l.Dropped()+l.Failed() > 0 {
				t.Errorf("%d messages were dropped, %d connections failed", l.Dropped(), l.Failed())
			}
		})
	}
}

// counted waits until libzmq has seen n messages, in order.
func counted(t *testing.T, p *libzmq, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d messages at libzmq", n), func() bool {
		p.tell("counted", nil)
		r := p.hear()
		if r.Wrong > 0 {
			t.Fatalf("%d of %d messages out of order", r.Wrong, r.Seen)
		}
		return r.Seen == n
	})
}

func TestLibzmqRouterToDealer(t *testing.T) {
	needLibzmq(t)
	for _, m := range bothMechanisms() {
		t.Run(m.name, func(t *testing.T) {
			p := startLibzmq(t, append([]string{"ROUTER", "bind", "tcp://127.0.0.1:*", "echo"}, m.bindOption...)...)
			up, got := make(chan *Conn, 1), make(chan Message, 1)
			var count, wrong atomic.Int64
			done := make(chan bool)
			d := dial(t, p.at, Config{Kind: DEALER, Security: m.dial, Queue: 64 << 20, Handler: Handler{
				Connected: func(c *Conn) { up <- c },
				Message: func(_ *Conn, m Message) {
					if string(m[0]) != "n" {
						got <- clone(m)
						return
					}
					n := count.Add(1)
					if string(m[1]) != strconv.FormatInt(n, 10) {
						wrong.Add(1)
					}
					if n == manyMessages {
						close(done)
					}
				},
			}})
			recv(t, "connection", up)
			for _, s := range sizes() {
				m := append(text("x"), filled(s)...)
				if !d.Send(m) {
					t.Fatal("refused")
				}
				same(t, m, recv(t, "echo", got))
			}
			for i := range manyMessages {
				if !d.Send(text("n", strconv.Itoa(i+1))) {
					t.Fatal("refused")
				}
			}
			recv(t, "all echoes", done)
			if wrong.Load() > 0 {
				t.Errorf("%d out of order", wrong.Load())
			}
		})
	}
}

func TestLibzmqSubToPub(t *testing.T) {
	needLibzmq(t)
	for _, m := range bothMechanisms() {
		t.Run(m.name, func(t *testing.T) {
			type change struct {
				prefix string
				on     bool
			}
			changes := make(chan change, 10)
			l := listen(t, Config{Kind: PUB, Security: m.listen, Queue: 64 << 20, Handler: Handler{
				Subscribed: func(_ *Conn, p []byte, on bool) { changes <- change{string(p), on} },
			}})
			p := startLibzmq(t, append([]string{"SUB", "connect", l.Addr(), "print"}, m.connection...)...)
			p.tell("subscribe", map[string]any{"prefix": []byte("*")})
			if c := recv(t, "subscription", changes); c != (change{"*", true}) {
				t.Fatal(c)
			}
			for _, s := range sizes() {
				m := append(text("*"), filled(s)...)
				if l.Publish(text("other")) != 0 || l.Publish(m) != 1 {
					t.Fatal("published to the wrong ones")
				}
				p.heard(m)
			}
			p.tell("unsubscribe", map[string]any{"prefix": []byte("*")})
			if c := recv(t, "cancellation", changes); c != (change{"*", false}) {
				t.Fatal(c)
			}
			if l.Publish(text("*")) != 0 {
				t.Error("published after the cancellation")
			}
			c := startLibzmq(t, append([]string{"SUB", "connect", l.Addr(), "count"}, m.connection...)...)
			c.tell("subscribe", map[string]any{"prefix": []byte{}})
			recv(t, "subscription", changes)
			for i := range manyMessages {
				if l.Publish(text("x", strconv.Itoa(i))) != 1 {
					t.Fatal("refused")
				}
			}
			counted(t, c, manyMessages)
		})
	}
}

func TestLibzmqPubToSub(t *testing.T) {
	needLibzmq(t)
	for _, m := range bothMechanisms() {
		t.Run(m.name, func(t *testing.T) {
			p := startLibzmq(t, append([]string{"PUB", "bind", "tcp://127.0.0.1:*", "print"}, m.bindOption...)...)
			got := make(chan Message, 2*manyMessages)
			dial(t, p.at, Config{Kind: SUB, Security: m.dial, Subscribe: [][]byte{[]byte("probe"), []byte("*")}, Handler: Handler{
				Message: func(_ *Conn, m Message) { got <- clone(m) },
			}})
			// A PUB does not say when it has a subscription.
			eventually(t, "something arrives", func() bool {
				p.tell("send", map[string]any{"frames": text("probe")})
				return len(got) > 0
			})
			next := func() Message {
				for {
					if m := recv(t, "publication", got); string(m[0]) != "probe" {
						return m
					}
				}
			}
			for _, s := range sizes() {
				p.tell("send", map[string]any{"frames": text("other")})
				p.tell("long", map[string]any{"frames": text("*"), "sizes": s})
				same(t, append(text("*"), filled(s)...), next())
			}
			p.tell("many", map[string]any{"frames": text("*"), "n": manyMessages})
			for i := range manyMessages {
				same(t, text("*", strconv.Itoa(i)), next())
			}
		})
	}
}

func TestLibzmqRestarts(t *testing.T) {
	needLibzmq(t)
	for _, m := range bothMechanisms() {
		t.Run(m.name, func(t *testing.T) {
			p := startLibzmq(t, append([]string{"ROUTER", "bind", "tcp://127.0.0.1:*", "echo"}, m.bindOption...)...)
			up, down := make(chan *Conn, 10), make(chan error, 10)
			got := make(chan Message, 10)
			d := dial(t, p.at, Config{Kind: DEALER, Security: m.dial, Handler: Handler{
				Connected:    func(c *Conn) { up <- c },
				Message:      func(_ *Conn, m Message) { got <- clone(m) },
				Disconnected: func(_ *Conn, err error) { down <- err },
			}})
			recv(t, "connection", up)
			p.stop()
			if err := recv(t, "end", down); !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
				t.Errorf("ended with %v", err)
			}
			startLibzmq(t, append([]string{"ROUTER", "bind", p.at, "echo"}, m.bindOption...)...)
			d.Kick()
			recv(t, "connection", up)
			d.Send(text("again"))
			same(t, text("again"), recv(t, "echo", got))

			server := Config{Kind: ROUTER, Security: m.listen, Handler: Handler{
				Connected: func(c *Conn) { up <- c },
				Message:   func(c *Conn, m Message) { c.Send(m) },
			}}
			l := listen(t, server)
			q := startLibzmq(t, append([]string{"DEALER", "connect", l.Addr(), "print"}, m.connection...)...)
			recv(t, "connection", up)
			l.Close()
			eventually(t, "the port is free again", func() bool {
				again, err := Listen(l.Addr(), server)
				if err == nil {
					t.Cleanup(func() { again.Close() })
				}
				return err == nil
			})
			recv(t, "connection", up)
			q.tell("send", map[string]any{"frames": text("again")})
			same(t, text("again"), q.hear().Frames)
		})
	}
}

func TestLibzmqHeartbeats(t *testing.T) {
	needLibzmq(t)
	for _, m := range bothMechanisms() {
		t.Run(m.name, func(t *testing.T) {
			up, down := make(chan *Conn, 10), make(chan error, 10)
			h := Handler{
				Connected:    func(c *Conn) { up <- c },
				Disconnected: func(_ *Conn, err error) { down <- err },
			}
			// libzmq asks: its PINGs come in, our PONGs go out, and it stays.
			l := listen(t, Config{Kind: ROUTER, Security: m.listen, Handler: h})
			startLibzmq(t, append([]string{"DEALER", "connect", l.Addr(), "print", "heartbeat=20"}, m.connection...)...)
			c := recv(t, "connection", up)
			base := c.bytesIn.Load()
			eventually(t, "PINGs", func() bool { return c.bytesIn.Load() > base+500 })
			// This side asks.
			p := startLibzmq(t, append([]string{"ROUTER", "bind", "tcp://127.0.0.1:*", "echo"}, m.bindOption...)...)
			d := dial(t, p.at, Config{Kind: DEALER, Security: m.dial, Handler: h, Heartbeat: 20e6, HeartbeatTimeout: 20e9})
			recv(t, "connection", up)
			eventually(t, "PONGs", func() bool { return d.Conn().bytesIn.Load() > 200 })
			if len(down) > 0 || len(up) > 0 {
				t.Error("a connection was lost")
			}
		})
	}
}

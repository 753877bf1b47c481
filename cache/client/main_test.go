package client

import (
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/understudy-ha/understudy/cache/wire"
	"github.com/understudy-ha/understudy/cache/zmtp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must happen: the machine may be busy.
const patience = time.Minute

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	end := time.Now().Add(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(end) {
			t.Fatalf("gave up waiting: %s", what)
		}
		<-tick.C
	}
}

// asked is a request as a server got it.
type asked struct {
	conn   *zmtp.Conn
	frames zmtp.Message
	wire.Request
}

// say sends the frames of a reply as they are.
func (a asked) say(frames ...string) {
	m := zmtp.Message{a.ID}
	for _, f := range frames {
		m = append(m, []byte(f))
	}
	a.conn.Send(m)
}

func (a asked) reply(r wire.Reply) {
	r.ID = a.ID
	a.conn.Send(new(wire.Encoder).Reply(&r, a.Extended))
}

func (a asked) value(v string) {
	a.reply(wire.Reply{Kind: wire.ReplyValue, Value: []byte(v), Expire: 2000, Made: 1000, Term: 7})
}

// script is a server that does what a test says.
type script struct {
	t       testing.TB
	l       *zmtp.Listener
	address string

	mu    sync.Mutex
	does  func(asked)
	count int
	conns []*zmtp.Conn
}

func serve(t testing.TB, does func(asked)) *script {
	t.Helper()
	s := &script{t: t, does: does}
	s.start("tcp://127.0.0.1:0")
	t.Cleanup(s.stop)
	return s
}

func (s *script) start(addr string) {
	s.t.Helper()
	eventually(s.t, "listen on "+addr, func() bool {
		l, err := zmtp.Listen(addr, zmtp.Config{Kind: zmtp.ROUTER, Handler: zmtp.Handler{
			Connected: func(c *zmtp.Conn) {
				s.mu.Lock()
				s.conns = append(s.conns, c)
				s.mu.Unlock()
			},
			Message: s.message,
		}})
		if err != nil {
			return false
		}
		s.mu.Lock()
		s.l = l
		s.mu.Unlock()
		s.address = l.Addr()
		return true
	})
}

func (s *script) stop() {
	s.mu.Lock()
	l := s.l
	s.mu.Unlock()
	l.Close()
}

func (s *script) message(c *zmtp.Conn, m zmtp.Message) {
	copied := make(zmtp.Message, len(m))
	for i, f := range m {
		copied[i] = append([]byte{}, f...)
	}
	a := asked{conn: c, frames: copied}
	if err := a.Decode(copied); err != nil {
		s.t.Errorf("the client sent %q: %v", copied, err)
		return
	}
	s.mu.Lock()
	s.count++
	does := s.does
	s.mu.Unlock()
	does(a)
}

// then changes what the server does.
func (s *script) then(does func(asked)) {
	s.mu.Lock()
	s.does = does
	s.mu.Unlock()
}

// got is how often the server was asked.
func (s *script) got() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

// cut breaks all connections.
func (s *script) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

// quick are rules for tests that wait for silence, and in which a server that answers
// must not be taken for silent.
func quick() rules {
	return rules{first: 10 * time.Second, alive: 120 * time.Millisecond, avoid: time.Hour, backOff: 40 * time.Millisecond}
}

// patient are rules under which a busy machine is not taken for a silent server.
func patient() rules {
	return rules{first: patience, alive: patience, avoid: time.Hour, backOff: 40 * time.Millisecond}
}

func dial(t testing.TB, cfg Config, servers ...*script) *Client {
	t.Helper()
	for _, s := range servers {
		cfg.Servers = append(cfg.Servers, s.address)
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = patience
	}
	if cfg.rules == (rules{}) {
		cfg.rules = patient()
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// dialed is a client that is connected to all its servers.
func dialed(t testing.TB, cfg Config, servers ...*script) *Client {
	t.Helper()
	c := dial(t, cfg, servers...)
	eventually(t, "connections", func() bool { return c.connected() == len(servers) })
	return c
}

// nobody is an address that refuses connections.
func nobody(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "tcp://" + l.Addr().String()
}

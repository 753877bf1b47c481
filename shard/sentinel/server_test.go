package sentinel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/sentinel"
	"github.com/understudy-ha/understudy/shard/shardtest"
)

// TestWordsAreSentinels compares answers with those of a real Sentinel.
func TestWordsAreSentinels(t *testing.T) {
	primary := realserver.Redis(t, realserver.RedisOptions{})
	actual := realserver.RedisSentinel(t, "orders", primary, time.Minute)
	realserver.Eventually(t, time.Minute, "Sentinel knows the primary", func() error {
		if got := dial(t, actual.Addr).do("sentinel", "master", "orders"); strings.Contains(got, "runid  ") {
			return errors.New(got)
		}
		return nil
	})
	address, _ := serve(t, sentinel.Config{Where: shardtest.NewViews(view("orders", 1, primary.Addr))})
	for _, version := range []string{"2", "3"} {
		theirs, ours := dial(t, actual.Addr), dial(t, address)
		theirs.do("HELLO", version)
		ours.do("HELLO", version)
		for _, request := range []string{
			"ping", "PING hello", "ping a b", "foo bar", "foo", "get x", "sentinel", "sentinel foo", "SENTINEL MASTER",
			"sentinel master x", "sentinel replicas x", "sentinel sentinels x", "sentinel slaves x", "sentinel ckquorum x", "sentinel failover x",
			"sentinel get-master-addr-by-name", "sentinel get-master-addr-by-name x", "sentinel get-master-addr-by-name orders",
			"sentinel ckquorum orders", "sentinel sentinels orders", "sentinel replicas orders", "sentinel pending-scripts", "sentinel myid extra",
			"sentinel is-master-down-by-addr 127.0.0.1 1 1 *", "sentinel is-master-down-by-addr 127.0.0.1 x 1 *", "sentinel is-master-down-by-addr a",
			"role", "role a", "auth", "auth a b c", "auth pw", "auth default pw", "auth someone pw", "hello 4", "hello x", "hello 2 foo", "hello 2 auth x", "hello 2 setname",
			"client", "client foo", "client setname", "client setname a b", "client setname me", "client getname", "client no-evict on", "client no-evict what",
			"subscribe", "publish a b", "publish a",
			"subscribe one two", "psubscribe p*", "subscribe one", "ping", "ping x", "role", "get x", "unsubscribe one", "punsubscribe nothing", "unsubscribe two", "punsubscribe",
			"unsubscribe", "ping",
		} {
			words := strings.Fields(request)
			theirs.send(words...)
			ours.send(words...)
			for range answers(words) {
				if a, b := theirs.read(), ours.read(); a != b {
					t.Errorf("RESP%s %q:\nSentinel: %s\nwe:       %s", version, request, a, b)
				}
			}
		}
		fields := func(p *peer, words ...string) string {
			var names []string
			for i, w := range strings.Fields(strings.Trim(p.do(words...), "[]{}")) {
				if i%2 == 0 && w != "s-down-time" && w != "o-down-time" {
					names = append(names, w)
				}
			}
			return strings.Join(names, " ")
		}
		if a, b := fields(theirs, "sentinel", "master", "orders"), fields(ours, "sentinel", "master", "orders"); a != b {
			t.Errorf("fields of SENTINEL MASTER\nSentinel: %s\nwe:       %s", a, b)
		}
	}
}

// answers is how many there are to a request.
func answers(words []string) int {
	if strings.Contains(words[0], "subscribe") {
		return max(1, len(words)-1)
	}
	return 1
}

func TestAuthentication(t *testing.T) {
	address, _ := serve(t, sentinel.Config{Where: shardtest.NewViews(view("orders", 1, "10.0.0.1:6379")), Password: "secret", Username: "app"})
	p := dial(t, address)
	for _, c := range [][2]string{
		{"ping", "-NOAUTH"}, {"sentinel masters", "-NOAUTH"}, {"subscribe +switch-master", "-NOAUTH"}, {"hello 3", "-NOAUTH HELLO must"},
		{"auth wrong", "-WRONGPASS"}, {"auth other secret", "-WRONGPASS"}, {"hello 3 auth app wrong", "-WRONGPASS"}, {"ping", "-NOAUTH"},
		{"auth secret", "+OK"}, {"ping", "+PONG"}, {"reset", "+RESET"}, {"ping", "-NOAUTH"}, {"auth app secret", "+OK"}, {"ping", "+PONG"},
		{"hello 3 auth app secret setname me", "{server"}, {"client getname", "me"},
	} {
		if got := p.do(strings.Fields(c[0])...); !strings.HasPrefix(got, c[1]) {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}

func TestAddresses(t *testing.T) {
	v := view("orders", 1, "db-1.example:6379", "[2001:db8::2]:6380", "10.0.0.3:6381")
	v.Nodes[0].Announced = "[2001:db8::1]:7000"
	world := shardtest.NewViews(v)
	address, _ := serve(t, sentinel.Config{Where: world})
	p := dial(t, address)
	if got, want := p.do("sentinel", "get-master-addr-by-name", "orders"), "[2001:db8::1 7000]"; got != want {
		t.Errorf("get-master-addr-by-name: %s, want %s", got, want)
	}
	for _, part := range []string{"ip 2001:db8::2 port 6380", "name [2001:db8::2]:6380", "master-host 2001:db8::1", "ip 10.0.0.3 port 6381"} {
		if got := p.do("sentinel", "replicas", "orders"); !strings.Contains(got, part) {
			t.Errorf("replicas: no %q in %s", part, got)
		}
	}
	p.do("subscribe", "+switch-master")
	next := view("orders", 2, "db-1.example:6379", "[2001:db8::2]:6380", "10.0.0.3:6381")
	world.Set(next)
	if got, want := p.read(), "[message +switch-master orders 2001:db8::1 7000 2001:db8::2 6380]"; got != want {
		t.Errorf("message %s, want %s", got, want)
	}
}

func TestNoPrimary(t *testing.T) {
	v := view("orders", 1, "10.0.0.1:1", "10.0.0.2:2")
	unknown := shard.View{Row: shard.Row{Name: "new"}}
	world := shardtest.NewViews(unknown, failing(v, 2))
	address, _ := serve(t, sentinel.Config{Where: world})
	p := dial(t, address)
	for request, part := range map[string]string{
		"sentinel get-master-addr-by-name orders":        "nil-array",
		"sentinel get-master-addr-by-name new":           "nil-array",
		"sentinel master orders":                         "flags master,s_down,o_down,failover_in_progress",
		"sentinel master new":                            "-ERR No such master with that name",
		"sentinel sentinels orders":                      "[]",
		"sentinel ckquorum orders":                       "+OK 1 usable Sentinels",
		"sentinel is-master-down-by-addr 10.0.0.1 1 0 *": "[:1 * :0]",
		"sentinel failover orders":                       "understudy shard switchover orders",
		"sentinel set orders down-after-milliseconds 1":  "-ERR this Sentinel is a part of Understudy",
		"info":         "master0:name=orders,status=odown,address=10.0.0.1:1,slaves=1,sentinels=1",
		"info server":  "redis_mode:sentinel",
		"role":         "[sentinel [orders]]",
		"command docs": "[]",
		"sentinel get-master-addr-by-name a\"b'c\x00\xff%s%d": "nil-array",
	} {
		if got := p.do(strings.Fields(request)...); !strings.Contains(got, part) {
			t.Errorf("%q: %s, want %s", request, got, part)
		}
	}
}

// TestEndpoints shows that an endpoint names those of the shard's other agents, with the ones that are silent marked,
// and neither itself nor an address that is none.
func TestEndpoints(t *testing.T) {
	v := view("orders", 1, "10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:3", "10.0.0.4:4")
	v.Nodes[0].Sentinel, v.Nodes[1].Sentinel, v.Nodes[2].Sentinel = "10.0.0.1:26379", "[2001:db8::2]:26379", "10.0.0.3:26379"
	v.Nodes[2].Age = time.Hour
	address, _ := serve(t, sentinel.Config{Where: shardtest.NewViews(v), ID: v.Nodes[0].ID})
	p := dial(t, address)
	for request, parts := range map[string][]string{
		"sentinel sentinels orders": {"ip 2001:db8::2 port 26379 runid " + id(2) + " flags sentinel ", "ip 10.0.0.3 port 26379 runid " + id(3) + " flags s_down,sentinel,disconnected "},
		"sentinel master orders":    {"num-other-sentinels 2"},
		"sentinel ckquorum orders":  {"+OK 2 usable Sentinels"},
		"sentinel myid":             {id(1)},
		"info":                      {"slaves=3,sentinels=3"},
	} {
		got := p.do(strings.Fields(request)...)
		for _, part := range parts {
			if !strings.Contains(got, part) {
				t.Errorf("%q: no %q in %s", request, part, got)
			}
		}
		if strings.Contains(got, "10.0.0.1 port 26379") {
			t.Errorf("%q names the endpoint itself: %s", request, got)
		}
	}
}

// TestLateSubscriber shows that a client which asked before a switch and subscribed after it
// is told, and that one which need not be is not: ioredis drops its connection whenever it is told.
func TestLateSubscriber(t *testing.T) {
	world := shardtest.NewViews(view("orders", 1, "10.0.0.1:1", "10.0.0.2:2"))
	address, _ := serve(t, sentinel.Config{Where: world})
	early, late, stranger, latest := dial(t, address), dial(t, address), dial(t, address), dial(t, address)
	early.do("subscribe", "+switch-master")
	late.do("sentinel", "get-master-addr-by-name", "orders")
	world.Set(view("orders", 2, "10.0.0.1:1", "10.0.0.2:2"))
	want := "[message +switch-master orders 10.0.0.1 1 10.0.0.2 2]"
	if got := early.read(); got != want {
		t.Errorf("the early one: %s", got)
	}
	late.do("subscribe", "+switch-master")
	if got := late.read(); got != want {
		t.Errorf("the late one: %s", got)
	}
	latest.do("sentinel", "get-master-addr-by-name", "orders")
	for name, p := range map[string]*peer{"one that never asked": stranger, "one that asked after it": latest} {
		p.do("subscribe", "+switch-master")
		if got := p.do("ping"); !strings.Contains(got, "pong") {
			t.Errorf("%s was told: %s", name, got)
		}
	}
}

func TestFailoverIsRefused(t *testing.T) {
	address, _ := serve(t, sentinel.Config{Where: shardtest.NewViews(view("orders", 1, "10.0.0.1:1"))})
	if got, want := dial(t, address).do("sentinel", "failover", "orders"), "-ERR failovers are not started from here. Use: understudy shard switchover orders"; got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
}

func TestBounds(t *testing.T) {
	world := shardtest.NewViews(view("orders", 1, "10.0.0.9:1"))
	address, s := serve(t, sentinel.Config{Where: world, MaxConns: 2, MaxOutput: 64 << 10})
	t.Run("nonsense", func(t *testing.T) {
		for _, text := range []string{"*1\r\n$-5\r\n", "*99999999\r\n", "*1\r\n:5\r\n", strings.Repeat("x", 1<<20), "*1\r\n$999999999\r\n", "\"open\r\n", "*3\r\n$1\r\na\r\n$99999\r\n"} {
			p := dial(t, address)
			_, _ = io.WriteString(p, text)
			if got, err := p.value(); err == nil && !strings.HasPrefix(got, "-ERR Protocol error") {
				t.Errorf("%.20q: %q, want a protocol error", text, got)
			}
			p.Close()
			settle(t, s, 0)
		}
	})
	t.Run("connections", func(t *testing.T) {
		a, b := dial(t, address), dial(t, address)
		a.do("ping")
		b.do("ping")
		if got := dial(t, address).read(); got != "-ERR max number of clients reached" {
			t.Errorf("the third: %q", got)
		}
		a.do("quit")
		b.Close()
		settle(t, s, 0)
	})
	t.Run("subscriber who does not read", func(t *testing.T) {
		deaf, fine := dial(t, address), dial(t, address)
		_ = deaf.Conn.(*net.TCPConn).SetReadBuffer(4096)
		deaf.do("psubscribe", "*")
		fine.do("subscribe", "+switch-master")
		nodes := make([]string, 60)
		for i := range nodes {
			nodes[i] = fmt.Sprintf("%s.example:%d", strings.Repeat("x", 200), i+1)
		}
		deadline := time.Now().Add(time.Minute)
		for n := 0; s.Stats().Dropped == 0; n++ {
			if time.Now().After(deadline) {
				t.Fatal("the subscriber is still connected")
			}
			primary := n%2 + 1
			world.Set(view("orders", primary, nodes...))
			fine.read()
		}
	})
	t.Run("subscriptions", func(t *testing.T) {
		settle(t, s, 0)
		p := dial(t, address)
		for _, kind := range []string{"subscribe", "psubscribe"} {
			if got := p.do(kind, strings.Repeat("x", 257)); !strings.HasPrefix(got, "-ERR the name of a channel") {
				t.Errorf("%s to a name of 257 bytes: %s", kind, got)
			}
		}
		for i := range 129 {
			got := p.do("subscribe", fmt.Sprintf("%0256d", i))
			if want := i == 128; want != strings.HasPrefix(got, "-ERR too many") {
				t.Errorf("subscription %d: %s", i, got)
			}
		}
	})
}

// TestAnything sends words in any order and number, of which none may end the server, and all but
// QUIT are answered.
func TestAnything(t *testing.T) {
	address, _ := serve(t, sentinel.Config{Where: shardtest.NewViews(view("orders", 1, "10.0.0.1:1", "10.0.0.2:2"), shard.View{})})
	words := strings.Fields("ping auth hello client sentinel role info command reset subscribe psubscribe unsubscribe punsubscribe publish " +
		"get-master-addr-by-name masters master replicas slaves sentinels ckquorum myid is-master-down-by-addr failover set help pending-scripts " +
		"orders other 2 3 -1 setname getname setinfo id no-evict on default all + * [ \\ a*b 127.0.0.1 99999999999999999999")
	words = append(words, "", "\x00\xff", "a b", "%s%d", strings.Repeat("x", 300))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	p := dial(t, address)
	for range 3000 {
		request := make([]string, 1+random.IntN(6))
		for i := range request {
			request[i] = words[random.IntN(len(words))]
		}
		p.send(request...)
		if _, err := p.value(); err != nil {
			t.Fatalf("%q: %v", request, err)
		}
		if random.IntN(50) == 0 {
			p.Close()
			p = dial(t, address)
		}
	}
	if got := dial(t, address).do("ping"); got != "+PONG" {
		t.Errorf("after all: %s", got)
	}
}

// TestPipelining shows that who asks without reading gets all answers, in order, when he
// reads.
func TestPipelining(t *testing.T) {
	address, _ := serve(t, sentinel.Config{Where: shardtest.NewViews(view("orders", 1, "10.0.0.1:1"))})
	p := dial(t, address)
	const n = 1500
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for i := range n {
			if _, err := fmt.Fprintf(p, "PING %d\r\nSENTINEL MASTER orders\r\n", i); err != nil {
				return
			}
		}
	}()
	for i := range n {
		if got := p.read(); got != fmt.Sprint(i) {
			t.Fatalf("answer %d is %q", i, got)
		}
		p.read()
	}
	<-sent
}

func TestIdle(t *testing.T) {
	address, s := serve(t, sentinel.Config{Where: shardtest.NewViews(), Idle: 300 * time.Millisecond})
	var listener *peer
	realserver.Eventually(t, time.Minute, "a subscription in time", func() error {
		listener = dial(t, address)
		_, err := io.WriteString(listener, "SUBSCRIBE +switch-master\r\n")
		if err == nil {
			_, err = listener.value()
		}
		return err
	})
	if got, err := dial(t, address).value(); err == nil {
		t.Errorf("a client that says nothing got %q", got)
	}
	if got := listener.do("ping"); got != "[pong ]" {
		t.Errorf("the subscriber got %q", got)
	}
	settle(t, s, 1)
}

func TestConfig(t *testing.T) {
	where := shardtest.NewViews()
	for _, c := range []sentinel.Config{
		{}, {Where: where, MaxConns: -1}, {Where: where, ID: "short"}, {Where: where, Username: "u"},
	} {
		if _, err := sentinel.New(c); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestServeEndsWithListener(t *testing.T) {
	s, err := sentinel.New(sentinel.Config{Where: shardtest.NewViews()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := s.Serve(context.Background(), l); err == nil {
		t.Error("no error from a closed listener")
	}
}

// settle waits until so many clients are connected.
func settle(t *testing.T, s *sentinel.Server, n int) {
	t.Helper()
	realserver.Eventually(t, time.Minute, "clients have gone", func() error {
		if got := s.Stats().Conns; got != n {
			return fmt.Errorf("%d clients", got)
		}
		return nil
	})
}

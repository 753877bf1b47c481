package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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

func TestRestartWithStorage(t *testing.T) {
	disks := []*memory{newMemory(), newMemory(), newMemory()}
	c := newCluster(t, 3, echo, func(i int, cfg *Config) { cfg.Storage = disks[i] }).settled()
	for i := range 20 {
		c.get(i%3, fmt.Sprint("key ", i), fmt.Sprint("value of key ", i))
	}
	c.everywhere(t, "key 19", "value of key 19")
	if _, _, err := c.peers[0].Remove(c.ctx(), protocol.OneKey, "key 7"); err != nil {
		t.Fatal(err)
	}
	for _, p := range c.peers {
		p.stop()
	}
	for _, d := range disks {
		if d.state.Ceiling < time.Now().UnixMilli() || len(d.state.Removals) == 0 {
			t.Errorf("stored: ceiling %d, removals %v", d.state.Ceiling, d.state.Removals)
		}
		// The delete may be lost with the last saves: the removal counts all the same.
		d.records["key 7"] = protocol.Entry{Term: 1, Expire: time.Now().Add(time.Hour).UnixMilli(), Value: []byte("removed"), Digest: protocol.Digest([]byte("removed"))}
	}
	before := c.calls.Load()
	for i := range 3 {
		c.start(i)
	}
	for i, p := range c.peers {
		if item, ok := p.Peek("key 7"); ok {
			t.Errorf("peer %d has what was removed: %q", i, item.Value)
		}
		if item, ok := p.Peek("key 3"); !ok || string(item.Value) != "value of key 3" {
			t.Errorf("peer %d has lost a copy", i)
		}
	}
	if c.calls.Load() != before {
		t.Error("what is stored was fetched again")
	}
	c.get(1, "key 7", "value of key 7")
}

// Terms continue above all that may have been used, though the wall clock was set back.
func TestTermsNeverFall(t *testing.T) {
	disk := newMemory()
	c := newCluster(t, 1, echo, func(_ int, cfg *Config) { cfg.Storage = disk }).settled()
	c.get(0, "key", "value of key")
	c.peers[0].stop()
	used := disk.stored().Ceiling
	c.ahead.Add(-int64(time.Hour))
	c.start(0)
	if item := c.get(0, "other", "value of other"); item.Term <= used {
		t.Errorf("term %d after one of up to %d", item.Term, used)
	}
}

// A peer that starts empty has the copies of the others, not the origin.
func TestRestartWithoutStorage(t *testing.T) {
	c := newCluster(t, 3, echo, nil).settled()
	c.get(0, "key", "value of key")
	c.everywhere(t, "key", "value of key")
	c.peers[2].stop()
	c.start(2)
	c.get(2, "key", "value of key")
	if n := c.calls.Load(); n != 1 {
		t.Errorf("fetched %d times", n)
	}
}

// A disk that hangs holds nobody up but who needs it.
func TestSlowDisk(t *testing.T) {
	disk := newMemory()
	c := newCluster(t, 3, echo, func(i int, cfg *Config) {
		if i == 0 {
			cfg.Storage = disk
		}
	}).settled()
	c.get(0, "key", "value of key")
	c.everywhere(t, "key", "value of key")
	disk.set(time.Hour, "")
	short, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if n, of, err := c.peers[1].Remove(short, protocol.OneKey, "other"); err == nil && n == of {
		t.Error("peer 0 has confirmed a removal that it cannot have stored")
	}
	if item := c.get(0, "key", "value of key"); item.From != Hit {
		t.Errorf("given as %s", item.From)
	}
	c.get(1, "cold", "value of cold")
	disk.set(0, "")
}

func TestCurve(t *testing.T) {
	keys, stranger, guest := []zmtp.CurveKey{zmtp.NewCurveKey(), zmtp.NewCurveKey()}, zmtp.NewCurveKey(), zmtp.NewCurveKey()
	c := newCluster(t, 2, echo, func(i int, cfg *Config) {
		cfg.Curve = &Curve{Key: keys[i], Clients: [][32]byte{guest.Public}, Peers: map[string][32]byte{
			cfg.Members[0].URL: keys[0].Public, cfg.Members[1].URL: keys[1].Public,
		}}
	}).settled()
	r := newRaw(t, c.members[0].API, zmtp.Curve{Secret: guest.Secret, ServerKey: keys[0].Public})
	r.send("1", "?", soon(), "key")
	r.want("1", "=", "value of key")
	c.everywhere(t, "key", "value of key")
	for what, at := range map[string]struct {
		addr string
		kind zmtp.Kind
		key  zmtp.CurveKey
	}{
		"a stranger as a client":  {c.members[0].API, zmtp.DEALER, stranger},
		"a stranger as a peer":    {c.members[0].URL, zmtp.SUB, stranger},
		"a client among peers":    {c.members[0].URL, zmtp.SUB, guest},
		"a client with a bad key": {c.members[0].API, zmtp.DEALER, zmtp.CurveKey{Secret: [32]byte{1}}},
	} {
		failed := make(chan error, 100)
		d, err := zmtp.Dial(at.addr, zmtp.Config{
			Kind: at.kind, Security: zmtp.Curve{Secret: at.key.Secret, ServerKey: keys[0].Public},
			Handler: zmtp.Handler{
				Connected: func(*zmtp.Conn) { failed <- nil },
				Failed: func(_ string, err error) {
					select {
					case failed <- err:
					default:
					}
				},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-failed; err == nil {
			t.Errorf("%s is let in", what)
		}
		_ = d.Close()
	}
}

func TestSecret(t *testing.T) {
	c := newCluster(t, 2, echo, func(i int, cfg *Config) { cfg.Secret = []byte("a secret of the cluster") }).settled()
	c.get(0, "key", "value of key")
	c.everywhere(t, "key", "value of key")
	if s := c.peers[0].Stats(); s.Malformed != 0 {
		t.Errorf("%+v", s)
	}
	other := newCluster(t, 2, echo, func(i int, cfg *Config) { cfg.Secret = fmt.Appendf(nil, "a secret of peer %d alone", i) })
	eventually(t, "its messages are refused", func() bool { return other.peers[0].Stats().Malformed > 0 })
	if _, err := other.peers[0].Get(other.ctx(), "key", GetOptions{}); err == nil {
		t.Error("a vote without the secret counts")
	}
}

// stand is something that listens where a peer should, and says what the test wants.
type stand struct {
	*zmtp.Listener
	subscribed atomic.Int64
}

func newStand(t *testing.T, addr string) *stand {
	t.Helper()
	s := &stand{}
	var err error
	s.Listener, err = zmtp.Listen(addr, zmtp.Config{Kind: zmtp.PUB, Handler: zmtp.Handler{
		Subscribed: func(*zmtp.Conn, []byte, bool) { s.subscribed.Add(1) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// What a peer says that makes no sense is counted, and nothing else happens.
func TestMalformedMessages(t *testing.T) {
	free := addrs(t, 6)
	var members []protocol.Member
	for i := range 3 {
		members = append(members, protocol.Member{URL: free[2*i], API: free[2*i+1]})
	}
	s := newStand(t, members[1].URL)
	p := run(t, Config{Self: members[0].URL, Members: members, Origin: echo})
	eventually(t, "it listens to its peer", func() bool { return s.subscribed.Load() == 2 })
	self, from := members[0].URL, members[1].URL
	huge := "\xff\xff\xff\xff\xff\xff\xff\xff"
	bad := [][]string{
		{"*"}, {"*", from}, {"*", from, ""}, {"*", from, "Z"}, {"*", from, "QQ", "key", "\x00"},
		{"*", from, "Q"}, {"*", from, "Q", "key"}, {"*", from, "Q", "", "\x00"}, {"*", from, "Q", "key", huge},
		{"*", from, "A", "key", "\x00", "\x00"}, {"*", from, "=", "key", "\x01", "\x00"}, {"*", from, "=", "key", huge, huge, "v"},
		{"*anything", from, "Q", "key", "\x00"}, {self + "9", from, "Q", "key", "\x00"}, // for others
		{"*", members[2].URL, "Q", "key", "\x00"}, // in someone else's name
		{"*", self, "Q", "key", "\x00"}, {"*", "nobody", "Q", "key", "\x00"},
		{"*", from, "h"}, {"*", from, "k", "key"}, {"*", from, "m", "\x00"},
	}
	send := func(frames []string) {
		var m zmtp.Message
		for _, f := range frames {
			m = append(m, []byte(f))
		}
		s.Publish(m)
	}
	for _, frames := range bad {
		send(frames)
	}
	eventually(t, "all are counted", func() bool { return p.Stats().Malformed == int64(len(bad)) })
	send([]string{"*", from, "="})
	send([]string{self, from, ".", "an extra frame is ignored"})
	eventually(t, "what makes sense is taken", func() bool { return p.Stats().Received == 1 })
}

// A peer's link breaks and comes back, its process ends, and starts again: the
// machine is told each.
func TestLinkStates(t *testing.T) {
	c := newCluster(t, 2, echo, nil).settled()
	link := func() string {
		v, err := c.peers[0].Cluster(c.ctx())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range v.Peers {
			if !p.Self {
				return p.Link + " " + p.Kind
			}
		}
		return ""
	}
	eventually(t, "up", func() bool { return link() == "up understudy" })
	c.peers[1].stop()
	eventually(t, "dead", func() bool { return link() == "dead understudy" })
	silent := newStand(t, c.members[1].URL) // someone listens, and says nothing
	eventually(t, "up again", func() bool { return link() == "up understudy" })
	_ = silent.Close()
	eventually(t, "dead again", func() bool { return link() == "dead understudy" })
	c.start(1)
	c.settled()
	c.get(1, "key", "value of key")
}

// gate is in between a peer and another, and can be shut: then connections break, and
// new ones are accepted and end at once.
type gate struct {
	net.Listener
	to    string
	mu    sync.Mutex
	open  bool
	conns []net.Conn

	refused atomic.Int64 // connections that ended at once
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{Listener: l, to: to, open: true}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if d := g.pass(c); d != nil {
				running.Go(func() { _, _ = io.Copy(c, d) })
				running.Go(func() { _, _ = io.Copy(d, c) })
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		g.shut(true)
		running.Wait()
	})
	return g
}

// pass is the other half of a connection; nil when it is not let through.
func (g *gate) pass(c net.Conn) net.Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open {
		if d, err := net.Dial("tcp", g.to); err == nil {
			g.conns = append(g.conns, c, d)
			return d
		}
	}
	_ = c.Close()
	g.refused.Add(1)
	return nil
}

func (g *gate) shut(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = !shut
	for _, c := range g.conns {
		_ = c.Close()
	}
	g.conns = nil
}

// Only a refused connection proves that a process has ended: not one that breaks, nor
// one that nothing answers on.
func TestOnlyRefusalIsDeath(t *testing.T) {
	s := newStand(t, "tcp://127.0.0.1:0")
	g := newGate(t, strings.TrimPrefix(s.Addr(), "tcp://"))
	free := addrs(t, 3)
	members := []protocol.Member{{URL: free[0], API: free[1]}, {URL: "tcp://" + g.Addr().String(), API: free[2]}}
	p := run(t, Config{Self: members[0].URL, Members: members, Origin: echo})
	state := func() protocol.LinkState {
		var s protocol.LinkState
		if err := p.inLoop(context.Background(), func(m *protocol.Machine) { s = m.Peers()[0].State }); err != nil {
			t.Fatal(err)
		}
		return s
	}
	eventually(t, "up", func() bool { return state() == protocol.Up })
	g.shut(true)
	eventually(t, "it has tried again", func() bool { return g.refused.Load() >= 3 })
	if s := state(); s != protocol.Down {
		t.Errorf("the link is in state %d, with a process behind it", s)
	}
	g.shut(false)
	eventually(t, "up again", func() bool { return state() == protocol.Up })
	_ = g.Close()
	g.shut(true)
	eventually(t, "dead", func() bool { return state() == protocol.Dead })
}

// A member is added and another removed by giving every peer the new list, one after
// another, while all of them serve.
func TestChangeMembers(t *testing.T) {
	disks := []*memory{newMemory(), newMemory(), newMemory(), newMemory()}
	c := newCluster(t, 3, echo, func(i int, cfg *Config) { cfg.Storage = disks[i] }).settled()
	free := addrs(t, 2)
	fourth := protocol.Member{URL: free[0], API: free[1]}
	four := append(slices.Clone(c.members), fourth)
	added := run(t, Config{
		Self: fourth.URL, Members: four, Storage: disks[3], Timings: fast(),
		Origin: func(ctx context.Context, f Fetch) (Value, error) { c.calls.Add(1); return echo(ctx, f) },
	})
	eventually(t, "a peer that nobody has in its list says so", func() bool {
		_, err := added.Get(c.ctx(), "key", GetOptions{})
		return errors.Is(err, ErrNotMember)
	})
	change := func(p *member, list []protocol.Member) {
		t.Helper()
		eventually(t, "the list is taken", func() bool {
			err := p.ChangeMembers(c.ctx(), list)
			if err != nil && !strings.Contains(err.Error(), "has just changed") && !strings.Contains(err.Error(), "still has another list") {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	all := append(slices.Clone(c.peers), added)
	for i, p := range c.peers {
		change(p, four)
		// With one list here and another there, everyone is answered.
		for _, p := range all[:3] {
			if item, err := p.Get(c.ctx(), fmt.Sprint("during ", i), GetOptions{}); err != nil || string(item.Value) != fmt.Sprint("value of during ", i) {
				t.Fatalf("%q, %v", item.Value, err)
			}
		}
	}
	connected := func(n int, who []*member) {
		t.Helper()
		eventually(t, fmt.Sprint("all have the list of ", n), func() bool {
			for _, p := range who {
				v, err := p.Cluster(c.ctx())
				if err != nil || len(v.Peers) != n || v.Connected != n || slices.ContainsFunc(v.Peers, func(v PeerView) bool { return v.List != "same" }) {
					return false
				}
			}
			return true
		})
	}
	connected(4, all)
	eventually(t, "the new member votes and fetches", func() bool {
		_, err := added.Get(c.ctx(), "new", GetOptions{})
		return err == nil
	})
	if servers := *added.clients.servers.Load(); len(servers) != 4 {
		t.Errorf("clients are told of %q", servers)
	}
	if err := all[1].ChangeMembers(c.ctx(), []protocol.Member{four[1], four[3]}); err == nil || strings.Count(err.Error(), "cache:") != 1 || !strings.Contains(err.Error(), "one member at a time") {
		t.Errorf("two members at once: %v", err)
	}
	three := four[1:]
	for _, p := range all[1:] {
		change(p, three)
	}
	connected(3, all[1:])
	// The one that is left out is not heard any more, and says so.
	eventually(t, "the removed member refuses", func() bool {
		_, err := all[0].Get(c.ctx(), "late", GetOptions{})
		v, _ := all[0].Cluster(c.ctx())
		return errors.Is(err, ErrNotMember) && strings.Contains(v.Trouble, "does not have this peer")
	})
	if got := disks[2].stored().Members.Members; len(got) != 3 {
		t.Errorf("%v is stored", got)
	}
}

// The messages of the original's peers are understood.
func TestOriginalPeer(t *testing.T) {
	free := addrs(t, 4)
	members := []protocol.Member{{URL: free[0], API: free[1]}, {URL: free[2], API: free[3]}}
	codec := wire.Codec{Self: members[1].URL}
	s := newStand(t, members[1].URL)
	heard := make(chan protocol.Message, 100)
	ear, err := zmtp.Dial(members[0].URL, zmtp.Config{
		Kind: zmtp.SUB, Subscribe: [][]byte{[]byte("*"), []byte(members[1].URL)},
		Handler: zmtp.Handler{Message: func(_ *zmtp.Conn, m zmtp.Message) {
			if _, msg, err := codec.Decode(m); err == nil {
				heard <- msg
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer ear.Close()
	p := run(t, Config{Self: members[0].URL, Members: members, Origin: echo, Mixed: true})
	eventually(t, "it listens to its peer", func() bool { return s.subscribed.Load() == 2 })
	got := make(chan error)
	go func() {
		item, err := p.Get(context.Background(), "key", GetOptions{})
		if err == nil && string(item.Value) != "value of key" {
			err = fmt.Errorf("%q", item.Value)
		}
		got <- err
	}()
	var announced, updated bool
	for !updated {
		switch m := (<-heard).(type) {
		case protocol.Question:
			s.Publish(codec.Encode(nil, members[0].URL, members[1].URL, protocol.Answer{Key: m.Key, Term: m.Term, Yes: true}))
		case protocol.Announce:
			announced = true
		case protocol.Update:
			updated = announced && string(m.Entry.Value) == "value of key"
		}
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

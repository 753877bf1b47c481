package client

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/wire"
	"github.com/understudy-ha/understudy/cache/zmtp"
)

// telling is a server that answers with its name, and discovery with a list that the
// test changes.
type telling struct {
	*script
	lists sync.Map // "now" → []string
}

func tell(t *testing.T, name string, list ...string) *telling {
	s := &telling{}
	s.lists.Store("now", list)
	s.script = serve(t, func(a asked) {
		if a.Op == wire.OpDiscover {
			list, _ := s.lists.Load("now")
			a.reply(wire.Reply{Kind: wire.ReplyServers, Servers: list.([]string)})
			return
		}
		a.value(name)
	})
	return s
}

func (s *telling) list(servers ...string) { s.lists.Store("now", servers) }

func known(c *Client) []string {
	var out []string
	for _, s := range c.Servers() {
		out = append(out, s.Addr)
	}
	return out
}

func TestDiscoverOnce(t *testing.T) {
	requests := make(chan asked, 10)
	two := serve(t, func(a asked) { a.value("two") })
	one := serve(t, nil)
	one.then(func(a asked) {
		requests <- a
		a.reply(wire.Reply{Kind: wire.ReplyServers, Servers: []string{one.address, two.address}})
	})
	c := dial(t, Config{Discover: -1}, one)
	eventually(t, "both servers", func() bool { return c.connected() == 2 })
	a := <-requests
	if len(a.frames) < 3 || string(a.frames[1]) != "*" || a.Op != wire.OpDiscover {
		t.Errorf("sent %q", a.frames)
	}
	c.tasks.Wait() // once
	if got, want := known(c), []string{one.address, two.address}; !slices.Equal(got, want) || c.Stats().Lists != 1 {
		t.Errorf("%q, want %q, %+v", got, want, c.Stats())
	}
}

// TestAdopt: a list adds and removes, and never takes away what is configured.
func TestAdopt(t *testing.T) {
	one, two, three := tell(t, "one"), tell(t, "two"), tell(t, "three")
	c := dialed(t, Config{}, one.script, two.script)
	follow := func(list ...string) {
		t.Helper()
		one.list(list...)
		two.list(list...)
		three.list(list...)
		if err := c.askServers(); err != nil {
			t.Fatal(err)
		}
	}
	follow(one.address, two.address, three.address)
	eventually(t, "the third server", func() bool { return c.connected() == 3 })
	var seen []string
	for range 3 {
		seen = append(seen, get(t, c, "foo"))
	}
	slices.Sort(seen)
	if !slices.Equal(seen, []string{"one", "three", "two"}) {
		t.Errorf("%q answered", seen)
	}

	// Two is no member any more: it is asked only when nobody else is there.
	follow(one.address, three.address)
	before := two.got()
	for range 6 {
		get(t, c, "foo")
	}
	if two.got() != before || !c.Servers()[1].Spare {
		t.Errorf("a spare server was asked: %+v", c.Servers())
	}

	// Three is removed, with its connection.
	follow(one.address)
	if got, want := known(c), []string{one.address, two.address}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	eventually(t, "the end of the connection", func() bool { return three.l.Stats().Connections == 0 })
	one.stop()
	eventually(t, "the end of the other", func() bool { return c.connected() == 1 })
	if got := get(t, c, "foo"); got != "two" {
		t.Errorf("%q answered, want the spare one", got)
	}

	// And it is no longer spare when it is in the list.
	two.list(two.address)
	if err := c.askServers(); err != nil || c.Servers()[1].Spare {
		t.Errorf("%v, %+v", err, c.Servers())
	}
}

func TestBadLists(t *testing.T) {
	s := tell(t, "one")
	c := dialed(t, Config{}, s.script)
	for why, list := range map[string][]string{
		"empty":                         {},
		"an address that is none":       {s.address, "localhost:80"},
		"another protocol":              {s.address, "udp://localhost:80"},
		"an address without host":       {s.address, "tcp://:80"},
		"an address for all":            {s.address, "tcp://*:80"},
		"port 0":                        {s.address, "tcp://h:0"},
		"a port that is none":           {s.address, "tcp://h:65536"},
		"a long address":                {s.address, "tcp://" + strings.Repeat("h", 300) + ":80"},
		"nobody who is configured":      {"tcp://elsewhere:80"},
		"more than anybody should have": slices.Repeat([]string{s.address}, maxServers+1),
	} {
		s.list(list...)
		before := c.Stats().BadLists
		if err := c.askServers(); err == nil {
			t.Errorf("%s: it was followed", why)
		}
		if !slices.Equal(known(c), []string{s.address}) || c.Servers()[0].Spare {
			t.Errorf("%s: %+v", why, c.Servers())
		}
		if got := c.Stats().BadLists - before; got != 1 {
			t.Errorf("%s: counted %d times", why, got)
		}
	}
	get(t, c, "foo")
}

// TestTwiceInAList: a server is not connected to twice.
func TestTwiceInAList(t *testing.T) {
	one, two := tell(t, "one"), tell(t, "two")
	c := dialed(t, Config{}, one.script)
	one.list(one.address, two.address, two.address, one.address)
	if err := c.askServers(); err != nil || len(c.Servers()) != 2 {
		t.Errorf("%v, %+v", err, c.Servers())
	}
}

// TestRemovedInFlight: what waits at a server that is removed is asked elsewhere.
func TestRemovedInFlight(t *testing.T) {
	arrived := make(chan struct{}, 1)
	one := tell(t, "one")
	stuck := serve(t, func(asked) { arrived <- struct{}{} })
	c := dialed(t, Config{}, one.script)
	one.list(one.address, stuck.address)
	if err := c.askServers(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both servers", func() bool { return c.connected() == 2 })
	results := make(chan string, 2)
	for range 2 {
		go func() {
			item, err := c.Get(t.Context(), "foo", Options{})
			results <- string(item.Value)
			if err != nil {
				t.Error(err)
			}
		}()
	}
	<-arrived
	if err := c.adopt([]string{one.address}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := <-results; got != "one" {
			t.Errorf("%q", got)
		}
	}
}

// TestDiscoverAgain: a list is asked for again, also after one that was refused.
func TestDiscoverAgain(t *testing.T) {
	s := tell(t, "one")
	c := dial(t, Config{Discover: minDiscover}, s.script)
	eventually(t, "a list that is refused", func() bool { return c.Stats().BadLists > 0 })
	s.list(s.address)
	eventually(t, "two lists", func() bool { return c.Stats().Lists > 1 })
}

// TestUnknownKey: with Curve, a list cannot bring in a server whose key is not known.
func TestUnknownKey(t *testing.T) {
	key, own := zmtp.NewCurveKey(), zmtp.NewCurveKey()
	c := dial(t, Config{Servers: []string{"tcp://127.0.0.1:1"}, Curve: &Curve{Key: own, Servers: map[string][32]byte{"tcp://127.0.0.1:1": key.Public}}})
	if err := c.adopt([]string{"tcp://127.0.0.1:1", "tcp://127.0.0.1:2"}); err != nil {
		t.Fatal(err)
	}
	for _, s := range *c.servers.Load() {
		if has := s.dialer != nil; has != s.configured {
			t.Errorf("%s: connecting %t", s.addr, has)
		}
	}
}

func TestConfig(t *testing.T) {
	good := []string{"tcp://localhost:1", "tcp://[::1]:2", "tcp://10.0.0.1:65535"}
	if err := (Config{Servers: good}).Validate(); err != nil {
		t.Error(err)
	}
	key := zmtp.NewCurveKey()
	for why, cfg := range map[string]Config{
		"no servers":          {},
		"too many":            {Servers: make([]string, maxServers+1)},
		"a bad address":       {Servers: []string{"localhost:1"}},
		"twice":               {Servers: []string{"tcp://h:1", "tcp://h:1"}},
		"a tiny timeout":      {Servers: good, Timeout: time.Microsecond},
		"a negative timeout":  {Servers: good, Timeout: -1},
		"eager discovery":     {Servers: good, Discover: time.Millisecond},
		"negative in flight":  {Servers: good, InFlight: -1},
		"a negative value":    {Servers: good, MaxValue: -1},
		"no key of a server":  {Servers: good, Curve: &Curve{Key: key}},
		"no key of our own":   {Servers: good[:1], Curve: &Curve{Servers: map[string][32]byte{good[0]: key.Public}}},
		"an address with nul": {Servers: []string{"tcp://h\x00:1"}},
	} {
		if err := cfg.Validate(); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", why, err)
		}
		if c, err := New(cfg); err == nil {
			c.Close()
			t.Errorf("%s: New accepted it", why)
		}
	}
}

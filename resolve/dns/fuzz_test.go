//go:build !embedded

package dns

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/understudy-ha/understudy/resolve"
)

// everything knows every name, and by turns nothing.
type everything struct{ holders []resolve.Holder }

func (e everything) Find(n resolve.Name) (resolve.Answer, bool, error) {
	switch len(n.Of) % 3 {
	case 0:
		return resolve.Answer{}, len(n.Of)%2 == 0, resolve.ErrUnknown
	case 1:
		return resolve.Answer{Name: n, TTL: time.Second, Holders: []resolve.Holder{{Address: n.Of, Name: n.Of}}}, false, nil
	}
	return resolve.Answer{Name: n, TTL: time.Second, Holders: e.holders}, false, nil
}

// FuzzAnswer gives whatever bytes can be read as a message to a server: it does not panic, and
// what it answers can be sent.
func FuzzAnswer(f *testing.F) {
	s, err := New(Config{Source: everything{[]resolve.Holder{{Address: "10.0.0.1:80"}, {Address: "[fd00::1]:80"}, {Address: `\.x:1`}, {Address: "web:80", Name: `\`}}}, Zone: "z."})
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{"z.", "ns.z.", "role.z.", "bb.role.z.", `a\.b\000\255.role.z.`, "_a._tcp.bb.primary.z.", "ip-10-0-0-1.bb.role.z.", "ip--.bb.replica.z.", "."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeTXT, dns.TypeANY, dns.TypeSOA} {
			q := new(dns.Msg)
			q.SetQuestion(name, qtype)
			q.SetEdns0(600, true)
			b, _ := q.Pack()
			f.Add(b, true)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, udp bool) {
		q := new(dns.Msg)
		_ = q.Unpack(b) // what could be read of it
		m := s.answer(q, udp)
		if m == nil {
			return
		}
		out, err := m.Pack()
		if err != nil {
			// A name that was read but cannot be written again is the library's.
			for _, asked := range q.Question {
				if _, ok := dns.IsDomainName(asked.Name); ok && len(q.Question) == 1 && len(asked.Name) < 100 {
					t.Fatalf("%v: %v", q, err)
				}
			}
			return
		}
		if udp && len(out) > maxUDP {
			t.Fatalf("%d bytes by UDP", len(out))
		}
		if m.Id != q.Id || !m.Response {
			t.Fatalf("answer %v to %v", m, q)
		}
	})
}

func TestLabelsOf(t *testing.T) {
	for in, want := range map[string]string{
		`a`: "a", `a\.b`: "a.b", `\032`: " ", `\195\159`: "ß", `\1`: "1", `\\`: `\`, `\25`: "25",
	} {
		if got := labelsOf(in + ".zone."); !slices.Equal(got, []string{want, "zone"}) {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// writer takes what is answered to a source.
type writer struct {
	dns.ResponseWriter
	from    net.Addr
	whole   int
	dropped bool
}

func (w *writer) RemoteAddr() net.Addr { return w.from }
func (w *writer) Close() error         { w.dropped = true; return nil }
func (w *writer) WriteMsg(m *dns.Msg) error {
	if !m.Truncated {
		w.whole++
	}
	return nil
}

// Who is named in a flood by UDP can still ask by TCP, and not without a limit.
func TestFloodInAnothersName(t *testing.T) {
	s, err := New(Config{Source: everything{}, Rate: 10})
	if err != nil {
		t.Fatal(err)
	}
	q := new(dns.Msg)
	q.SetQuestion("billing.role."+DefaultZone, dns.TypeA)
	ip := net.IPv4(192, 0, 2, 1)
	udp, tcp := &writer{from: &net.UDPAddr{IP: ip}}, &writer{from: &net.TCPAddr{IP: ip}}
	for range 500 {
		s.handle(udp, q)
	}
	s.handle(tcp, q)
	if udp.whole < 20 || udp.whole > 400 || tcp.whole != 1 || tcp.dropped {
		t.Errorf("%d whole answers by UDP, %d by TCP, closed %v", udp.whole, tcp.whole, tcp.dropped)
	}
	for range 500 {
		s.handle(tcp, q)
	}
	if !tcp.dropped {
		t.Error("TCP has no limit")
	}
}

func TestLimiter(t *testing.T) {
	l := newLimiter(10)
	now := time.Unix(1000, 0)
	one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	count := func(from netip.Addr, n int) (got [3]int) {
		for range n {
			got[l.take(from, now)]++
		}
		return got
	}
	if got := count(one, 30); got != [3]int{20, 5, 5} {
		t.Errorf("a burst: %v", got)
	}
	if got := count(other, 20); got != [3]int{20, 0, 0} {
		t.Errorf("another source: %v", got)
	}
	if got := count(netip.MustParseAddr("::ffff:192.0.2.1"), 2); got[pass] != 0 {
		t.Errorf("the same source as IPv6: %v", got)
	}
	if got := count(netip.MustParseAddr("127.0.0.1"), 100); got[pass] != 100 {
		t.Errorf("loopback: %v", got)
	}
}

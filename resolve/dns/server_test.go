//go:build !embedded

package dns_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	wire "github.com/miekg/dns"
	"go.uber.org/goleak"

	"github.com/understudy-ha/understudy/resolve"
	"github.com/understudy-ha/understudy/resolve/dns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const zone = "ha.internal."

// known is a source of answers that a test writes.
type known struct {
	mu    sync.Mutex
	names map[string]resolve.Answer // by Name.String() in lower case
	err   error
}

func (k *known) Find(n resolve.Name) (resolve.Answer, bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return resolve.Answer{}, false, k.err
	}
	key := resolve.Fold(n.String())
	if a, ok := k.names[key]; ok {
		return a, false, nil
	}
	above := false
	for name := range k.names {
		kind, of, _ := strings.Cut(name, "/")
		above = above || kind == string(n.Kind) && strings.HasSuffix(of, "."+resolve.Fold(n.Of))
	}
	return resolve.Answer{}, above, fmt.Errorf("%w: %s", resolve.ErrUnknown, n)
}

func (k *known) set(name string, ttl time.Duration, addresses ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, err := resolve.ParseName(name)
	if err != nil {
		panic(err)
	}
	a := resolve.Answer{Name: n, TTL: ttl}
	for i, address := range addresses {
		a.Holders = append(a.Holders, resolve.Holder{ID: fmt.Sprint("id", i+1), Name: fmt.Sprint("web-", i+1), Address: address, Term: int64(i + 17)})
	}
	k.names[resolve.Fold(name)] = a
}

func (k *known) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

func names() *known {
	k := &known{names: map[string]resolve.Answer{}}
	k.set("role/billing", 3900*time.Millisecond, "10.0.0.1:8080")
	k.set("role/six", 3*time.Second, "[fd00::1]:80")
	k.set("role/named", 3*time.Second, "web-1.example.com:8080")
	k.set("role/empty", time.Second)
	k.set("role/brief", 400*time.Millisecond, "10.0.0.1")
	k.set("role/many", 3*time.Second, "10.0.0.1:80", "10.0.0.2:80", "[fd00::1]:80", "web-1.example.com:80")
	k.set("role/a.b.deep", 3*time.Second, "10.0.0.9:1")
	k.set("role/two words", 3*time.Second, "10.0.0.3:80")
	k.set("role/straße", 3*time.Second, "10.0.0.4:80")
	k.set("role/odd", 3*time.Second, "unix:/run/x.sock")
	k.set("role/back", 3*time.Second, `c:\x "y"`)
	k.set("role/web", 3*time.Second, "https://10.0.0.5/path")
	k.set("primary/orders", 4*time.Second, "10.0.1.1:6379")
	var all []string
	for i := range 60 {
		all = append(all, fmt.Sprintf("10.1.0.%d:6379", i+1))
	}
	k.set("replica/orders", 2*time.Second, all...)
	return k
}

// serve starts a server on loopback and returns its address, the same for UDP and TCP.
func serve(t *testing.T, cfg dns.Config) (string, *dns.Server) {
	t.Helper()
	cfg.Zone, cfg.Address = zone, netip.MustParseAddr("10.9.9.9")
	s, err := dns.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var packets net.PacketConn
	var listener net.Listener
	for try := 0; ; try++ {
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		if packets, err = net.ListenPacket("udp", listener.Addr().String()); err == nil {
			break
		}
		listener.Close()
		if try > 20 {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, packets, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return listener.Addr().String(), s
}

func ask(t *testing.T, network, server string, q *wire.Msg) *wire.Msg {
	t.Helper()
	c := &wire.Client{Net: network, Timeout: time.Minute}
	m, _, err := c.Exchange(q, server)
	if err != nil {
		t.Fatalf("%s %v: %v", network, q.Question, err)
	}
	return m
}

func question(name string, qtype uint16) *wire.Msg {
	q := new(wire.Msg)
	q.SetQuestion(name, qtype)
	return q
}

func TestAnswers(t *testing.T) {
	server, _ := serve(t, dns.Config{Source: names()})
	const soa = "SOA ns.ha.internal."
	for _, c := range []struct {
		name  string
		qtype uint16
		rcode int
		want  string // records without header times, or TTL where it matters
	}{
		{"billing.role.ha.internal.", wire.TypeA, 0, "3 A 10.0.0.1"},
		{"BiLLing.rOLe.HA.internal.", wire.TypeA, 0, "3 A 10.0.0.1"},
		{"billing.role.ha.internal.", wire.TypeAAAA, 0, soa},
		{"billing.role.ha.internal.", wire.TypeMX, 0, soa},
		{"billing.role.ha.internal.", wire.TypeSRV, 0, "3 SRV 0 1 8080 ip-10-0-0-1.billing.role.ha.internal. + 3 A 10.0.0.1"},
		{"_http._tcp.billing.role.ha.internal.", wire.TypeSRV, 0, "3 SRV 0 1 8080 ip-10-0-0-1.billing.role.ha.internal. + 3 A 10.0.0.1"},
		{"_http._tcp.billing.role.ha.internal.", wire.TypeA, 0, soa},
		{"_tcp.billing.role.ha.internal.", wire.TypeSRV, 0, soa},
		{"ip-10-0-0-1.billing.role.ha.internal.", wire.TypeA, 0, "3 A 10.0.0.1"},
		{"ip-10-0-0-2.billing.role.ha.internal.", wire.TypeA, wire.RcodeNameError, soa},
		{"billing.role.ha.internal.", wire.TypeTXT, 0, `3 TXT "term=17" "holder=web-1" "address=10.0.0.1:8080"`},
		{"six.role.ha.internal.", wire.TypeAAAA, 0, "3 AAAA fd00::1"},
		{"six.role.ha.internal.", wire.TypeSRV, 0, "3 SRV 0 1 80 ip-fd00-0000-0000-0000-0000-0000-0000-0001.six.role.ha.internal. + 3 AAAA fd00::1"},
		{"ip-fd00-0000-0000-0000-0000-0000-0000-0001.six.role.ha.internal.", wire.TypeAAAA, 0, "3 AAAA fd00::1"},
		{"named.role.ha.internal.", wire.TypeA, 0, "3 CNAME web-1.example.com."},
		{"named.role.ha.internal.", wire.TypeCNAME, 0, "3 CNAME web-1.example.com."},
		{"named.role.ha.internal.", wire.TypeSRV, 0, "3 SRV 0 1 8080 web-1.example.com."},
		{"many.role.ha.internal.", wire.TypeA, 0, "3 A 10.0.0.1 3 A 10.0.0.2"},
		{"empty.role.ha.internal.", wire.TypeA, 0, soa},
		{"brief.role.ha.internal.", wire.TypeA, 0, "0 A 10.0.0.1"},
		{"brief.role.ha.internal.", wire.TypeSRV, 0, soa},
		{"a.b.deep.role.ha.internal.", wire.TypeA, 0, "3 A 10.0.0.9"},
		{"deep.role.ha.internal.", wire.TypeA, 0, soa},
		{"eep.role.ha.internal.", wire.TypeA, wire.RcodeNameError, soa},
		{`two\ words.role.ha.internal.`, wire.TypeA, 0, "3 A 10.0.0.3"},
		{`stra\195\159e.role.ha.internal.`, wire.TypeA, 0, "3 A 10.0.0.4"},
		{"odd.role.ha.internal.", wire.TypeA, 0, soa},
		{"back.role.ha.internal.", wire.TypeTXT, 0, `3 TXT "term=17" "holder=web-1" "address=c:\\x \"y\""`},
		{"web.role.ha.internal.", wire.TypeSRV, 0, "3 SRV 0 1 443 ip-10-0-0-5.web.role.ha.internal. + 3 A 10.0.0.5"},
		{"orders.primary.ha.internal.", wire.TypeTXT, 0, `4 TXT "epoch=17" "holder=web-1" "address=10.0.1.1:6379"`},
		{"nobody.role.ha.internal.", wire.TypeA, wire.RcodeNameError, soa},
		{"x.billing.role.ha.internal.", wire.TypeA, wire.RcodeNameError, soa},
		{"role.ha.internal.", wire.TypeA, 0, soa},
		{"other.ha.internal.", wire.TypeA, wire.RcodeNameError, soa},
		{"ha.internal.", wire.TypeSOA, 0, "3600 " + soa},
		{"ha.internal.", wire.TypeNS, 0, "3600 NS ns.ha.internal. + 3600 A 10.9.9.9"},
		{"ha.internal.", wire.TypeA, 0, soa},
		{"ns.ha.internal.", wire.TypeA, 0, "3600 A 10.9.9.9"},
		{"example.com.", wire.TypeA, wire.RcodeRefused, ""},
		{"aha.internal.", wire.TypeA, wire.RcodeRefused, ""},
		{".", wire.TypeNS, wire.RcodeRefused, ""},
	} {
		for _, network := range []string{"udp", "tcp"} {
			m := ask(t, network, server, question(c.name, c.qtype))
			got := shown(m.Answer)
			if len(m.Extra) > 0 {
				got += " + " + shown(m.Extra)
			}
			if len(m.Answer) == 0 && len(m.Ns) > 0 {
				got = shown(m.Ns)
				if !strings.HasPrefix(got, "1 SOA") || m.Ns[0].(*wire.SOA).Minttl != 1 {
					t.Errorf("%s %s: nothing is to be remembered for one second: %s", c.name, wire.TypeToString[c.qtype], got)
				}
			}
			if m.Rcode != c.rcode || !strings.Contains(got, c.want) || (c.want == "") != (got == "") {
				t.Errorf("%s %s %s: %s %q, want %s %q", network, c.name, wire.TypeToString[c.qtype],
					wire.RcodeToString[m.Rcode], got, wire.RcodeToString[c.rcode], c.want)
			}
			if m.Question[0].Name != c.name || len(m.Answer) > 0 && m.Answer[0].Header().Name != c.name {
				t.Errorf("%s: the case of letters was not kept: %v", c.name, m)
			}
			if m.RecursionAvailable || m.Authoritative != (c.rcode != wire.RcodeRefused) {
				t.Errorf("%s: recursion %v, authoritative %v", c.name, m.RecursionAvailable, m.Authoritative)
			}
		}
	}
}

// shown is records as "TTL TYPE data".
func shown(all []wire.RR) string {
	var out []string
	for _, r := range all {
		h := r.Header()
		data := strings.TrimPrefix(r.String(), h.String())
		out = append(out, fmt.Sprint(h.Ttl, " ", wire.TypeToString[h.Rrtype], " ", data))
	}
	return strings.Join(out, " ")
}

func TestStaleIsServfail(t *testing.T) {
	k := names()
	server, s := serve(t, dns.Config{Source: k})
	for _, err := range []error{resolve.ErrStale, resolve.ErrAmbiguous, errors.New("anything")} {
		k.fail(fmt.Errorf("%w: because", err))
		q := question("billing.role.ha.internal.", wire.TypeA)
		q.SetEdns0(1232, false)
		m := ask(t, "udp", server, q)
		if m.Rcode != wire.RcodeServerFailure || len(m.Answer) > 0 || len(m.Ns) > 0 {
			t.Errorf("%v: %v", err, m)
		}
		if o := m.IsEdns0().Option; len(o) != 1 || strings.Contains(o[0].String(), "because") {
			t.Errorf("%v: options %v", err, o)
		}
	}
	if got := s.Stats().Failed; got != 3 {
		t.Errorf("%d counted as failed", got)
	}
}

func TestSizes(t *testing.T) {
	server, _ := serve(t, dns.Config{Source: names()})
	q := func(size uint16) *wire.Msg {
		q := question("orders.replica.ha.internal.", wire.TypeSRV)
		if size > 0 {
			q.SetEdns0(size, false)
		}
		return q
	}
	for size, most := range map[uint16]int{0: 512, 100: 512, 700: 700, 4096: 1232} {
		c := &wire.Client{Timeout: time.Minute, UDPSize: 4096}
		m, _, err := c.Exchange(q(size), server)
		if err != nil {
			t.Fatal(err)
		}
		m.Compress = true
		if !m.Truncated || m.Len() > most || m.Len() < most/2 {
			t.Errorf("EDNS size %d: %d bytes, truncated %v", size, m.Len(), m.Truncated)
		}
	}
	if m := ask(t, "tcp", server, q(0)); m.Truncated || len(m.Answer) != 60 {
		t.Errorf("TCP: %d records, truncated %v", len(m.Answer), m.Truncated)
	}
}

func TestRefusals(t *testing.T) {
	server, _ := serve(t, dns.Config{Source: names()})
	name := "billing.role.ha.internal."
	version := question(name, wire.TypeA)
	version.SetEdns0(1232, false)
	version.IsEdns0().SetVersion(1)
	chaos := question("version.bind.", wire.TypeTXT)
	chaos.Question[0].Qclass = wire.ClassCHAOS
	notify := question(name, wire.TypeSOA)
	notify.Opcode = wire.OpcodeNotify
	update := question(name, wire.TypeSOA)
	update.Opcode = wire.OpcodeUpdate
	for what, c := range map[string]struct {
		q    *wire.Msg
		want int
	}{
		"version":  {version, wire.RcodeBadVers},
		"chaos":    {chaos, wire.RcodeRefused},
		"notify":   {notify, wire.RcodeNotImplemented},
		"update":   {update, wire.RcodeNotImplemented},
		"transfer": {question(zone, wire.TypeAXFR), wire.RcodeRefused},
	} {
		if m := ask(t, "tcp", server, c.q); m.Rcode != c.want || len(m.Answer) > 0 {
			t.Errorf("%s: %s", what, wire.RcodeToString[m.Rcode])
		}
	}
	if m := ask(t, "udp", server, question("billing.role.ha.internal.", wire.TypeANY)); len(m.Answer) != 2 {
		t.Errorf("ANY: %v", m.Answer)
	}
	for name, want := range map[string]int{zone: 1, "ns." + zone: 1, "role." + zone: 0} {
		if m := ask(t, "udp", server, question(name, wire.TypeANY)); m.Rcode != wire.RcodeSuccess || len(m.Answer) != want {
			t.Errorf("ANY %s: %v", name, m)
		}
	}
}

// TestResolver asks as a Go program does.
func TestResolver(t *testing.T) {
	server, _ := serve(t, dns.Config{Source: names()})
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server)
	}}
	hosts, err := r.LookupHost(t.Context(), "billing.role.ha.internal.")
	if diff := cmp.Diff([]string{"10.0.0.1"}, hosts); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	_, srv, err := r.LookupSRV(t.Context(), "http", "tcp", "billing.role.ha.internal.")
	if err != nil || len(srv) != 1 || srv[0].Port != 8080 {
		t.Errorf("%v %v", srv, err)
	}
	if hosts, err = r.LookupHost(t.Context(), srv[0].Target); err != nil || hosts[0] != "10.0.0.1" {
		t.Errorf("%v %v", hosts, err)
	}
	_, srv, err = r.LookupSRV(t.Context(), "", "", "orders.replica.ha.internal.") // falls back to TCP
	if err != nil || len(srv) != 60 {
		t.Errorf("%d replicas, %v", len(srv), err)
	}
	var failed *net.DNSError
	if _, err := r.LookupHost(t.Context(), "nobody.role.ha.internal."); !errors.As(err, &failed) || !failed.IsNotFound {
		t.Errorf("unknown: %v", err)
	}
}

// TestDig asks with the program that people use.
func TestDig(t *testing.T) {
	dig, err := exec.LookPath("dig")
	if err != nil {
		t.Skip("dig is not installed (bind9-dnsutils)")
	}
	server, _ := serve(t, dns.Config{Source: names()})
	host, port, _ := net.SplitHostPort(server)
	for _, c := range []struct{ args, want string }{
		{"+short billing.role.ha.internal", "10.0.0.1"},
		{"+short -t SRV orders.primary.ha.internal", "0 1 6379 ip-10-0-1-1.orders.primary.ha.internal."},
		{"+short -t TXT billing.role.ha.internal", `"term=17" "holder=web-1" "address=10.0.0.1:8080"`},
		{"-t SRV orders.replica.ha.internal", "status: NOERROR"},
		{"+tcp empty.role.ha.internal", "status: NOERROR"},
		{"nobody.role.ha.internal", "status: NXDOMAIN"},
		{"+norecurse example.com", "status: REFUSED"},
		{"+edns=1 +noednsneg ha.internal", "status: BADVERS"},
		{"+noedns ha.internal NS", "ns.ha.internal."},
	} {
		args := append([]string{"@" + host, "-p", port, "+tries=2", "+time=30"}, strings.Fields(c.args)...)
		out, err := exec.CommandContext(t.Context(), dig, args...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) || strings.Contains(string(out), "malformed") {
			t.Errorf("dig %s: %v\n%s", c.args, err, out)
		}
	}
}

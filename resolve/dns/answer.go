//go:build !embedded

package dns

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/understudy-ha/understudy/resolve"
)

const (
	maxUDP      = 1232 // bytes of an answer that no network cuts into pieces
	authority   = 3600 // TTL of what does not change: SOA and NS
	maxHolders  = 64   // holders in one answer
	maxTXTBytes = 255
)

// answer makes the answer to a query; nil where nothing is to be said. It keeps the name as it
// was written, also the case of its letters.
func (s *Server) answer(q *dns.Msg, udp bool) *dns.Msg {
	if q == nil || q.Response {
		return nil
	}
	m := new(dns.Msg)
	m.SetReply(q)
	m.RecursionAvailable, m.Compress = false, true
	opt := q.IsEdns0()
	size := dns.MaxMsgSize
	if udp {
		size = dns.MinMsgSize
	}
	if opt != nil {
		m.SetEdns0(maxUDP, false)
		if udp {
			size = min(max(int(opt.UDPSize()), dns.MinMsgSize), maxUDP)
		}
	}
	switch {
	case opt != nil && opt.Version() != 0:
		m.Rcode = dns.RcodeBadVers
	case q.Opcode != dns.OpcodeQuery:
		m.Rcode = dns.RcodeNotImplemented
	case len(q.Question) != 1:
		m.Rcode = dns.RcodeFormatError
	default:
		s.fill(m, q.Question[0])
	}
	m.Truncate(size)
	return m
}

// fill answers one question.
func (s *Server) fill(m *dns.Msg, q dns.Question) {
	at := locate(q.Name, s.cfg.Zone)
	if at.place == outside || q.Qclass != dns.ClassINET || q.Qtype == dns.TypeAXFR || q.Qtype == dns.TypeIXFR {
		m.Rcode = dns.RcodeRefused
		return
	}
	m.Authoritative = true
	switch at.place {
	case apex:
		switch q.Qtype {
		case dns.TypeSOA, dns.TypeANY:
			m.Answer = []dns.RR{s.soa(q.Name, authority)}
			return
		case dns.TypeNS:
			m.Answer = []dns.RR{&dns.NS{Hdr: header(q.Name, dns.TypeNS, authority), Ns: "ns." + s.cfg.Zone}}
			m.Extra = append(addresses("ns."+s.cfg.Zone, dns.TypeANY, authority, s.cfg.Address), m.Extra...)
			return
		}
	case server:
		m.Answer = addresses(q.Name, q.Qtype, authority, s.cfg.Address)
	case nowhere:
		m.Rcode = dns.RcodeNameError
	case leaf:
		s.leaf(m, q, at)
	}
	if len(m.Answer) == 0 && (m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError) {
		m.Ns = []dns.RR{s.soa(s.cfg.Zone, seconds(resolve.Empty))}
	}
}

// leaf answers for a role or a shard.
func (s *Server) leaf(m *dns.Msg, q dns.Question, at asked) {
	a, above, err := s.cfg.Source.Find(at.name)
	if errors.Is(err, resolve.ErrUnknown) && !above {
		if inner, ok := at.host(); ok {
			at = inner
			if a, _, err = s.cfg.Source.Find(at.name); err == nil {
				a.Holders = slices.DeleteFunc(slices.Clone(a.Holders), func(h resolve.Holder) bool { return read(h.Address).ip != at.address })
				if len(a.Holders) == 0 {
					err = resolve.ErrUnknown
				}
			}
		}
	}
	switch {
	case err == nil && at.proto:
	case err == nil:
		s.records(m, q, at, a)
	case errors.Is(err, resolve.ErrUnknown):
		if !above {
			m.Rcode = dns.RcodeNameError
		}
	default:
		m.Rcode, m.Authoritative = dns.RcodeServerFailure, false
		if opt := m.IsEdns0(); opt != nil {
			opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeNotReady, ExtraText: reason(err)})
		}
	}
}

// reason for people, without what a store said.
func reason(err error) string {
	if errors.Is(err, resolve.ErrAmbiguous) {
		return "names differ only in the case of letters"
	}
	return "what was known cannot be believed any more"
}

// records of the holders.
func (s *Server) records(m *dns.Msg, q dns.Question, at asked, a resolve.Answer) {
	ttl := seconds(a.TTL)
	holders := a.Holders[:min(len(a.Holders), maxHolders)]
	if at.address.IsValid() {
		m.Answer = addresses(q.Name, q.Qtype, ttl, at.address)
		return
	}
	wantSRV, wantTXT := q.Qtype == dns.TypeSRV || q.Qtype == dns.TypeANY, q.Qtype == dns.TypeTXT || q.Qtype == dns.TypeANY
	for _, h := range holders {
		to := read(h.Address)
		switch {
		case wantSRV && to.port != 0 && (to.ip.IsValid() || to.host != ""):
			s.service(m, q.Name, at, to, ttl)
		case !at.service && !wantSRV && !wantTXT && to.ip.IsValid():
			m.Answer = append(m.Answer, addresses(q.Name, q.Qtype, ttl, to.ip)...)
		case !at.service && !wantSRV && !wantTXT && to.host != "" && len(holders) == 1:
			m.Answer = append(m.Answer, &dns.CNAME{Hdr: header(q.Name, dns.TypeCNAME, ttl), Target: to.host})
		}
		if wantTXT {
			m.Answer = append(m.Answer, &dns.TXT{Hdr: header(q.Name, dns.TypeTXT, ttl), Txt: facts(at.name.Kind, h)})
		}
	}
	m.Answer = dedupe(m.Answer)
}

// service adds one SRV, and the address that it leads to.
func (s *Server) service(m *dns.Msg, owner string, at asked, to target, ttl uint32) {
	host := to.host
	if host == "" {
		base := owner
		if at.service {
			base = strings.Join(dns.SplitDomainName(owner)[2:], ".") + "."
		}
		host = hostName(to.ip, base)
		if _, ok := dns.IsDomainName(host); !ok {
			return
		}
		m.Extra = append(addresses(host, dns.TypeANY, ttl, to.ip), m.Extra...)
	}
	m.Answer = append(m.Answer, &dns.SRV{Hdr: header(owner, dns.TypeSRV, ttl), Priority: 0, Weight: 1, Port: to.port, Target: host})
}

// target is an address as a holder told it.
type target struct {
	ip   netip.Addr // the zero one where it is a name
	host string     // with a dot at its end; "" where it is an IP address or nothing that DNS can say
	port uint16     // 0 where none is told
}

func read(address string) target {
	host, port, ok := resolve.SplitAddress(address)
	if !ok {
		return target{}
	}
	number, _ := strconv.ParseUint(port, 10, 16)
	t := target{port: uint16(number)}
	if ip, err := netip.ParseAddr(host); err == nil {
		t.ip = ip.WithZone("").Unmap()
	} else if name := strings.TrimSuffix(host, "."); isHostName(name) {
		t.host = name + "."
	}
	return t
}

// facts about a holder, as the strings of a TXT record.
func facts(kind resolve.Kind, h resolve.Holder) []string {
	var out []string
	switch kind {
	case resolve.Role:
		out = append(out, fmt.Sprintf("term=%d", h.Term))
	case resolve.Primary:
		out = append(out, fmt.Sprintf("epoch=%d", h.Term))
	}
	for _, f := range []string{"holder=" + cmp.Or(h.Name, h.ID), "address=" + h.Address} {
		f = f[:min(len(f), maxTXTBytes)]
		out = append(out, strings.ReplaceAll(f, `\`, `\\`)) // it is read as text with escapes
	}
	return out
}

// addresses are the A or AAAA record of an address, as far as the type asks for it.
func addresses(owner string, qtype uint16, ttl uint32, ip netip.Addr) []dns.RR {
	switch {
	case ip.Is4() && (qtype == dns.TypeA || qtype == dns.TypeANY):
		return []dns.RR{&dns.A{Hdr: header(owner, dns.TypeA, ttl), A: ip.AsSlice()}}
	case ip.Is6() && (qtype == dns.TypeAAAA || qtype == dns.TypeANY):
		return []dns.RR{&dns.AAAA{Hdr: header(owner, dns.TypeAAAA, ttl), AAAA: ip.AsSlice()}}
	}
	return nil
}

// dedupe leaves one of records that are the same.
func dedupe(all []dns.RR) []dns.RR {
	var out []dns.RR
	for _, r := range all {
		if !slices.ContainsFunc(out, func(o dns.RR) bool { return dns.IsDuplicate(o, r) }) {
			out = append(out, r)
		}
	}
	return out
}

func (s *Server) soa(owner string, ttl uint32) dns.RR {
	return &dns.SOA{
		Hdr: header(owner, dns.TypeSOA, ttl), Ns: "ns." + s.cfg.Zone, Mbox: "hostmaster." + s.cfg.Zone,
		Serial: s.serial, Refresh: authority, Retry: 600, Expire: 86400, Minttl: seconds(resolve.Empty),
	}
}

func header(owner string, rrtype uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: owner, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttl}
}

// seconds rounds down: what lives for less than one is not to be remembered.
func seconds(d time.Duration) uint32 { return uint32(max(0, d) / time.Second) }

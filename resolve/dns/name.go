package dns

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/understudy-ha/understudy/resolve"
)

// place is where in the zone a name lies.
type place int

const (
	outside place = iota
	apex          // the zone itself
	server        // ns.<zone>
	branch        // role.<zone> and its neighbours, which have no records
	leaf          // a name
	nowhere       // in the zone, and nothing can be there
)

// asked is what a query's name stands for.
type asked struct {
	place place
	name  resolve.Name
	// service: it was asked under _service._proto. proto: it is what lies between, _proto.<name>,
	// which has no records.
	service, proto bool
	// address is that of ip-….<name>, the zero one if the name was not asked so.
	address netip.Addr
}

// locate reads a name, as it stands in a message, for a zone in lower case.
func locate(qname, zone string) asked {
	if !dns.IsSubDomain(zone, qname) {
		return asked{}
	}
	labels := dns.SplitDomainName(qname)
	labels = labels[:len(labels)-dns.CountLabel(zone)]
	for i, l := range labels {
		labels[i] = unescape(l)
	}
	n := len(labels)
	switch {
	case n == 0:
		return asked{place: apex}
	case n == 1 && strings.EqualFold(labels[0], "ns"):
		return asked{place: server}
	}
	kind := resolve.Kind(resolve.Fold(labels[n-1]))
	if !slices.Contains([]resolve.Kind{resolve.Role, resolve.Primary, resolve.Replica}, kind) {
		return asked{place: nowhere}
	}
	labels = labels[:n-1]
	if len(labels) == 0 {
		return asked{place: branch}
	}
	q := asked{place: leaf}
	switch {
	case len(labels) > 2 && strings.HasPrefix(labels[0], "_") && isProto(labels[1]):
		q.service, labels = true, labels[2:]
	case len(labels) > 1 && isProto(labels[0]):
		q.proto, labels = true, labels[1:]
	}
	q.name = resolve.Name{Kind: kind, Of: strings.Join(labels, ".")}
	return q
}

func isProto(label string) bool {
	return strings.EqualFold(label, "_tcp") || strings.EqualFold(label, "_udp")
}

// host splits ip-10-0-0-1.NAME; ok is false for what is none.
func (q asked) host() (inner asked, ok bool) {
	first, rest, cut := strings.Cut(q.name.Of, ".")
	text, is := strings.CutPrefix(resolve.Fold(first), "ip-")
	if !cut || !is || q.service || q.proto {
		return asked{}, false
	}
	for _, mark := range []string{".", ":"} {
		if ip, err := netip.ParseAddr(strings.ReplaceAll(text, "-", mark)); err == nil {
			return asked{place: leaf, name: resolve.Name{Kind: q.name.Kind, Of: rest}, address: ip}, true
		}
	}
	return asked{}, false
}

// hostName is the name under which the address of a holder is found. A label must not end in a
// hyphen, so that all zeros of an IPv6 address are written out.
func hostName(ip netip.Addr, owner string) string {
	text := ip.String()
	if ip.Is6() {
		text = ip.StringExpanded()
	}
	return "ip-" + strings.NewReplacer(".", "-", ":", "-").Replace(text) + "." + owner
}

// unescape turns a label as it is printed into its bytes.
func unescape(label string) string {
	if !strings.Contains(label, `\`) {
		return label
	}
	var out strings.Builder
	for i := 0; i < len(label); i++ {
		c := label[i]
		if c == '\\' && i+1 < len(label) {
			i++
			c = label[i]
			if digit(c) && i+2 < len(label) && digit(label[i+1]) && digit(label[i+2]) {
				c = (c-'0')*100 + (label[i+1]-'0')*10 + label[i+2] - '0'
				i += 2
			}
		}
		out.WriteByte(c)
	}
	return out.String()
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

//go:build !embedded

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
	labels := labelsOf(qname)
	n := len(labels) - dns.CountLabel(zone)
	if n < 0 {
		return asked{}
	}
	labels = labels[:n]
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

// labelsOf are the labels of a name as their bytes, without the escapes with which it is printed; nil if it is no name.
func labelsOf(name string) (out []string) {
	wire := make([]byte, 256)
	if _, err := dns.PackDomainName(name, wire, 0, nil, false); err != nil {
		return nil
	}
	for at := 0; wire[at] > 0; at += 1 + int(wire[at]) {
		out = append(out, string(wire[at+1:at+1+int(wire[at])]))
	}
	return out
}

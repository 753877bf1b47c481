package resolve_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/resolve"
	"github.com/understudy-ha/understudy/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func holder(name string, expires time.Duration) elect.Primary {
	return elect.Primary{Role: "billing", ID: "id-" + name, Name: name, Address: name + ":80", Term: 7, ExpiresIn: expires}
}

func TestOfRole(t *testing.T) {
	const most = 5 * time.Second
	for name, c := range map[string]struct {
		holders []elect.Primary
		age     time.Duration
		want    []string
		ttl     time.Duration
		err     error
	}{
		"fresh":                    {[]elect.Primary{holder("a", 9*time.Second)}, 0, []string{"a"}, most, nil},
		"most counts from reading": {[]elect.Primary{holder("a", 9*time.Second)}, 2 * time.Second, []string{"a"}, 3 * time.Second, nil},
		"the lease ends before":    {[]elect.Primary{holder("a", 3*time.Second)}, 2 * time.Second, []string{"a"}, time.Second, nil},
		"the lease is over":        {[]elect.Primary{holder("a", 2*time.Second)}, 2 * time.Second, nil, 0, resolve.ErrStale},
		"the reading is old":       {[]elect.Primary{holder("a", 9*time.Second)}, most, nil, 0, resolve.ErrStale},
		"vacant":                   {nil, 0, nil, time.Second, nil},
		"vacant, nearly old":       {nil, 4500 * time.Millisecond, nil, 500 * time.Millisecond, nil},
		"vacant, old":              {nil, most, nil, 0, resolve.ErrStale},
		"of another boot":          {[]elect.Primary{holder("a", 0)}, 0, nil, time.Second, nil},
		"two, one over":            {[]elect.Primary{holder("a", time.Second), holder("b", 4*time.Second)}, 2 * time.Second, []string{"b"}, 2 * time.Second, nil},
	} {
		a, err := resolve.OfRole(elect.Role{Name: "billing", Primary: c.holders}, c.age, most)
		check(t, name, a, err, c.want, c.ttl, c.err)
	}
}

func check(t *testing.T, name string, a resolve.Answer, err error, want []string, ttl time.Duration, wantErr error) {
	t.Helper()
	var got []string
	for _, h := range a.Holders {
		got = append(got, h.Address[:1])
	}
	if diff := cmp.Diff(want, got); diff != "" || a.TTL != ttl || !errors.Is(err, wantErr) {
		t.Errorf("%s: %v for %v, %v; want %v for %v, %v", name, got, a.TTL, err, want, ttl, wantErr)
	}
}

// view of a shard with a primary a and replicas b and c, held for another 4 s.
func view() shard.View {
	node := func(id string, role shard.Role) shard.Record {
		r := shard.Record{
			Shard: "orders", ID: id, Address: id + ":1", Role: role, Condition: shard.Up, Synced: true, Fence: shard.Open,
			Interval: time.Second, Timeout: 5 * time.Second, Age: time.Second,
		}
		if role == shard.Replica {
			r.PrimaryID, r.Link = "a", &shard.Upstream{Address: "a:1", Up: true}
		}
		return r
	}
	return shard.View{
		Row:   shard.Row{Name: "orders", Rev: 1, Primary: "a", PrimaryEpoch: 9},
		Nodes: []shard.Record{node("a", shard.Primary), node("c", shard.Replica), node("b", shard.Replica)},
		Lease: lease.Lease{Session: "s", Term: 1, Remaining: 4 * time.Second},
	}
}

func TestOfShard(t *testing.T) {
	const most = 5 * time.Second
	both := []string{"b", "c"}
	for name, c := range map[string]struct {
		kind   resolve.Kind
		change func(*shard.View)
		age    time.Duration
		want   []string
		ttl    time.Duration
		err    error
	}{
		"primary":               {resolve.Primary, nil, time.Second, []string{"a"}, 3 * time.Second, nil},
		"lease over":            {resolve.Primary, nil, 4 * time.Second, nil, 0, resolve.ErrStale},
		"reading old":           {resolve.Primary, nil, most, nil, 0, resolve.ErrStale},
		"unattended":            {resolve.Primary, func(v *shard.View) { v.Lease = lease.Lease{} }, time.Second, []string{"a"}, 0, nil},
		"about to move":         {resolve.Primary, func(v *shard.View) { v.Row.Plan = &shard.Plan{Phase: shard.Pausing} }, 0, []string{"a"}, 0, nil},
		"about to move, over":   {resolve.Primary, func(v *shard.View) { v.Row.Plan = &shard.Plan{Phase: shard.Pausing} }, 4 * time.Second, nil, 0, resolve.ErrStale},
		"of another boot":       {resolve.Primary, func(v *shard.View) { v.Lease.Foreign, v.Lease.Remaining = true, 0 }, time.Second, []string{"a"}, 0, nil},
		"asked to move":         {resolve.Primary, func(v *shard.View) { v.Row.Request = &shard.Request{} }, 0, []string{"a"}, 0, nil},
		"failing over":          {resolve.Primary, func(v *shard.View) { v.Row.Plan = &shard.Plan{Phase: shard.Promoting} }, 0, nil, time.Second, nil},
		"down":                  {resolve.Primary, func(v *shard.View) { v.Nodes[0].Condition = shard.Down }, 0, nil, time.Second, nil},
		"never had one":         {resolve.Primary, func(v *shard.View) { v.Row.Primary = "" }, 0, nil, time.Second, nil},
		"replicas":              {resolve.Replica, nil, time.Second, both, 3 * time.Second, nil},
		"replicas, silent now":  {resolve.Replica, nil, 4 * time.Second, nil, 0, resolve.ErrStale},
		"one silent":            {resolve.Replica, func(v *shard.View) { v.Nodes[1].Age = 6 * time.Second }, 0, []string{"b"}, 4 * time.Second, nil},
		"one without the data":  {resolve.Replica, func(v *shard.View) { v.Nodes[1].Synced = false }, 0, []string{"b"}, 4 * time.Second, nil},
		"one without its link":  {resolve.Replica, func(v *shard.View) { v.Nodes[1].Link = nil }, 0, []string{"b"}, 4 * time.Second, nil},
		"one of somebody else":  {resolve.Replica, func(v *shard.View) { v.Nodes[1].PrimaryID = "x" }, 0, []string{"b"}, 4 * time.Second, nil},
		"one that does not run": {resolve.Replica, func(v *shard.View) { v.Nodes[1].Condition = shard.Loading }, 0, []string{"b"}, 4 * time.Second, nil},
		"none":                  {resolve.Replica, func(v *shard.View) { v.Nodes = v.Nodes[:1] }, 0, nil, time.Second, nil},
	} {
		v := view()
		if c.change != nil {
			c.change(&v)
		}
		a, err := resolve.OfShard(v, c.kind, c.age, most)
		check(t, name, a, err, c.want, c.ttl, c.err)
	}
}

func TestParseName(t *testing.T) {
	for text, want := range map[string]string{
		"billing": "role/billing", "role/billing": "role/billing", "primary/orders": "primary/orders",
		"replica/orders": "replica/orders", "a/b": "role/a/b", "": "", "primary/": "", "role/": "", "a#2": "", "primary/or ders": "",
	} {
		n, err := resolve.ParseName(text)
		if (err != nil) != (want == "") || err == nil && n.String() != want || err != nil && !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("%q: %v, %v", text, n, err)
		}
	}
}

func TestSplitAddress(t *testing.T) {
	for address, want := range map[string][2]string{
		"10.0.0.1:80": {"10.0.0.1", "80"}, "10.0.0.1": {"10.0.0.1", ""}, "[::1]:80": {"::1", "80"}, "::1": {"::1", ""},
		"web-1:80": {"web-1", "80"}, "web-1": {"web-1", ""}, "https://web-1/x": {"web-1", "443"}, "http://[::1]:8": {"::1", "8"},
		"": {}, ":80": {}, "unix:/x": {}, "/run/x": {}, "a b": {}, "web:http": {}, "web:0": {}, "web:70000": {},
	} {
		host, port, ok := resolve.SplitAddress(address)
		if ok != (want[0] != "") || ok && (host != want[0] || port != want[1]) {
			t.Errorf("%q: %q %q %v", address, host, port, ok)
		}
	}
}

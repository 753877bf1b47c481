package protocol

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"
)

// memberNamed is a member with a short name.
func memberNamed(name string) Member {
	return Member{URL: "tcp://" + name + ":1", API: "tcp://" + name + ":2"}
}

// membersNamed is a list: "a,b,c".
func membersNamed(text string) Members {
	var l []Member
	for name := range strings.SplitSeq(text, ",") {
		if name != "" {
			l = append(l, memberNamed(name))
		}
	}
	return NewMembers(l)
}

// peerName is the short name of a peer.
func peerName(url string) string {
	return strings.TrimSuffix(strings.TrimPrefix(url, "tcp://"), ":1")
}

// names is the inverse of membersNamed.
func (l Members) names() string {
	var names []string
	for _, m := range l {
		names = append(names, peerName(m.URL))
	}
	return strings.Join(names, ",")
}

// TestMajoritiesOverlap enumerates what members.go proves: of two lists of up to six
// peers, every majority of one shares a peer with every majority of the other if the
// lists work together; and that lists that differ by two must be refused: of every odd
// size some have majorities that share nobody.
func TestMajoritiesOverlap(t *testing.T) {
	const peers = 6
	majorities := func(list uint) (out []uint) {
		for some := list; some > 0; some = (some - 1) & list {
			if bits.OnesCount(some) >= lists(list).Majority() {
				out = append(out, some)
			}
		}
		return out
	}
	apart := map[int]bool{} // sizes of lists that differ by two and have disjoint majorities
	for a := uint(1); a < 1<<peers; a++ {
		for b := a; b < 1<<peers; b++ {
			together := lists(a).WorksWith(lists(b))
			if differ := bits.OnesCount(a ^ b); together != (differ <= 1) {
				t.Fatalf("%s and %s work together: %v", lists(a).names(), lists(b).names(), together)
			} else if differ > 2 {
				continue
			}
			for _, one := range majorities(a) {
				for _, other := range majorities(b) {
					if one&other != 0 {
						continue
					}
					if together {
						t.Fatalf("%s of %s and %s of %s share nobody", lists(one).names(), lists(a).names(), lists(other).names(), lists(b).names())
					}
					apart[bits.OnesCount(a)] = true
				}
			}
		}
	}
	for n := 1; n <= peers-2; n += 2 {
		if !apart[n] {
			t.Errorf("lists of %d members and others that differ by two always overlap: they need not be refused", n)
		}
	}
}

// lists is the list with the peers whose bits are set.
func lists(set uint) Members {
	var names []string
	for i := range 6 {
		if set&(1<<i) != 0 {
			names = append(names, string(rune('a'+i)))
		}
	}
	return membersNamed(strings.Join(names, ","))
}

// TestChangeMembers: which lists a peer takes, and what it says of the others.
func TestChangeMembers(t *testing.T) {
	otherAPI := membersNamed("A,B,C")
	otherAPI[1].API = "tcp://elsewhere:2"
	twice := append(membersNamed("A,B,C"), otherAPI[1])
	var many Members
	for i := range MaxMembers + 1 {
		many = append(many, memberNamed(string(rune('A'+i))))
	}
	for name, test := range map[string]struct {
		next Members
		want string // part of the refusal; empty: it is taken
	}{
		"the same":          {membersNamed("A,B,C"), ""},
		"one more":          {membersNamed("A,B,C,D"), ""},
		"one less":          {membersNamed("A,C"), ""},
		"unsorted":          {Members{memberNamed("C"), memberNamed("A"), memberNamed("B")}, ""},
		"clients elsewhere": {otherAPI, ""},
		"two more":          {membersNamed("A,B,C,D,E"), "change one member at a time, and reload every peer"},
		"one replaced":      {membersNamed("A,B,D"), "+tcp://D:1, -tcp://C:1"},
		"without itself":    {membersNamed("B,C"), "stop a peer that is removed"},
		"nobody":            {nil, "0 members"},
		"too many":          {many, "16 members"},
		"twice":             {twice, "appears twice"},
		"bad address":       {append(membersNamed("A,B,C"), Member{URL: "D", API: "D"}), "tcp://host:port"},
	} {
		m := newListed("A", "A,B,C", "")
		before := m.Members().names()
		var changed MembersChanged
		for _, e := range m.Step(Now{Wall: epoch}, ChangeMembers{Members: test.next, Token: 9}) {
			if c, ok := e.(MembersChanged); ok {
				changed = c
			}
		}
		switch {
		case changed.Token != 9:
			t.Errorf("%s: no answer", name)
		case test.want == "" && (changed.Err != "" || m.Members().Digest() != NewMembers(test.next).Digest()):
			t.Errorf("%s: not taken: %q", name, changed.Err)
		case test.want != "" && (!strings.Contains(changed.Err, test.want) || m.Members().names() != before):
			t.Errorf("%s: %q, with %s; want %q", name, changed.Err, m.Members().names(), test.want)
		}
	}
}

// newListed is a machine at its start, with what it had stored.
func newListed(self, members, stored string) *Machine {
	s := MembersState{Members: membersNamed(stored), Settled: true}
	return New(Now{Wall: epoch}, Setup{
		Self: memberNamed(self).URL, Members: membersNamed(members), Stored: s, HasStorage: true, Incarnation: 1,
		Timings: Timings{}.WithDefaults(), MaxWaiting: 9, Table: newMemoryTable(), Rand: func() float64 { return 0.5 },
	})
}

// TestStartWithAnotherList: a peer that starts with another list than it had abstains
// for its whole time, starts above the terms of before, and has new members drop what
// they have. With the same list it votes as soon as the others have greeted it.
func TestStartWithAnotherList(t *testing.T) {
	for _, test := range []struct {
		stored           string
		abstains         bool
		owed             []string
		floor            bool
		settled, written bool
	}{
		{stored: "", settled: true, written: true},
		{stored: "A,B,C", settled: true},
		{stored: "A,B", abstains: true, owed: []string{"C"}, floor: true, written: true},
		{stored: "A,B,C,D", abstains: true, floor: true, written: true},
		{stored: "A,D,E", abstains: true, owed: []string{"B", "C"}, floor: true, written: true}, // it was away for several changes
	} {
		m := newListed("A", "A,B,C", test.stored)
		var owed []string
		for url := range m.removals.owed {
			owed = append(owed, peerName(url))
		}
		slices.Sort(owed)
		var written bool
		for _, e := range m.Step(Now{Wall: epoch}, Tick{}) {
			if s, ok := e.(SaveMembers); ok {
				written = s.State.Members.names() == "A,B,C" && s.State.Settled == test.settled
			}
		}
		for _, other := range []string{"B", "C"} {
			m.Step(Now{Boot: time.Millisecond, Wall: epoch}, Link{Peer: memberNamed(other).URL, State: Up})
			m.Step(Now{Boot: time.Millisecond, Wall: epoch}, Received{memberNamed(other).URL, Hello{Incarnation: 2, Echo: 1, Members: m.listDigest, Wall: epoch}})
		}
		got := fmt.Sprint(m.isAbstaining(), owed, m.floor > epoch, m.listSettled, written)
		if want := fmt.Sprint(test.abstains, test.owed, test.floor, test.settled, test.written); got != want {
			t.Errorf("stored %q: %s, want %s", test.stored, got, want)
		}
	}
}

// TestStartAlone: the only member fetches at once, but for one that had others: it may
// have promised one of them its vote.
func TestStartAlone(t *testing.T) {
	for stored, abstains := range map[string]bool{"": false, "A": false, "A,B": true} {
		m := newListed("A", "A", stored)
		if m.Step(Now{Wall: epoch}, Tick{}); m.isAbstaining() != abstains {
			t.Errorf("stored %q: it abstains: %v, want %v", stored, m.isAbstaining(), abstains)
		}
		if m.Step(Now{Boot: m.setup.Timings.AnnounceTimeout, Wall: epoch}, Tick{}); m.isAbstaining() {
			t.Errorf("stored %q: it still abstains after the announce timeout", stored)
		}
	}
}

// TestListsSettle: a list is settled when all members have had it for a while, and not
// while one of them is away; that does not keep the next change waiting for ever.
func TestListsSettle(t *testing.T) {
	m := newListed("A", "A,B,C", "A,B,C")
	now := Now{Wall: epoch}
	var refused string
	step := func(in Input) {
		for _, e := range m.Step(now, in) {
			if c, ok := e.(MembersChanged); ok {
				refused = c.Err
			}
		}
	}
	pass := func(d time.Duration) {
		for end := now.Boot + d; now.Boot < end; now.Boot += 100 * time.Millisecond {
			step(Tick{})
		}
	}
	say := func(name, list string) {
		step(Link{Peer: memberNamed(name).URL, State: Up})
		step(Received{memberNamed(name).URL, Hello{Incarnation: 2, Echo: 1, Members: membersNamed(list).Digest(), Wall: now.Wall}})
		step(Received{memberNamed(name).URL, MembersList{membersNamed(list)}})
	}
	say("B", "A,B,C")
	say("C", "A,B,C")
	step(ChangeMembers{Members: membersNamed("A,B,C,D"), Token: 1})
	if refused != "" || m.listSettled {
		t.Fatalf("%q, settled %v", refused, m.listSettled)
	}
	step(ChangeMembers{Members: membersNamed("A,B,C,D,E"), Token: 2})
	if !strings.Contains(refused, "has just changed") {
		t.Errorf("the second of two changes in a row: %q", refused)
	}
	say("B", "A,B,C,D")
	say("D", "A,B,C,D")
	pass(4 * time.Second)
	step(ChangeMembers{Members: membersNamed("A,B,C,D,E"), Token: 3})
	if !strings.Contains(refused, "tcp://C:1 still has another list of members (-tcp://D:1): reload it") {
		t.Errorf("while C has the list before: %q", refused)
	}
	say("C", "A,B,C,D")
	if pass(2900 * time.Millisecond); m.listSettled {
		t.Error("settled as soon as all have said the list")
	}
	if pass(1200 * time.Millisecond); !m.listSettled {
		t.Error("not settled although all have said the list for 4s")
	}
	// One that is away does not block a change.
	step(Link{Peer: memberNamed("D").URL, State: Down})
	step(ChangeMembers{Members: membersNamed("A,B,C"), Token: 4})
	if refused != "" {
		t.Error(refused)
	}
	say("B", "A,B,C")
	step(Link{Peer: memberNamed("C").URL, State: Down})
	pass(4 * time.Second)
	if step(ChangeMembers{Members: membersNamed("A,B"), Token: 5}); refused != "" || m.listSettled {
		t.Errorf("%q, settled %v", refused, m.listSettled)
	}
}

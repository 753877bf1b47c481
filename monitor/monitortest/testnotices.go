package monitortest

import (
	"fmt"
	"strings"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

func testNotices(b *bench) {
	id := b.ready("a")[0]
	b.wantSent("a")
	lost := b.change(b.candidate(id), monitor.Onset)
	b.beat(id)
	b.refused(lost, "a beat came before")
	b.wantSent("a")
	alarm := b.onset(id)
	b.wantSent("a", alarm+"/ONSET")
	b.beat(id)
	b.apply(b.change(b.candidate(id), monitor.Abated))
	b.wantSent("a", alarm+"/ONSET", alarm+"/ABATED")
}

// testNoticeForAll: a notice without a sink is for each that is registered when the change is made.
func testNoticeForAll(b *bench) {
	id := b.ready("a")[0]
	on := b.change(b.candidate(id), monitor.Onset)
	for i := range on.Notifications {
		on.Notifications[i].Sink = ""
	}
	b.enlist(hook, "late", "dropped")
	b.act(monitor.Action{Type: monitor.ActionRemoveSink, Source: "dropped", Who: "ops"})
	b.apply(on)
	for sink, want := range map[string]int{hook: 1, "late": 1, "dropped": 0} {
		if b.rig.Sent != nil {
			if got := b.rig.Sent(b.t, sink); len(got) != want || want > 0 && got[0].ID != on.Alarm+"/ONSET" {
				b.Errorf("to %s: %+v", sink, got)
			}
		}
	}
}

func testNoticeOnce(b *bench) {
	ids := b.ready("a", "b")
	one, two := b.change(b.candidate(ids[0]), monitor.Onset), b.change(b.candidate(ids[1]), monitor.Onset)
	same := notice("a", "the same", monitor.Onset)
	one.Notifications = []monitor.Notification{same, notice("a", "x", monitor.Onset), same}
	two.Notifications = []monitor.Notification{same, notice("b", "y", monitor.Onset)}
	b.apply(one)
	b.apply(two)
	b.wantSent("a", "the same/ONSET", "x/ONSET")
	b.wantSent("b", "y/ONSET")
}

func testNoticeOrder(b *bench) {
	ids := b.ready("a", "b")
	var want []string
	one, two := b.change(b.candidate(ids[0]), monitor.Onset), b.change(b.candidate(ids[1]), monitor.Onset)
	one.Notifications, two.Notifications = nil, nil
	for i := range 40 { // in an order of which ids say nothing
		n := notice("shared", fmt.Sprint((i*27)%40), monitor.Onset)
		want = append(want, n.ID)
		if i < 20 {
			one.Notifications = append(one.Notifications, n)
		} else {
			two.Notifications = append(two.Notifications, n)
		}
	}
	b.apply(one, two)
	b.wantSent("shared", want...)
}

func testNoticeDropped(b *bench) {
	ids := b.ready("a", "b")
	c := b.change(b.candidate(ids[0]), monitor.Onset)
	stranger := c.Notifications[0]
	stranger.Sink = "stranger"
	c.Notifications = append([]monitor.Notification{stranger}, c.Notifications...)
	b.apply(c)
	b.wantSent("a", c.Alarm+"/ONSET")
	b.act(monitor.Action{Type: monitor.ActionRemoveSink, Source: hook, Who: "ops"})
	b.apply(b.change(b.candidate(ids[1]), monitor.Onset))
	if s := b.source("e", "b"); s.State != monitor.Down {
		b.Errorf("the sink was dropped, and the alarm not raised: %+v", s)
	}
	b.enlist(hook)
	b.wantSent("b")
}

func testPayloads(b *bench) {
	id := b.ready("a")[0]
	if b.rig.Sent == nil {
		b.Skip("this rig cannot read notices")
	}
	b.enlist(hook, "other")
	c := b.change(b.candidate(id), monitor.Onset)
	c.Notifications = nil
	for i, source := range hostileNames() {
		n := notice(source, fmt.Sprint("id-", i), monitor.Onset)
		n.Payload = []byte(`{"source":"` + source + `","zero":"\u0000","bytes":"` + "\x00\xff\r\n" + `"}`)
		n.Sink = []string{hook, "other"}[i%2]
		c.Notifications = append(c.Notifications, n)
	}
	b.apply(c)
	for k, sink := range []string{hook, "other"} {
		got := map[string]monitor.Notification{}
		for _, n := range b.rig.Sent(b.t, sink) {
			got[n.ID] = n
		}
		for i, want := range c.Notifications {
			n, ok := got[want.ID]
			if ok != (i%2 == k) {
				b.Fatalf("notice %d of %s is in the queue of %s: %v", i, want.Sink, sink, ok)
			}
			if ok && (n.Key != want.Key || string(n.Payload) != string(want.Payload)) {
				b.Errorf("notice %+v became %+v", want, n)
			}
		}
	}
}

// testLargePayload: the notice of a group names as many members as a message may.
func testLargePayload(b *bench) {
	id := b.ready("a")[0]
	if b.rig.Sent == nil {
		b.Skip("this rig cannot read notices")
	}
	m := monitor.AlarmMessage{Status: monitor.Onset, RequestID: lease.NewID(), Event: "e", Source: "a"}
	for range monitor.MaxMembers {
		m.Members = append(m.Members, strings.Repeat("<", monitor.MaxName)) // each byte is six in JSON
	}
	c := b.change(b.candidate(id), monitor.Onset)
	c.Notifications = m.Notifications([]string{hook})
	b.apply(c)
	if got := b.rig.Sent(b.t, hook); len(got) != 1 || string(got[0].Payload) != string(c.Notifications[0].Payload) {
		b.Errorf("%d notices, want one of %d bytes", len(got), len(c.Notifications[0].Payload))
	}
}

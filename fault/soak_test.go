//go:build linux

package fault_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/monitor"
)

// TestSoak has all parts at work at once, in three servers, under random faults, for as long as UNDERSTUDY_SOAK says ("make soak": two hours). What the
// server that is never killed takes of the machine has to be level.
func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("UNDERSTUDY_SOAK"))
	if err != nil {
		t.Skip("it takes hours: set UNDERSTUDY_SOAK to a duration")
	}
	seed := givenSeed()
	t.Logf("UNDERSTUDY_SEED=%d", seed)
	s := fault.NewSoak(t, fault.Build(t), fault.Postgres(t, false), seed)
	users := &fault.SoakUsers{Soak: s, Seed: seed}
	chaos := fault.SoakChaos{Users: users, Seed: seed, For: length}
	did, uses := chaos.Run()
	t.Logf("did %v", did)
	tried(t, did)
	users.Judge()
	for i := 0; i < len(uses); i += max(1, len(uses)/12) {
		t.Logf("after %v the witness took %v", uses[i].At.Sub(uses[0].At).Round(time.Second), uses[i])
	}
	if err := fault.Level(uses); err != nil {
		t.Errorf("the server that was never killed is not level: %v", err)
	}
	if s.Servers[0].Lives != 1 {
		t.Error("the witness was started again")
	}
}

// soakTold is a message about an alarm that was raised at a second, and that an ABATED says ended three seconds later.
func soakTold(event, source, id string, status monitor.Transition, raised int) fault.Told {
	t := fault.Told{ID: id + "/" + string(status), At: at(raised + 4), AlarmMessage: monitor.AlarmMessage{
		RequestID: id, Status: status, Event: event, Source: source, Started: at(raised), Raised: at(raised)}}
	if ended := at(raised + 3); status == monitor.Abated {
		t.Ended = &ended
	}
	return t
}

// TestSoakAlarms shows the judge of a soak's alarms one broken monitor after the other.
func TestSoakAlarms(t *testing.T) {
	t.Parallel()
	const onset, abated = monitor.Onset, monitor.Abated
	for _, c := range []struct {
		name string
		more []fault.Told
		kept []monitor.Alarm
		want []fault.Rule
	}{
		{name: "nothing wrong"},
		{name: "comes again", more: []fault.Told{soakTold("hb", "sick", "a", onset, 10), soakTold("hb", "sick", "a", abated, 10)}},
		{name: "two of one outage", more: []fault.Told{soakTold("hb", "sick", "b", onset, 20), soakTold("hb", "sick", "c", onset, 21)},
			want: []fault.Rule{fault.Order, fault.Twice}},
		{name: "the end first", more: []fault.Told{soakTold("hb", "sick", "b", abated, 20), soakTold("hb", "sick", "b", onset, 20)}, want: []fault.Rule{fault.Order}},
		{name: "ends without a heartbeat", more: []fault.Told{soakTold("hb", "sick", "b", onset, 30), soakTold("hb", "sick", "b", abated, 30)},
			want: []fault.Rule{fault.Ghost}},
		{name: "of a steady source", more: []fault.Told{soakTold("hb", "steady0", "b", onset, 20), soakTold("hb", "steady0", "b", abated, 20)},
			want: []fault.Rule{fault.False}},
		{name: "of a steady source that was cut off", more: []fault.Told{soakTold("hb", "steady0", "b", onset, 44), soakTold("hb", "steady0", "b", abated, 44)}},
		{name: "never ends", more: []fault.Told{soakTold("hb", "steady0", "b", onset, 44)}, want: []fault.Rule{fault.Shown}},
		{name: "is told of nothing", kept: []monitor.Alarm{{ID: "b", Source: "sick", Started: at(20), Raised: at(20)}}, want: []fault.Rule{fault.Lost}},
		{name: "its end is told of nothing", more: []fault.Told{soakTold("hb", "sick", "b", onset, 20)},
			kept: []monitor.Alarm{{ID: "b", Source: "sick", Started: at(20), Raised: at(20), Ended: at(23), End: abated}}, want: []fault.Rule{fault.Lost}},
		{name: "two of a job", more: []fault.Told{soakTold("job", "j", "e", onset, 20), soakTold("job", "j", "f", onset, 21)},
			want: []fault.Rule{fault.Order, fault.Twice}},
	} {
		var beats []fault.Beaten
		for second := range 50 {
			sent := at(second)
			if second < 40 || second > 45 { // it was cut off
				beats = append(beats, fault.Beaten{Source: "steady0", Sent: sent, Answered: sent.Add(time.Millisecond), Stored: true})
			}
			if second%10 >= 3 && second%10 <= 5 && second < 30 {
				beats = append(beats, fault.Beaten{Source: "sick", Sent: sent.Add(-time.Millisecond), Answered: sent.Add(time.Millisecond), Stored: true})
			}
		}
		told := append([]fault.Told{soakTold("job", "j", "d", onset, 10), soakTold("hb", "sick", "a", onset, 10), soakTold("hb", "sick", "a", abated, 10),
			soakTold("job", "j", "d", abated, 10)}, c.more...)
		rules := map[fault.Rule]bool{}
		v := fault.SoakAlarms(told, c.kept, beats)
		for _, one := range v.Violations {
			rules[one.Rule] = true
		}
		if got := slices.Sorted(maps.Keys(rules)); !slices.Equal(got, c.want) {
			t.Errorf("%s: want %v, got %v", c.name, c.want, v.Violations)
		}
	}
}

// TestSoakAnswer shows the judge of the cache what a user of a soak may have been given.
func TestSoakAnswer(t *testing.T) {
	t.Parallel()
	calls := []fault.Call{{Key: "k1", Term: 7, Value: "k1 7 0 "}, {N: 1, Key: "k2", Term: 9}}
	for value, right := range map[string]bool{"k1 7 0 ": true, "k1 7 0": false, "k1 7 1 ": false, "k1 8 0 ": false, "k2 9 1 ": false, "": false} {
		key := "k1"
		if strings.HasPrefix(value, "k2") {
			key = "k2"
		}
		v := fault.JudgeCache(fault.CacheEvidence{Calls: calls, Answers: []fault.Answer{fault.SoakAnswer(key, value)}})
		if ok := len(v.Violations) == 0; ok != right {
			t.Errorf("%q: %v", value, v.Violations)
		}
	}
}

// TestLevel shows leaks to the judge of what a process takes.
func TestLevel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		takes func(i int) fault.Uses
		leaks bool
	}{
		{"level, with waves", func(i int) fault.Uses { return fault.Uses{KiB: 60000 + i%7*2000, Descriptors: 60 + i%5, Tasks: 12} }, false},
		{"fills at first", func(i int) fault.Uses { return fault.Uses{KiB: min(60000, 20000+i*2000), Descriptors: 60, Tasks: 12} }, false},
		{"leaks memory", func(i int) fault.Uses { return fault.Uses{KiB: 60000 + i*400, Descriptors: 60, Tasks: 12} }, true},
		{"leaks a descriptor now and then", func(i int) fault.Uses { return fault.Uses{KiB: 60000, Descriptors: 60 + i/4, Tasks: 12} }, true},
		{"leaks threads", func(i int) fault.Uses { return fault.Uses{KiB: 60000, Descriptors: 60, Tasks: 12 + i/4} }, true},
	} {
		var uses []fault.Uses
		for i := range 100 {
			uses = append(uses, c.takes(i))
		}
		if err := fault.Level(uses); (err != nil) != c.leaks {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if fault.Level(make([]fault.Uses, 3)) == nil {
		t.Error("three samples are enough")
	}
}

package sqlite

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// What runs for every beat, look or page must cost the same however many sources and
// alarms there are. Of the tables of the monitor only those are gone through that
// have a row for each event name, path, sink or instance.
func TestNoMonitorPlanGrowsWithTheSources(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "store.db"))
	texts := map[string]string{
		"beat": recordBeat, "read beat": readBeat, "exact beat": recordExact, "start": recordStart, "first beat": recordFirst, "due": makeDue,
		"find source": findSource, "add source": addSource, "partition": partitionDue, "facts": factsOf, "onsets": onsetsSince,
		"move": moveDue, "changed": readChanged, "down": setDown, "well": setWell, "expected": setExpected, "retired": setRetired,
		"forget": forgetSource, "watch": watchSource, "end alarm": endAlarm, "leave": leaveLead,
		"spreading": spreading, "spread": spreadNext, "slot": spreadSlot, "ended": oldestEnded, "removed": removedSources,
		"sweep": anythingToSweep, "empty": dropEmpty, "members held": heldMembers, "held": readHeld, "lead": standingLead, "join": joinLead,
		"report": reportHeld, "acknowledge": acknowledge, "pause": pauseSource, "member": readMember, "overview": countSources,
	}
	for name, q := range map[string]monitor.SourceQuery{
		"all": {}, "of event": {Check: "e"}, "of name": {Source: "s"}, "in state": {State: monitor.Down},
		"in state of event": {State: monitor.Down, Check: "e"}, "later": {AfterCheck: "e", AfterSource: "s"},
		"later in state": {AfterCheck: "e", AfterSource: "s", State: monitor.Up}, "one": {Check: "e", Source: "s"},
	} {
		texts["sources, "+name], _ = selectSources(q)
	}
	for name, q := range map[string]monitor.AlarmQuery{
		"all": {}, "standing": {Standing: true}, "of event": {Check: "e"}, "of source": {Source: "s", Check: "e"}, "one": {ID: "a"},
		"later": {Before: time.Now(), BeforeID: "a"}, "later of event": {Before: time.Now(), Check: "e"},
	} {
		texts["alarms, "+name], _ = selectAlarms(q)
	}
	for name, text := range texts {
		for _, step := range plan(t, s, text) {
			if growsWithSources(step) {
				t.Errorf("%s: %s", name, step)
			}
		}
	}
	for name, text := range map[string]string{
		"scan": "SELECT count(*) FROM understudy_monitor_source WHERE state = 'down'",
		"sort": "SELECT id FROM understudy_monitor_alarm a WHERE a.source = 's' ORDER BY a.started_us",
	} {
		if !slices.ContainsFunc(plan(t, s, text), growsWithSources) {
			t.Errorf("%s: a statement that does grow is not recognised", name)
		}
	}
}

// growsWithSources tells of a step that it goes through all sources, beats or alarms,
// or sorts. Going through an index in the order of a page ends with the page.
func growsWithSources(step string) bool {
	if strings.Contains(step, "TEMP B-TREE FOR ORDER BY") {
		return true
	}
	what, scans := strings.CutPrefix(step, "SCAN ")
	if !scans {
		return false
	}
	for _, bounded := range []string{
		"USING INDEX understudy_monitor_alarm_", "USING COVERING INDEX understudy_monitor_event_", "USING INDEX understudy_monitor_event_",
	} {
		if strings.Contains(what, bounded) {
			return false
		}
	}
	table, _, _ := strings.Cut(what, " ")
	return slices.Contains([]string{"s", "b", "a", "h", "l"}, table) ||
		slices.Contains([]string{"understudy_monitor_source", "understudy_monitor_beat", "understudy_monitor_alarm"}, table)
}

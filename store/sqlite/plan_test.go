package sqlite

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/monitor"
)

// TestPlans: whatever a store does must cost the same however many leases, messages, sources or shards there are. Each
// constant that is a statement, and each statement that is made, is explained, and a step that goes through a table, sorts, or
// looks at all of a queue or space stands in costly or is a fault.
func TestPlans(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "store.db"))
	texts := constants(t)
	maps.Copy(texts, made())
	for name, text := range texts {
		var steps []string
		for _, step := range plan(t, s, text) {
			if isCostly(step) {
				steps = append(steps, step)
			}
		}
		if !slices.Equal(steps, costly[name]) {
			t.Errorf("%q: %#v", name, steps)
		}
	}
	for name := range costly {
		if _, ok := texts[name]; !ok {
			t.Errorf("costly has %q, which is not a statement", name)
		}
	}
	all, _ := selectBatches(dispatch.MessageQuery{Queue: "q"})
	for _, text := range []string{
		listSessions, all, "SELECT count(*) FROM understudy_monitor_source WHERE state = 'down'",
		"SELECT id FROM understudy_monitor_alarm a WHERE a.source = 's' ORDER BY a.started_us",
	} {
		if !slices.ContainsFunc(plan(t, s, text), isCostly) {
			t.Errorf("not recognised as costly: %s", text)
		}
	}
}

// costly has the costly steps of statements for which that is right.
var costly = map[string][]string{
	// Tables with one row, or one for each check, path, sink or member of the monitor, instance of a queue, token, or lock of a shard.
	"readSecret":       {"SCAN understudy_monitor"},
	"recordRefused":    {"SCAN understudy_monitor"},
	"recordTime":       {"SCAN understudy_monitor"},
	"readClock":        {"SCAN understudy_monitor"},
	"bumpGeneration":   {"SCAN understudy_monitor"},
	"recordConfigured": {"SCAN understudy_monitor"},
	"readConfigured":   {"SCAN understudy_monitor"},
	"pathsByName":      {"SCAN understudy_monitor_path USING INDEX sqlite_autoindex_understudy_monitor_path_1"},
	"listPaths":        {"SCAN understudy_monitor_path"},
	"skipPaths":        {"SCAN understudy_monitor_path"},
	"sinkOf":           {"SCAN understudy_monitor_sink"},
	"listSinks":        {"SCAN understudy_monitor_sink"},
	"allChecks":        {"SCAN e USING INDEX sqlite_autoindex_understudy_monitor_event_1"},
	"anythingToSweep":  {"SCAN understudy_monitor_event USING INDEX understudy_monitor_event_spread", "SCAN understudy_monitor_event USING COVERING INDEX understudy_monitor_event_removed"},
	"dropEmpty":        {"SCAN understudy_monitor_event USING COVERING INDEX understudy_monitor_event_removed"},
	"spreading":        {"SCAN understudy_monitor_event USING INDEX understudy_monitor_event_spread"},
	"removedSources":   {"SCAN e USING COVERING INDEX understudy_monitor_event_removed"},
	"countSources":     {"SCAN e USING INDEX sqlite_autoindex_understudy_monitor_event_1"},
	"deactivateOthers": {"SCAN understudy_monitor_member"},
	"listMembers":      {"SCAN x", "USE TEMP B-TREE FOR ORDER BY"},
	"allTokens":        {"SCAN understudy_token"},
	"forgetLocks":      {"SCAN understudy_shard_lock"},
	"dropSpace":        {"SEARCH understudy_member USING PRIMARY KEY (space=?)"},
	"forgetMembers":    {"SEARCH m USING PRIMARY KEY (space=?)"},
	"wakeSome":         {"SEARCH m USING PRIMARY KEY (space=?)", "USE TEMP B-TREE FOR ORDER BY"},
	"listHolders":      {"SEARCH m USING PRIMARY KEY (space=?)", "USE TEMP B-TREE FOR ORDER BY"},
	"countJoined":      {"SEARCH m USING PRIMARY KEY (space=?)"},
	"shareOf":          {"SEARCH m USING PRIMARY KEY (space=?)"},
	// Pages, which end with what they show; what an index has found is sorted.
	"alarms, all":       {"SCAN a USING INDEX understudy_monitor_alarm_raised"},
	"alarms, standing":  {"SCAN a USING INDEX understudy_monitor_alarm_standing"},
	"sources, all":      {"SCAN e USING INDEX sqlite_autoindex_understudy_monitor_event_1"},
	"sources, in state": {"SCAN e USING INDEX sqlite_autoindex_understudy_monitor_event_1"},
	"sources, of name":  {"SCAN e USING INDEX sqlite_autoindex_understudy_monitor_event_1"},
	"factsOf":           {"SCAN j VIRTUAL TABLE INDEX 1:"},
	"lapsedKeys":        {"USE TEMP B-TREE FOR ORDER BY"},
	"dueJobs":           {"USE TEMP B-TREE FOR ORDER BY"},
	"anyBatch":          {"SEARCH understudy_batch USING PRIMARY KEY (queue=?)"},
	"listGroups":        {"SCAN understudy_monitor_alarm USING INDEX understudy_monitor_alarm_held", "SCAN h", "USE TEMP B-TREE FOR ORDER BY", "SCAN l USING INDEX understudy_monitor_alarm_lead"},
	// What operators ask for, and removals, a portion at a time.
	"listQueues":     {"SCAN q", "SEARCH c USING PRIMARY KEY (space=?)"},
	"listWaiters":    {"SEARCH w USING COVERING INDEX sqlite_autoindex_understudy_waiter_1 (space=?)", "USE TEMP B-TREE FOR LAST TERM OF ORDER BY"},
	"listWaiting":    {"SEARCH c USING PRIMARY KEY (space=?)"},
	"listSessions":   {"SCAN s", "USE TEMP B-TREE FOR ORDER BY"},
	"countLeases":    {"SCAN understudy_lease"},
	"foreignSQL":     {"SCAN understudy_session"},
	"newestToGo":     {"SCAN understudy_event"},
	"countScheduled": {"SEARCH understudy_scheduled USING COVERING INDEX understudy_scheduled_due (queue=?)", "SEARCH understudy_scheduled USING COVERING INDEX understudy_scheduled_due (queue=?)"},
	"countLosses":    {"SEARCH understudy_claim USING PRIMARY KEY (space=?)", "SEARCH understudy_scheduled USING COVERING INDEX understudy_scheduled_due (queue=?)"},
	"dropSome":       {"SEARCH understudy_claim USING PRIMARY KEY (space=?)"},
	"dropScheduled":  {"SEARCH understudy_scheduled USING COVERING INDEX understudy_scheduled_due (queue=?)"},
}

// isCostly tells of a step that it costs more the more there is. Tables of the schema are called by aliases of one letter.
func isCostly(step string) bool {
	if strings.Contains(step, "B-TREE") || strings.Contains(step, "(queue=?)") || strings.Contains(step, "(space=?)") || strings.Contains(step, "(queue=? AND (key") {
		return true
	}
	what, scans := strings.CutPrefix(step, "SCAN ")
	return scans && (strings.HasPrefix(what, "understudy_") || len(strings.Fields(what)[0]) == 1)
}

// constants are those of the package that are statements, by name, and not only their beginnings. Statements of a salvage
// read another file.
func constants(t *testing.T) map[string]string {
	t.Helper()
	set := token.NewFileSet()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "salvage") {
			continue
		}
		f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	// Nothing is imported: what constants are made of is here.
	check := types.Config{IgnoreFuncBodies: true, Error: func(error) {}}
	pkg, _ := check.Check("sqlite", set, files, nil)
	texts := map[string]string{}
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok || c.Val().Kind() != constant.String || strings.HasSuffix(name, "Columns") || name == "holdersSQL" {
			continue
		}
		text := strings.TrimSpace(constant.StringVal(c.Val()))
		if first, _, _ := strings.Cut(text, " "); slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "REPLACE"}, first) {
			texts[name] = text
		}
	}
	return texts
}

// made are statements that are made for a question, by what it asks.
func made() map[string]string {
	texts := map[string]string{"keys": selectKeys(dispatch.KeyQuery{}), "blocked keys": selectKeys(dispatch.KeyQuery{Blocked: true})}
	texts["history"], _ = selectEvents(history.Query{After: 5, Subject: "r", Part: "role", Newest: true})
	texts["message by id"], _ = selectBatches(dispatch.MessageQuery{Queue: "q", IDs: []string{"x"}})
	texts["messages of a key"], _ = selectBatches(dispatch.MessageQuery{Queue: "q", Key: "x"})
	for _, state := range dispatch.States() {
		if state != dispatch.Committed { // nothing is indexed for what has ended
			texts["messages "+string(state)], _ = selectBatches(dispatch.MessageQuery{Queue: "q", State: state})
			texts["messages "+string(state)+", later"], _ = selectBatches(dispatch.MessageQuery{Queue: "q", State: state, AfterKey: "k", AfterSeq: 1})
		}
	}
	for name, q := range map[string]monitor.SourceQuery{
		"all": {}, "of check": {Check: "e"}, "of name": {Source: "s"}, "in state": {State: monitor.Down},
		"in state of check": {State: monitor.Down, Check: "e"}, "later": {AfterCheck: "e", AfterSource: "s"},
		"later in state": {AfterCheck: "e", AfterSource: "s", State: monitor.Up}, "one": {Check: "e", Source: "s"},
	} {
		texts["sources, "+name], _ = selectSources(q)
	}
	for name, q := range map[string]monitor.AlarmQuery{
		"all": {}, "standing": {Standing: true}, "of check": {Check: "e"}, "of source": {Source: "s", Check: "e"}, "one": {ID: "a"},
		"later": {Before: time.Now(), BeforeID: "a"}, "later of check": {Before: time.Now(), Check: "e"},
	} {
		texts["alarms, "+name], _ = selectAlarms(q)
	}
	return texts
}

// plan is how SQLite goes about a statement.
func plan(t *testing.T, s *Store, text string) (steps []string) {
	t.Helper()
	rows, err := s.readers.Query("EXPLAIN QUERY PLAN "+text, make([]any, strings.Count(text, "?"))...)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	return steps
}

// What is scheduled costs nobody who looks for what is due, or for one of it.
func TestNoPlanGrowsWithWhatIsScheduled(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "store.db"))
	for name, c := range map[string]struct{ text, by string }{
		"any due": {anyDue, "understudy_scheduled_due (queue=? AND not_before_us<?)"}, "due": {listDue, "understudy_scheduled_due (queue=? AND not_before_us<?)"},
		"take": {takeScheduled, "INTEGER PRIMARY KEY (rowid=?)"}, "find": {findScheduled, "understudy_scheduled_id (id=? AND queue=?)"},
		"page": {scheduledPage, "understudy_scheduled_key (queue=? AND key>?)"}, "one": {oneScheduled, "understudy_scheduled_id (id=?"},
		"drop": {dropSameID, "understudy_scheduled_id (id=? AND queue=?)"},
	} {
		if steps := strings.Join(plan(t, s, c.text), "; "); !strings.Contains(steps, c.by) {
			t.Errorf("%s: %s; want %s", name, steps, c.by)
		}
	}
}

// The few keys that matter are not looked for among all.
func TestFewKeysAreFoundAmongMany(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "store.db"))
	for text, want := range map[string]string{
		selectKeys(dispatch.KeyQuery{Blocked: true}): "USING INDEX understudy_claim_blocked (space=? AND key>?)",
		lookFirst:  "USING INDEX understudy_claim_held (session=? AND space=?)",
		lapsedKeys: "USING INDEX understudy_claim_held (session=? AND space=?)",
		freeKeys:   "USING INDEX understudy_claim_free (space=? AND ready_us>? AND ready_us<?)",
		listHeld:   "USING INDEX understudy_claim_held (session=? AND space=? AND key>?)",
		shareOf:    "USING COVERING INDEX understudy_claim_held (session=? AND space=?)",
	} {
		uses := func(step string) bool { return strings.Contains(step, want) }
		if steps := plan(t, s, text); !slices.ContainsFunc(steps, uses) {
			t.Errorf("%s\n%s\nwant %s", text, strings.Join(steps, "\n"), want)
		}
	}
}

func openAt(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

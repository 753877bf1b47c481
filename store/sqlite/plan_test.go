package sqlite

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
)

// What runs all the time must not read a whole table, however it grows.
func TestNothingFrequentScans(t *testing.T) {
	s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "store.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	text, _ := selectEvents(history.Query{After: 5, Subject: "r", Part: "role", Newest: true})
	for name, text := range map[string]string{
		"renew": renewSession, "start": insertSession, "forget": forgetSessions, "get": getLease, "list": listLeases,
		"take": takeLease, "free": freeLease, "record freed": recordFreed, "free some": freeSome, "leave all": leaveAll,
		"leave": leaveOne, "leave dead": leaveDead, "events": newEvents, "history": text, "trim": trimSome,
		"offer": offerKnown, "begin step": beginStep, "finish step": finishStep, "free key": freeClaim, "take key": takeClaim,
		"list keys": listClaims, "list held": listHeld, "wake": wakeSome, "wakes": newWakes, "forget members": forgetMembers,
		"member": askMember, "put member": putMember, "lapsed keys": lapsedKeys, "free keys": freeKeys,
	} {
		for _, step := range plan(t, s, text) {
			// Tables of the schema are called by aliases of one letter.
			if what, ok := strings.CutPrefix(step, "SCAN "); ok && (strings.HasPrefix(what, "understudy_") || len(strings.Fields(what)[0]) == 1) {
				t.Errorf("%s: %s", name, step)
			}
		}
	}
	scans := func(step string) bool { return strings.HasPrefix(step, "SCAN s") }
	if !slices.ContainsFunc(plan(t, s, listSessions), scans) {
		t.Error("a statement that does scan is not recognised: the test above proves nothing")
	}
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

// What is done with batches must cost the same however many have ended. A queue is
// only gone through for pages that show all of it, or what has ended.
func TestNoPlanGrowsWithWhatIsOver(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "store.db"))
	texts := map[string]string{
		"key": getKey, "keep": keepKey, "give": giveKey, "head": getHead, "look at head": lookAtHead, "commit": commitFirst,
		"progress": getProgress, "set progress": setProgress, "ended": endedLong, "drop": dropBatch, "waiting": listWaiting,
		"one": oneBatch, "find": findBatch, "line": getLine, "set line": setLine, "move": moveBatch,
		"keys": selectKeys(dispatch.KeyQuery{}), "blocked": selectKeys(dispatch.KeyQuery{Blocked: true}),
		"one scheduled": oneScheduled, "find scheduled": findScheduled,
	}
	byID, _ := selectBatches(dispatch.MessageQuery{Queue: "q", IDs: []string{"x"}})
	byKey, _ := selectBatches(dispatch.MessageQuery{Queue: "q", Key: "x"})
	texts["by id"], texts["by key"] = byID, byKey
	for _, state := range dispatch.States() {
		first, _ := selectBatches(dispatch.MessageQuery{Queue: "q", State: state})
		later, _ := selectBatches(dispatch.MessageQuery{Queue: "q", State: state, AfterKey: "k", AfterSeq: 1})
		if state != dispatch.Committed {
			texts[string(state)], texts[string(state)+", later"] = first, later
		}
	}
	grows := func(step string) bool {
		batches := strings.Contains(step, " b ") || strings.Contains(step, "understudy_batch")
		return batches && (strings.HasPrefix(step, "SCAN") || strings.Contains(step, "(queue=?)") || strings.Contains(step, "(queue=? AND (key"))
	}
	for name, text := range texts {
		for _, step := range plan(t, s, text) {
			if grows(step) {
				t.Errorf("%s: %s", name, step)
			}
		}
	}
	all, _ := selectBatches(dispatch.MessageQuery{Queue: "q"})
	if !slices.ContainsFunc(plan(t, s, all), grows) {
		t.Error("a statement that does go through a queue is not recognised: the test above proves nothing")
	}
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
		steps := strings.Join(plan(t, s, c.text), "; ")
		if !strings.Contains(steps, c.by) || strings.Contains(steps, "SCAN understudy") || strings.Contains(steps, "B-TREE") {
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

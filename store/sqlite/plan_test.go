package sqlite

import (
	"path/filepath"
	"strings"
	"testing"

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
	for name, q := range map[string]string{
		"renew": renewSession, "start": insertSession, "forget": forgetSessions, "get": getLease, "list": listLeases,
		"take": takeLease, "free": freeLease, "record freed": recordFreed, "free some": freeSome, "leave all": leaveAll,
		"leave": leaveOne, "leave dead": leaveDead, "events": newEvents, "history": text, "trim": trimSome,
	} {
		rows, err := s.readers.Query("EXPLAIN QUERY PLAN "+q, make([]any, strings.Count(q, "?"))...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for rows.Next() {
			var id, parent, unused int
			var step string
			if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
				t.Fatal(err)
			}
			// Tables of the schema are called by aliases of one letter.
			if what, ok := strings.CutPrefix(step, "SCAN "); ok && (strings.HasPrefix(what, "understudy_") || len(strings.Fields(what)[0]) == 1) {
				t.Errorf("%s: %s", name, step)
			}
		}
		rows.Close()
	}
	rows, err := s.readers.Query("EXPLAIN QUERY PLAN "+listSessions, "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := false
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		found = found || strings.HasPrefix(step, "SCAN s")
	}
	if !found {
		t.Error("a statement that does scan is not recognised: the test above proves nothing")
	}
}

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/cache"
	"github.com/understudy-ha/understudy/cache/protocol"
)

const page = 4096

// used makes a storage that a peer has used for a while, and returns its file.
func used(t *testing.T, dir string) (path string, data []byte) {
	t.Helper()
	s := open(t, dir)
	members := protocol.MembersState{Members: protocol.Members{{URL: "tcp://a:1", API: "tcp://a:2"}}, Settled: true}
	err := errors.Join(s.Raise(t.Context(), 7000), s.SaveMembers(t.Context(), members), s.SaveRemovals(t.Context(), []protocol.Removal{{Scope: protocol.OneKey, Name: "gone", Term: 5}}))
	for i := range 200 {
		err = errors.Join(err, s.Save(t.Context(), []cache.Record{record(fmt.Sprint(i), strings.Repeat("v", 1000))}))
	}
	path = filepath.Join(dir, fileName)
	if err = errors.Join(err, s.Close()); err == nil {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path, data
}

// Whatever is damaged: afterwards the peer starts, the damaged file is still there, and what a peer must not forget was
// kept unless its own page is the damaged one.
func TestRepair(t *testing.T) {
	dir := t.TempDir()
	path, data := used(t, dir)
	repaired, kept := 0, 0
	for at := 0; at+page <= len(data); at += page {
		if at > 12*page && at/page%5 > 0 { // the first ones have more than copies
			continue
		}
		damaged := bytes.Clone(data)
		copy(damaged[at:], bytes.Repeat([]byte{0xa5}, page))
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := Repair(t.Context(), dir)
		if err != nil {
			t.Fatalf("page %d: %v", at/page, err)
		}
		if out.Damage == "" { // an unused page
			continue
		}
		repaired++
		if aside, err := os.ReadFile(out.Aside); err != nil || !bytes.Equal(aside, damaged) {
			t.Errorf("page %d: what is set aside is not what was there: %v", at/page, err)
		}
		s, err := Open(dir, nil)
		if err != nil {
			t.Fatalf("page %d: %v", at/page, err)
		}
		copies, state := load(t, s)
		if len(copies) != 0 || state.Ceiling != out.Ceiling || len(state.Removals) != out.Removals {
			t.Errorf("page %d: it says %+v, and has %d copies, %+v", at/page, out, len(copies), state)
		}
		if state.Ceiling == 7000 && len(state.Members.Members) == 1 && len(state.Removals) == 1 {
			kept++
		}
		if err := errors.Join(s.Close(), os.Remove(out.Aside)); err != nil {
			t.Fatal(err)
		}
	}
	if repaired < 15 || kept < repaired-5 {
		t.Errorf("of %d repairs %d kept the ceiling, the members and the removals", repaired, kept)
	}
}

func TestRepairLeavesTheRest(t *testing.T) {
	dir := t.TempDir()
	if _, err := Repair(t.Context(), dir); err == nil {
		t.Error("repaired what is not there")
	}
	path, data := used(t, dir)
	if out, err := Repair(t.Context(), dir); err != nil || out.Damage != "" {
		t.Errorf("a file that is whole: %+v, %v", out, err)
	}
	s := open(t, dir)
	if _, err := Repair(t.Context(), dir); !errors.Is(err, ErrInUse) {
		t.Errorf("while a peer uses it: %v", err)
	}
	if found, _ := load(t, s); len(found) != 200 {
		t.Errorf("%d copies are left", len(found))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for what, sql := range map[string]string{"another program's": "PRAGMA application_id = 7", "a newer version's": "PRAGMA user_version = 9"} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c := newConn(path, "FULL")
		if err := errors.Join(c.exec(t.Context(), sql), c.close()); err != nil {
			t.Fatal(err)
		}
		before, _ := os.ReadFile(path)
		if out, err := Repair(t.Context(), dir); !errors.Is(err, ErrFile) {
			t.Errorf("%s: %+v, %v", what, out, err)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s was changed: %v", what, err)
		}
	}
}

// A version that was never made is damage in the file's header, and what is behind the header is kept.
func TestRepairOfAVersionThatNeverWas(t *testing.T) {
	for _, version := range []byte{0, 0xff} { // user_version is 4 bytes at 60
		dir := t.TempDir()
		path, data := used(t, dir)
		copy(data[60:], bytes.Repeat([]byte{version}, 4))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, nil); !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), "cache repair") {
			t.Errorf("it opens with %v", err)
		}
		out, err := Repair(t.Context(), dir)
		if err != nil || out.Aside == "" || out.Ceiling != 7000 || out.Removals != 1 {
			t.Errorf("repaired: %+v, %v", out, err)
		}
		if err := open(t, dir).Close(); err != nil {
			t.Error(err)
		}
	}
}

package access_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/lease"
)

// made is a token that was created at [began], changed by edits.
func made(t *testing.T, name string, edits ...func(*access.Token)) access.Token {
	t.Helper()
	one, _, err := access.NewToken(name, access.Scopes{access.Read}, "alice")
	if err != nil {
		t.Fatal(err)
	}
	one.Created = began()
	for _, edit := range edits {
		edit(&one)
	}
	return one
}

func revoked(t *access.Token)         { t.Revoked, t.RevokedBy = began().Add(time.Minute), "bob" }
func hasExpired(t *access.Token)      { t.Expires = began().Add(time.Minute) }
func willExpire(t *access.Token)      { t.Expires = began().Add(24 * time.Hour) }
func after(d time.Duration) time.Time { return began().Add(d) }

func TestDecideAdd(t *testing.T) {
	live, ended, over := made(t, "ops"), made(t, "ops", revoked), made(t, "ops", hasExpired)
	idOf := func(other access.Token) func(*access.Token) { return func(t *access.Token) { t.ID = other.ID } }
	for name, c := range map[string]struct {
		all   []access.Token
		add   access.Token
		lasts time.Duration
		err   error
		same  bool // it is there already
	}{
		"the first":                     {nil, made(t, "ops"), time.Hour, nil, false},
		"again":                         {[]access.Token{live}, live, 2 * time.Hour, nil, true},
		"again, and it was revoked":     {[]access.Token{ended}, ended, 0, nil, true},
		"a name that lives":             {[]access.Token{ended, live}, made(t, "ops"), 0, access.ErrTaken, false},
		"a name that lives for a while": {[]access.Token{made(t, "ops", willExpire)}, made(t, "ops"), 0, access.ErrTaken, false},
		"another name":                  {[]access.Token{live}, made(t, "Ops"), 0, nil, false},
		"a name that was revoked":       {[]access.Token{ended}, made(t, "ops"), time.Hour, nil, false},
		"a name that expired":           {[]access.Token{over}, made(t, "ops"), 0, nil, false},
		"the id of another":             {[]access.Token{live}, made(t, "two", idOf(live)), 0, access.ErrTaken, false},
		"the id of one that was":        {[]access.Token{ended}, made(t, "two", idOf(ended)), 0, access.ErrTaken, false},
		"too short":                     {nil, live, access.MinLife - 1, lease.ErrInvalid, false},
		"too long":                      {nil, live, access.MaxLife + 1, lease.ErrInvalid, false},
		"less than nothing":             {nil, live, -time.Hour, lease.ErrInvalid, false},
		"no name":                       {nil, made(t, "x", func(t *access.Token) { t.Name = "" }), 0, lease.ErrInvalid, false},
		"a long name":                   {nil, made(t, "x", func(t *access.Token) { t.Name = fmt.Sprintf("%*d", access.MaxName+1, 1) }), 0, lease.ErrInvalid, false},
		"a control":                     {nil, made(t, "x", func(t *access.Token) { t.Name = "a\x00b" }), 0, lease.ErrInvalid, false},
		"no scope":                      {nil, made(t, "x", func(t *access.Token) { t.Scopes = nil }), 0, lease.ErrInvalid, false},
		"a scope twice":                 {nil, made(t, "x", func(t *access.Token) { t.Scopes = access.Scopes{access.Read, access.Read} }), 0, lease.ErrInvalid, false},
		"a wrong scope":                 {nil, made(t, "x", func(t *access.Token) { t.Scopes = access.Scopes{"root"} }), 0, lease.ErrInvalid, false},
		"no secret":                     {nil, made(t, "x", func(t *access.Token) { t.Sum = [32]byte{} }), 0, lease.ErrInvalid, false},
		"an id in capitals":             {nil, made(t, "x", func(t *access.Token) { t.ID = "ABCDEFGHIJ" }), 0, lease.ErrInvalid, false},
		"no maker":                      {nil, made(t, "x", func(t *access.Token) { t.By = "" }), 0, lease.ErrInvalid, false},
	} {
		got, err := access.DecideAdd(c.add, c.lasts)(c.all, after(time.Hour))
		want := c.add
		if !c.same {
			want.Created, want.Revoked, want.RevokedBy = after(time.Hour), time.Time{}, ""
			if c.lasts > 0 {
				want.Expires = after(time.Hour + c.lasts)
			}
		}
		if !errors.Is(err, c.err) || err == nil && (got.Unchanged != c.same || !cmp.Equal(want, got.Token)) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
}

func TestDecideRevoke(t *testing.T) {
	ended, live, over := made(t, "ops", revoked), made(t, "ops"), made(t, "brief", hasExpired)
	for name, c := range map[string]struct {
		ref, by string
		of      access.Token
		err     error
		same    bool // it was revoked already
	}{
		"by id":               {live.ID, "bob", live, nil, false},
		"by name":             {"ops", "bob", live, nil, false},
		"what expired, by id": {over.ID, "bob", over, nil, false},
		"again":               {ended.ID, "carol", ended, nil, true},
		"what expired":        {"brief", "bob", over, access.ErrNotFound, false},
		"what is not there":   {"nobody", "bob", over, access.ErrNotFound, false},
		"an unknown id":       {"aaaaaaaaaa", "bob", over, access.ErrNotFound, false},
		"a part of an id":     {live.ID[:9], "bob", over, access.ErrNotFound, false},
		"nothing":             {"", "bob", over, lease.ErrInvalid, false},
		"by nobody":           {"ops", "", over, lease.ErrInvalid, false},
		"a control":           {"a\x00b", "bob", over, lease.ErrInvalid, false},
		"by a control":        {"ops", "a\x00b", over, lease.ErrInvalid, false},
	} {
		got, err := access.DecideRevoke(c.ref, c.by)([]access.Token{ended, live, over}, after(time.Hour))
		want := c.of
		if !c.same {
			want.Revoked, want.RevokedBy = after(time.Hour), c.by
		}
		if !errors.Is(err, c.err) || err == nil && (got.Unchanged != c.same || !cmp.Equal(want, got.Token)) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	if _, err := access.DecideRevoke("ops", "bob")([]access.Token{ended}, after(time.Hour)); !errors.Is(err, access.ErrNotFound) {
		t.Errorf("by the name of what was revoked: %v", err)
	}
}

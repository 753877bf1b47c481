package access_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/lease"
)

func began() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func TestSecrets(t *testing.T) {
	one, secret, err := access.NewToken("ops", access.Scopes{access.Read}, "alice")
	if err != nil {
		t.Fatal(err)
	}
	id, sum, ok := access.Parse(secret)
	if !ok || id != one.ID || !one.HasSum(sum) {
		t.Errorf("the secret %d bytes long is not that of its token", len(secret))
	}
	if other, second, _ := access.NewToken("ops", access.Scopes{access.Read}, "alice"); other.ID == one.ID || second == secret || other.HasSum(sum) {
		t.Error("two tokens are alike")
	}
	if strings.Contains(fmt.Sprintf("%+v %#v", one, one), secret[15:]) {
		t.Error("a token shows its secret")
	}
	last := byte('A')
	if secret[len(secret)-1] == last {
		last = 'Q'
	}
	if _, sum, ok := access.Parse(secret[:len(secret)-1] + string(last)); !ok || one.HasSum(sum) {
		t.Error("another secret counts as the token's")
	}
	for _, text := range []string{"", "ust_", "ust__", secret[1:], secret + "A", secret[:len(secret)-1], strings.ToUpper(secret[:14]) + secret[14:], strings.Replace(secret, "_", "-", 2)} {
		if _, _, ok := access.Parse(text); ok {
			t.Errorf("%.8q… counts as a secret", text)
		}
	}
}

func TestScopes(t *testing.T) {
	for _, c := range []struct {
		has  string
		may  string
		deny string
	}{
		{"read", "read", "act ingest"}, {"act", "act read", "ingest"}, {"ingest", "ingest", "read act"},
		{"ingest read", "read ingest", "act"}, {"act act read", "act read", "ingest"},
	} {
		scopes, err := access.ParseScopes(strings.Fields(c.has))
		if err != nil {
			t.Fatal(err)
		}
		for s := range strings.FieldsSeq(c.may) {
			if !scopes.Has(access.Scope(s)) {
				t.Errorf("%s does not let %s", c.has, s)
			}
		}
		for s := range strings.FieldsSeq(c.deny) {
			if scopes.Has(access.Scope(s)) {
				t.Errorf("%s lets %s", c.has, s)
			}
		}
	}
	for _, names := range [][]string{nil, {""}, {"root"}, {"read", "admin"}, {"READ"}} {
		if _, err := access.ParseScopes(names); !errors.Is(err, lease.ErrInvalid) {
			t.Errorf("scopes %q: %v", names, err)
		}
	}
}

// full are as many tokens as there may be, of which so many have ended.
func full(t *testing.T, over int) []access.Token {
	t.Helper()
	var all []access.Token
	for i := range access.MaxTokens {
		one, _, err := access.NewToken(fmt.Sprint("t", i), access.Scopes{access.Read}, "alice")
		if err != nil {
			t.Fatal(err)
		}
		one.Created = began()
		if i < over {
			one.Revoked, one.RevokedBy = began().Add(time.Duration(over-i)*time.Minute), "bob"
		}
		all = append(all, one)
	}
	return all
}

func TestRoom(t *testing.T) {
	more, _, _ := access.NewToken("more", access.Scopes{access.Read}, "alice")
	now := began().Add(100 * time.Hour)
	if _, err := access.DecideAdd(more, 0)(full(t, 0), now); !errors.Is(err, access.ErrFull) {
		t.Errorf("one more than there may be: %v", err)
	}
	all := full(t, 5)
	c, err := access.DecideAdd(more, 0)(all, now)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{all[4].ID}, c.Drop); diff != "" {
		t.Errorf("what makes room should be what is over for longest (-want +got):\n%s", diff)
	}
	c, err = access.DecideAdd(more, 0)(all, began().Add(access.KeepEnded+3*time.Minute+time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{all[4].ID, all[3].ID, all[2].ID}; cmp.Diff(want, c.Drop) != "" {
		t.Errorf("after long, %q go, want %q", c.Drop, want)
	}
}

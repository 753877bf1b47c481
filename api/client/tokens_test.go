package client_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api/client"
)

func TestTokens(t *testing.T) {
	_, c := serve(t, nil)
	made, secret, err := c.CreateToken(t.Context(), client.NewToken{Name: "ops", Scopes: []string{"act"}, Lasts: time.Hour, By: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	if secret == "" || made.State != "live" || !slices.Equal(made.Scopes, []string{"act"}) || made.By != "alice (127.0.0.1)" || !made.Expires.Equal(made.Created.Add(time.Hour)) {
		t.Errorf("made %+v", made)
	}
	all, err := c.Tokens(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != made.ID || !all[0].Revoked.IsZero() {
		t.Errorf("%+v, %v", all, err)
	}
	gone, err := c.RevokeToken(t.Context(), "ops", "bob")
	if err != nil || gone.State != "revoked" || gone.RevokedBy != "bob (127.0.0.1)" || gone.Revoked.IsZero() {
		t.Errorf("revoked %+v, %v", gone, err)
	}
	_, err = c.RevokeToken(t.Context(), "ops", "bob")
	if refused, ok := errors.AsType[*client.Error](err); !ok || refused.Code != "no_token" {
		t.Errorf("revoked again by its name: %v", err)
	}
}

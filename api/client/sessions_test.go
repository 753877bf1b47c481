package client_test

import (
	"testing"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
)

// TestSessionsAndLeases: a program holds a role through a server, hands it over, and ends.
func TestSessionsAndLeases(t *testing.T) {
	_, c := serve(t, nil)
	ctx := t.Context()
	const role = "a/b ü?%2F"
	var ids [2]string
	for i, name := range []string{"web-1", "web-2"} {
		n, err := c.StartSession(ctx, apitype.NewSession{Name: name, Address: "10.0.0.1:80", IntervalMS: 60_000, TimeoutMS: 600_000})
		if err != nil || n.Session == "" || n.Instance.Name != name || n.TrustedForMS != 540_000 {
			t.Fatalf("started %+v, %v", n, err)
		}
		ids[i] = n.Session
	}
	_, err := c.StartSession(ctx, apitype.NewSession{Name: "web-3", IntervalMS: 2, TimeoutMS: 1})
	wantCode(t, err, "unsafe_timing")
	if live, err := c.Sessions(ctx); err != nil || len(live) != 2 || live[0].Instance.Name != "web-1" {
		t.Errorf("live are %+v, %v", live, err)
	}

	held, err := c.Acquire(ctx, "role", role, ids[0], 0)
	if err != nil || held.Holder == nil || held.Holder.Name != "web-1" || held.Term == 0 {
		t.Fatalf("acquired %+v, %v", held, err)
	}
	_, err = c.Acquire(ctx, "role", role, ids[1], time.Millisecond)
	wantCode(t, err, "held")
	wantCode(t, c.Release(ctx, "role", role, apitype.ReleaseRequest{Session: ids[0], Term: held.Term - 1}), "not_held")
	if err := c.Release(ctx, "role", role, apitype.ReleaseRequest{Session: ids[0], Term: held.Term, Successor: "web-2", Reason: "deploy"}); err != nil {
		t.Error(err)
	}
	if next, err := c.Acquire(ctx, "role", role, ids[1], 0); err != nil || next.Term <= held.Term {
		t.Errorf("the successor got %+v, %v", next, err)
	}

	for range 2 {
		if err := c.EndSession(ctx, ids[0]); err != nil {
			t.Error(err)
		}
	}
	renewed, err := c.RenewSessions(ctx, ids[:]...)
	if err != nil || len(renewed.Renewed) != 1 || renewed.Renewed[ids[1]].Renewals == 0 || len(renewed.Lapsed) != 1 || renewed.Lapsed[0] != ids[0] {
		t.Errorf("renewed %+v, %v", renewed, err)
	}
	_, err = c.RenewSessions(ctx)
	wantCode(t, err, "invalid")
	_, err = c.Acquire(ctx, "role", role, ids[0], 0)
	wantCode(t, err, "lapsed")
}

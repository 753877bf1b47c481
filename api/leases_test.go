package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

const (
	interval = lease.DefaultInterval
	timeout  = lease.DefaultTimeout
)

func TestSessionLifecycle(t *testing.T) {
	g := newRig(t)
	a := g.do("POST", "/v1/sessions", `{"name":"web-1","address":"10.0.0.1:80","interval_ms":2000,"timeout_ms":9000}`)
	a.want(201, "")
	var n struct {
		Session   string
		Instance  lease.Instance
		TrustedMS int64 `json:"trusted_for_ms"`
		TimeoutMS int64 `json:"timeout_ms"`
	}
	a.into(&n)
	if n.Session == "" || n.Instance.Name != "web-1" || n.Instance.ID == "" || n.TrustedMS != 7000 || n.TimeoutMS != 9000 {
		t.Errorf("session %s", a.Body)
	}
	if got := a.Header.Get("Location"); got != "/v1/sessions/"+n.Session {
		t.Errorf("Location %q", got)
	}
	var renewed struct{ Renewals int64 }
	r := g.do("POST", "/v1/sessions/"+n.Session+"/renew", "")
	r.want(200, "")
	if r.into(&renewed); renewed.Renewals != 2 {
		t.Errorf("renewal %s", r.Body)
	}
	g.put(n.Session).want(200, "")

	for _, path := range []string{"/v1/sessions", "/v1/leases/role", "/v1/leases/role/billing", "/v1/roles", "/v1/roles/billing", "/v1/history"} {
		a := g.do("GET", path, "")
		a.want(200, "")
		if !strings.Contains(a.Body, "web-1") || strings.Contains(a.Body, n.Session) {
			t.Errorf("%s: want the instance and not the session's id: %s", path, a.Body)
		}
	}
	g.do("DELETE", "/v1/sessions/"+n.Session, "").want(204, "")
	g.do("DELETE", "/v1/sessions/"+n.Session, "").want(204, "")
	if l := g.get(); !l.Free() {
		t.Errorf("the lease is still held: %+v", l)
	}
	g.do("POST", "/v1/sessions/"+n.Session+"/renew", "").want(410, "lapsed")
	g.put(n.Session).want(410, "lapsed")
}

// TestRenewMany: one request renews all sessions of a process, and names those that have ended.
func TestRenewMany(t *testing.T) {
	g := newRig(t)
	var ids [3]string
	for i := range ids {
		var n struct{ Session string }
		g.do("POST", "/v1/sessions", `{"name":"web-1"}`).into(&n)
		ids[i] = n.Session
	}
	g.do("DELETE", "/v1/sessions/"+ids[1], "").want(204, "")
	renew := func(ids ...string) answer {
		body, err := json.Marshal(apitype.SessionIDs{Sessions: ids})
		if err != nil {
			t.Fatal(err)
		}
		return g.do("POST", "/v1/sessions/renew", string(body))
	}
	var got apitype.Renewals
	r := renew(ids[:]...)
	r.want(200, "")
	r.into(&got)
	if len(got.Renewed) != 2 || got.Renewed[ids[0]].Renewals != 2 || got.Renewed[ids[2]].Renewals != 2 || len(got.Lapsed) != 1 || got.Lapsed[0] != ids[1] {
		t.Errorf("renewed %s", r.Body)
	}
	many := make([]string, 1001)
	for i := range many {
		many[i] = lease.NewID()
	}
	renew(many...).want(400, "invalid")
	r = renew(many[:1000]...)
	r.want(200, "")
	if r.into(&got); len(got.Lapsed) != 1000 {
		t.Errorf("%d of 1,000 have lapsed", len(got.Lapsed))
	}
	renew().want(400, "invalid")
	renew(ids[0], "").want(400, "invalid")
	full := &readOnly{Store: g.s.cfg.Store}
	full.full.Store(true)
	g.s.cfg.Store = full
	renew(ids[0], ids[2]).want(503, "store_unavailable")
}

func TestPutAndRelease(t *testing.T) {
	g := newRig(t)
	one, two := g.session("one"), g.session("two")
	var l, again apitype.Lease
	a := g.put(one)
	a.want(200, "")
	a.into(&l)
	g.clock.pass(time.Second)
	a = g.put(one)
	a.want(200, "")
	if a.into(&again); again.Term != l.Term || l.Term == 0 || l.Holder.Name != "one" || !l.Held {
		t.Errorf("took %+v, asked again and got %+v", l, again)
	}
	p := g.put(two).want(409, "held")
	if p.Holder == nil || p.Holder.Name != "one" || p.Term != l.Term || p.RetryAfterMS <= 0 || p.RetryAfterMS > timeout.Milliseconds() {
		t.Errorf("refused with %+v", p)
	}
	body := func(session string, term int64, more string) string {
		return fmt.Sprintf(`{"session":%q,"term":%d%s}`, session, term, more)
	}
	g.do("DELETE", "/v1/leases/role/billing", body(two, l.Term, "")).want(409, "not_held")
	g.do("DELETE", "/v1/leases/role/billing", body(one, l.Term-1, "")).want(409, "not_held")
	g.do("DELETE", "/v1/leases/role/billing", body(one, l.Term, "")).want(204, "")
	a = g.put(two)
	a.want(200, "")
	if a.into(&again); again.Term <= l.Term || again.Holder.Name != "two" {
		t.Errorf("after the release two got %s", a.Body)
	}
	g.do("GET", "/v1/leases/role/nothing", "").want(404, "not_found")
}

func TestReleaseToSuccessor(t *testing.T) {
	g := newRig(t)
	one, two, three := g.session("one"), g.session("two"), g.session("three")
	var l apitype.Lease
	a := g.put(one)
	a.into(&l)
	g.do("DELETE", "/v1/leases/role/billing", fmt.Sprintf(`{"session":%q,"term":%d,"successor":"three"}`, one, l.Term)).want(204, "")
	p := g.put(two).want(409, "held")
	if p.Holder != nil || p.RetryAfterMS != timeout.Milliseconds() {
		t.Errorf("while kept for another, refused with %+v", p)
	}
	g.put(three).want(200, "")
}

// keepAsking asks for the role each interval until it is had, and returns how
// long that took.
func (g *rig) keepAsking(session string, most time.Duration, each func()) time.Duration {
	g.t.Helper()
	began := g.clock.Now()
	for g.clock.Now()-began < most {
		if a := g.put(session); a.Status == 200 {
			return g.clock.Now() - began
		} else {
			a.want(409, "held")
		}
		g.clock.pass(interval / 4)
		g.do("POST", "/v1/sessions/"+session+"/renew", "")
		each()
	}
	return most
}

func TestPatienceAcrossRequests(t *testing.T) {
	g := newRig(t)
	one, two := g.session("one"), g.session("two")
	g.put(one).want(200, "")
	renewing := func() { g.do("POST", "/v1/sessions/"+one+"/renew", "").want(200, "") }
	if took := g.keepAsking(two, 20*timeout, renewing); took != 20*timeout {
		t.Fatalf("a holder that renews lost its lease after %v", took)
	}
	took := g.keepAsking(two, 20*timeout, func() {})
	if took < timeout-interval || took > timeout+interval {
		t.Errorf("a dead holder was followed after %v; T is %v", took, timeout)
	}
}

// TestSteppedStoreClock steps the store's clock while a holder trusts its
// session. Whoever believed the store would take the lease at once; that it
// would get it is shown, too.
func TestSteppedStoreClock(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour, 4 * time.Second} {
		for _, lookedBefore := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v looked before %t", step, lookedBefore), func(t *testing.T) {
				g := newRig(t)
				one, two := g.session("one"), g.session("two")
				g.put(one).want(200, "")
				g.do("POST", "/v1/sessions/"+one+"/renew", "").want(200, "")
				if lookedBefore {
					g.put(two).want(409, "held")
				}
				renewed := g.clock.Now()
				g.clock.step(step)
				// The session of the one who asks is renewed, or started again if the
				// step ended it; the belief belongs to the server.
				for g.clock.Now()-renewed <= 2*timeout {
					if a := g.do("POST", "/v1/sessions/"+two+"/renew", ""); a.Status == 410 {
						two = g.session("two")
					}
					if g.put(two).Status == 200 {
						break
					}
					g.clock.pass(interval / 4)
				}
				if took := g.clock.Now() - renewed; took < timeout-interval || took > timeout+interval {
					t.Errorf("taken %v after the last renewal; trust ends at %v, T is %v", took, timeout-interval, timeout)
				}
			})
		}
	}
}

func TestSteppedStoreClockIsDangerous(t *testing.T) {
	g := newRig(t)
	g.put(g.session("one")).want(200, "")
	g.clock.step(time.Hour)
	l := g.get()
	naive := lease.Expectation{Lease: l.ID, Session: g.session("two"), Seen: l.Seen()}
	if _, err := g.store.Acquire(t.Context(), naive); err != nil {
		t.Errorf("the store itself refused (%v): the test of patience proves nothing", err)
	}
}

// TestSpacesOfTheHistory: events of a lease could not be told from those of queues and tokens.
func TestSpacesOfTheHistory(t *testing.T) {
	g := newRig(t)
	session := g.session("one")
	for _, space := range []string{"queue", "batch", "token", "access"} {
		g.do("PUT", "/v1/leases/"+space+"/x", fmt.Sprintf(`{"session":%q}`, session)).want(400, "invalid")
	}
	g.do("PUT", "/v1/leases/queues/x", fmt.Sprintf(`{"session":%q}`, session)).want(200, "")
}

func TestForgottenBeliefCostsTimeOnly(t *testing.T) {
	g := newRig(t)
	one := g.session("one")
	g.put(one).want(200, "")
	g.clock.step(time.Hour)
	two := g.session("two")
	g.put(two).want(409, "held")
	g.clock.pass(timeout - time.Millisecond)
	g.s.takeovers = newTakeovers(g.store, g.clock, g.s.leaseQuota) // as another server, or after ten thousand others
	two = g.session("two")
	if p := g.put(two).want(409, "held"); p.RetryAfterMS != timeout.Milliseconds() {
		t.Errorf("retry after %d ms, want a whole T", p.RetryAfterMS)
	}
}

func TestSessionFromAnotherServer(t *testing.T) {
	g := newRig(t)
	session := g.session("one")
	other, err := New(Config{Store: g.store, Clock: g.clock})
	if err != nil {
		t.Fatal(err)
	}
	send(t, other, request(t.Context(), "PUT", "/v1/leases/role/billing", `{"session":"`+session+`"}`)).want(200, "")
}

// bubble runs f with a server whose store and clock are those of the bubble.
func bubble(t *testing.T, f func(t *testing.T, g *rig, ask func(context.Context, string, string) answer)) {
	synctest.Test(t, func(t *testing.T) {
		g := &rig{t: t, store: memory.New(nil)}
		g.s = start(t, Config{
			Store: g.store, Clock: bubbleClock{time.Now().Add(-time.Hour)},
			Jitter: func(d time.Duration) time.Duration { return d / 2 },
		})
		f(t, g, func(ctx context.Context, session, wait string) answer {
			return send(t, g.s, request(ctx, "PUT", "/v1/leases/role/billing?wait="+wait, `{"session":"`+session+`"}`))
		})
	})
}

// renewals keeps a session until stop is called.
func (g *rig) renewals(session string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			send(g.t, g.s, request(context.Background(), "POST", "/v1/sessions/"+session+"/renew", ""))
			select {
			case <-ctx.Done():
			case <-time.After(interval):
			}
		}
	}()
	return func() { cancel(); <-done }
}

func TestWait(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig, ask func(context.Context, string, string) answer) {
		one, two := g.session("one"), g.session("two")
		defer g.renewals(two)()
		stop := g.renewals(one)
		var l apitype.Lease
		ask(t.Context(), one, "0s").into(&l)

		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			if w, _ := g.store.Waiters(t.Context(), "role"); len(w) != 1 || w[0].Session.Instance.Name != "two" {
				t.Errorf("people do not see who waits: %+v", w)
			}
		}()
		p := ask(t.Context(), two, "3s").want(409, "held")
		if took := time.Since(began); took < 3*time.Second || took > 3100*time.Millisecond || p.Holder == nil {
			t.Errorf("waited %v, got %+v", took, p)
		}
		if w, _ := g.store.Waiters(t.Context(), "role"); len(w) != 0 {
			t.Errorf("still on the waiting list: %+v", w)
		}

		began = time.Now()
		go func() {
			time.Sleep(2 * time.Second)
			g.do("DELETE", "/v1/leases/role/billing", fmt.Sprintf(`{"session":%q,"term":%d}`, one, l.Term)).want(204, "")
		}()
		ask(t.Context(), two, "10s").want(200, "")
		if took := time.Since(began); took < 2*time.Second || took > 2010*time.Millisecond {
			t.Errorf("released after 2 s, had after %v", took)
		}
		stop()
	})
}

// deafStore is a store behind a pooler: no notifications, and renewals that show no changes.
type deafStore struct{ *memory.Store }

func (deafStore) Watch(context.Context, func(lease.Change)) error { return errors.ErrUnsupported }

func (s deafStore) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	r, err := s.Store.RenewSession(ctx, id)
	r.Changes = 0
	return r, err
}

// TestWaitWithoutNotifications: what waits learns of a release from the server's poll of the history.
func TestWaitWithoutNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &rig{t: t, store: memory.New(nil)}
		g.s = start(t, Config{
			Store: deafStore{g.store}, Clock: bubbleClock{time.Now().Add(-time.Hour)},
			Jitter: func(d time.Duration) time.Duration { return d / 2 },
		})
		one, two := g.session("one"), g.session("two")
		defer g.renewals(two)()
		defer g.renewals(one)()
		for i := range 10 {
			var l apitype.Lease
			a := g.put(one)
			a.want(200, "")
			a.into(&l)
			released := make(chan time.Time, 1)
			go func() {
				time.Sleep(2*timeout + time.Duration(i)*interval/10)
				released <- time.Now()
				g.do("DELETE", "/v1/leases/role/billing", fmt.Sprintf(`{"session":%q,"term":%d}`, one, l.Term)).want(204, "")
			}()
			a = send(t, g.s, request(t.Context(), "PUT", "/v1/leases/role/billing?wait=60s", `{"session":"`+two+`"}`))
			a.want(200, "")
			a.into(&l)
			if took := time.Since(<-released); took > 2*interval {
				t.Errorf("had %v after the release", took)
			}
			g.do("DELETE", "/v1/leases/role/billing", fmt.Sprintf(`{"session":%q,"term":%d}`, two, l.Term)).want(204, "")
		}
	})
}

func TestWaitFollowsTheDead(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig, ask func(context.Context, string, string) answer) {
		one, two := g.session("one"), g.session("two")
		defer g.renewals(two)()
		stop := g.renewals(one)
		ask(t.Context(), one, "0s").want(200, "")
		go func() {
			time.Sleep(3 * interval)
			stop()
		}()
		began := time.Now()
		ask(t.Context(), two, "30s").want(200, "")
		if took := time.Since(began); took < 2*interval+timeout || took > 4*interval+timeout {
			t.Errorf("followed after %v", took)
		}
	})
}

// TestShortWaitsDoNotStarve: each request is too short to count a whole T by
// itself, but the server remembers.
func TestShortWaitsDoNotStarve(t *testing.T) {
	g := newRig(t)
	one := g.session("one")
	g.put(one).want(200, "")
	g.clock.step(time.Hour)
	began := g.clock.Now()
	two := g.session("two")
	for g.clock.Now()-began < 3*timeout {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // the timers of this clock never fire
		a := send(t, g.s, request(ctx, "PUT", "/v1/leases/role/billing?wait=10ms", `{"session":"`+two+`"}`))
		cancel()
		if a.Status == 200 {
			break
		}
		g.clock.pass(interval)
		g.do("POST", "/v1/sessions/"+two+"/renew", "").want(200, "")
	}
	if took := g.clock.Now() - began; took < timeout-interval || took > timeout+interval {
		t.Errorf("had after %v", took)
	}
}

func TestWaitEndsWithTheCallerAndTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, g *rig, ask func(context.Context, string, string) answer) {
		one, two := g.session("one"), g.session("two")
		defer g.renewals(one)()
		defer g.renewals(two)()
		ask(t.Context(), one, "0s").want(200, "")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		ask(ctx, two, "60s")
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the caller went after 2 s, the request after %v", took)
		}
		go func() { time.Sleep(time.Second); g.s.stop() }()
		began = time.Now()
		ask(t.Context(), two, "60s").want(503, "stopping")
		if took := time.Since(began); took != time.Second {
			t.Errorf("the server stopped after 1 s, the request after %v", took)
		}
		if l := g.get(); l.Holder.Name != "one" || l.Waiting != 0 {
			t.Errorf("the lease is %+v", l)
		}
	})
}

// vanishing is a store during whose acquisitions the caller, or the server, goes away.
type vanishing struct {
	*memory.Store
	leave context.CancelFunc
	lost  bool // the answer to an acquisition is lost
	away  bool // leases cannot be read
}

func (v *vanishing) Acquire(ctx context.Context, c lease.Expectation) (lease.Lease, error) {
	l, err := v.Store.Acquire(ctx, c)
	if err == nil && v.leave != nil {
		v.leave()
	}
	if err == nil && v.lost {
		<-ctx.Done()
		return lease.Lease{}, fmt.Errorf("%w: %w", lease.ErrUnknown, context.Cause(ctx))
	}
	return l, err
}

func (v *vanishing) Get(ctx context.Context, id lease.ID) (lease.Lease, error) {
	if v.away {
		return lease.Lease{}, lease.ErrUnavailable
	}
	return v.Store.Get(ctx, id)
}

// TestWhoAsksAgainKeepsTheLease: a caller goes while its wait succeeds, and asks again at once. What it is told then stays so.
func TestWhoAsksAgainKeepsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &vanishing{Store: memory.New(nil)}
		g := &rig{t: t, store: st.Store}
		g.s = start(t, Config{Store: st, Clock: bubbleClock{time.Now().Add(-time.Hour)}})
		one, two := g.session("one"), g.session("two")
		defer g.renewals(two)()
		var l, again apitype.Lease
		g.put(one).into(&l)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		st.leave = func() {
			cancel()
			g.put(two).into(&again)
		}
		go func() {
			time.Sleep(time.Second)
			g.do("DELETE", "/v1/leases/role/billing", fmt.Sprintf(`{"session":%q,"term":%d}`, one, l.Term)).want(204, "")
		}()
		send(t, g.s, request(ctx, "PUT", "/v1/leases/role/billing?wait=10s", `{"session":"`+two+`"}`))
		time.Sleep(time.Minute)
		if now := g.get(); again.Term == 0 || now.Term != again.Term || now.Free() {
			t.Errorf("the lease is %+v; who asked again was told that it holds term %d", now, again.Term)
		}
	})
}

// TestServerStopsDuringTheAcquisition: the lease is the waiting session's, though the answer that said so is lost. It is told so, or that it is
// not known; "stopping" would say that nothing was done.
func TestServerStopsDuringTheAcquisition(t *testing.T) {
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			st := &vanishing{Store: memory.New(nil)}
			g := &rig{t: t, store: st.Store}
			g.s = start(t, Config{Store: st, Clock: bubbleClock{time.Now().Add(-time.Hour)}})
			one, two := g.session("one"), g.session("two")
			defer g.renewals(two)()
			var l apitype.Lease
			g.put(one).into(&l)
			st.lost, st.leave = true, func() { st.away = away; g.s.stop() }
			go func() {
				time.Sleep(time.Second)
				g.do("DELETE", "/v1/leases/role/billing", fmt.Sprintf(`{"session":%q,"term":%d}`, one, l.Term)).want(204, "")
			}()
			a := g.do("PUT", "/v1/leases/role/billing?wait=10s", `{"session":"`+two+`"}`)
			if away {
				a.want(504, "unknown_outcome")
				return
			}
			a.want(200, "")
			if a.into(&l); l.Term != g.get().Term || l.Holder == nil || l.Holder.Name != "two" {
				t.Errorf("told %+v", l)
			}
		})
	}
}

// TestAcquiredAndNotTold: an error after the acquisition does not say that nothing was done.
func TestAcquiredAndNotTold(t *testing.T) {
	g := newJobRig(t)
	php := g.session("php")
	g.failOnce().readState = true
	g.do("PUT", "/v1/leases/role/billing", fmt.Sprintf(`{"session":%q}`, php)).want(504, "unknown_outcome")
	g.do("PUT", "/v1/leases/role/billing", fmt.Sprintf(`{"session":%q}`, php)).want(200, "")
}

func TestTooManyWaits(t *testing.T) {
	g := newRig(t)
	one, two := g.session("one"), g.session("two")
	g.put(one).want(200, "")
	g.s.waits = newPlaces(0, Limits{}) // no room
	a := g.do("PUT", "/v1/leases/role/billing?wait=1s", `{"session":"`+two+`"}`)
	if p := a.want(503, "busy"); p.RetryAfterMS == 0 || a.Header.Get("Retry-After") != "1" {
		t.Errorf("busy without a time to come back: %+v %v", p, a.Header)
	}
}

func TestListLeasesInPages(t *testing.T) {
	g := newRig(t)
	session := g.session("one")
	for n := range 5 {
		g.do("PUT", fmt.Sprintf("/v1/leases/job/key-%d", n), `{"session":"`+session+`"}`).want(200, "")
	}
	var keys []string
	for after, n := "", 0; n < 10; n++ {
		var page struct {
			Leases []apitype.Lease
			Next   string
		}
		g.do("GET", "/v1/leases/job?limit=2&after="+after, "").into(&page)
		for _, l := range page.Leases {
			keys = append(keys, l.Key)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if got := strings.Join(keys, " "); got != "key-0 key-1 key-2 key-3 key-4" {
		t.Errorf("pages gave %s", got)
	}
}

// TestNamesInPaths: whatever may be a name can be asked for.
func TestNamesInPaths(t *testing.T) {
	g := newRig(t)
	srv := httptest.NewServer(g.s.Handler())
	defer srv.Close()
	session := g.session("one")
	for _, key := range []string{"a%2Fb", "a%3Fx=1", "%3Cscript%3E", "%C3%BC", "a%20b", "%27%3B--", "%25"} {
		g.do("PUT", "/v1/leases/role/"+key, `{"session":"`+session+`"}`).want(200, "")
		var who struct{ Role, Name string }
		g.do("GET", "/v1/roles/"+key, "").into(&who)
		if who.Name != "one" || who.Role == "" {
			t.Errorf("%s: %+v", key, who)
		}
	}
	for _, key := range []string{"%00", "%0A", "%FF", "%20a", strings.Repeat("x", 201)} {
		g.do("PUT", "/v1/leases/role/"+key, `{"session":"`+session+`"}`).want(400, "invalid")
	}
	g.do("PUT", "/v1/leases/Role/x", `{"session":"`+session+`"}`).want(400, "invalid")
}

func TestLeaseState(t *testing.T) {
	g := newRig(t)
	one, two := g.session("one"), g.session("two")
	var l, next apitype.Lease
	a := g.put(one)
	if a.into(&l); l.State != nil {
		t.Errorf("a lease that was never held has the state %q", l.State)
	}
	const path = "/v1/leases/role/billing/state"
	state := func(term int64, data string) string { return fmt.Sprintf(`{"term":%d,"state":%q}`, term, data) }
	g.do("GET", path, "").want(404, "not_found")
	g.do("PUT", path, state(l.Term, "cGFnZSA3")).want(204, "")
	g.do("PUT", path, state(l.Term-1, "b2xk")).want(409, "not_held")
	g.do("PUT", path, state(l.Term, "no base64!")).want(400, "invalid")
	g.do("PUT", path, state(l.Term, strings.Repeat("eHh4", lease.MaxState/3+1))).want(400, "invalid")
	g.do("PUT", path, state(l.Term, strings.Repeat("eHh4", lease.MaxState))).want(413, "too_large")
	if a := g.do("GET", path, ""); a.Status != 200 || a.Body != state(l.Term, "cGFnZSA3")+"\n" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	g.do("DELETE", "/v1/leases/role/billing", fmt.Sprintf(`{"session":%q,"term":%d}`, one, l.Term)).want(204, "")
	a = g.put(two)
	if a.into(&next); string(next.State) != "page 7" || next.Term <= l.Term {
		t.Errorf("the successor gets %s", a.Body)
	}
	g.do("PUT", path, state(l.Term, "bGF0ZQ==")).want(409, "not_held")
}

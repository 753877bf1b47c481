package target_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/dispatch/target/targettest"
	"github.com/understudy-ha/understudy/internal/sawtooth"
)

func signed(seed string, payloads ...string) dispatch.Assignment {
	id, list := targettest.NewSigner("ledger").One(seed, payloads...)
	a := assignment("abcde-12345::gsAA", id, string(list))
	a.ContentType = "application/octet-stream"
	return a
}

func newSawtooth(t *testing.T, url string) *target.Sawtooth {
	t.Helper()
	s, err := target.NewSawtooth(target.SawtoothConfig{HTTPConfig: target.HTTPConfig{URL: url}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newScabbard(t *testing.T, url, tokenFile string) *target.Scabbard {
	t.Helper()
	s, err := target.NewScabbard(target.ScabbardConfig{HTTPConfig: target.HTTPConfig{URL: url, TokenFile: tokenFile}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func refuseX(payloads [][]byte) string {
	for _, p := range payloads {
		if string(p) == "x" {
			return "x is not possible"
		}
	}
	return ""
}

func TestSawtooth(t *testing.T) {
	var skew atomic.Int64
	node := &targettest.Sawtooth{
		Manual: true, Invalid: refuseX,
		Now: func() time.Time { return time.Now().Add(time.Duration(skew.Load())) },
	}
	s := newSawtooth(t, serve(t, node.ServeHTTP))
	ctx := deadline(t, time.Minute)
	good, bad := signed("good", "a", "b"), signed("bad", "b", "x")
	for _, a := range []dispatch.Assignment{good, bad} {
		got := s.Submit(ctx, a)
		if got.Outcome != dispatch.Accepted || got.Code != 202 || !strings.HasSuffix(got.Link, "/batch_statuses?id="+a.ID) {
			t.Fatalf("got %+v", got)
		}
	}
	ask := func(want ...dispatch.Outcome) []dispatch.Answer {
		t.Helper()
		got := s.Status(ctx, []dispatch.Assignment{good, bad})
		if diff := cmp.Diff(want, outcomes(got)); diff != "" {
			t.Error(diff)
		}
		return got
	}
	ask(dispatch.Accepted, dispatch.Accepted)
	node.Commit()
	got := ask(dispatch.Done, dispatch.InvalidMessage)
	if !strings.HasPrefix(got[1].Detail, "transaction ") || !strings.HasSuffix(got[1].Detail, ": x is not possible") {
		t.Errorf("detail %q", got[1].Detail)
	}
	skew.Store(int64(601 * time.Second)) // it forgets why, and that
	ask(dispatch.Done, dispatch.NotFound)

	// Sent again, what is committed is ignored, and what was invalid is invalid at once.
	for _, a := range []dispatch.Assignment{good, bad} {
		if got := s.Submit(ctx, a); got.Outcome != dispatch.Accepted {
			t.Errorf("got %+v", got)
		}
	}
	ask(dispatch.Done, dispatch.InvalidMessage) // its verdict is kept longer than it is told
	node.Restart()
	ask(dispatch.Done, dispatch.NotFound)
	if diff := cmp.Diff([]string{good.ID}, node.Effects()); diff != "" {
		t.Error(diff)
	}
}

// TestSawtoothEvidence: when statuses are forgotten, the blocks still tell.
func TestSawtoothEvidence(t *testing.T) {
	node := &targettest.Sawtooth{Fault: func(r *http.Request) targettest.Fault {
		if r.URL.Path == "/batch_statuses" {
			id := strings.Split(r.URL.Query().Get("id"), ",")[0]
			return targettest.Fault{Status: 200, Body: `{"data": [{"id": "` + id + `", "status": "UNKNOWN"}]}`}
		}
		return targettest.Fault{}
	}}
	s := newSawtooth(t, serve(t, node.ServeHTTP))
	ctx := deadline(t, time.Minute)
	there, never := signed("there", "a"), signed("never", "a")
	s.Submit(ctx, there)
	for _, c := range []struct {
		of   dispatch.Assignment
		want dispatch.Outcome
	}{{there, dispatch.Done}, {never, dispatch.NotFound}} {
		if got := s.Status(ctx, []dispatch.Assignment{c.of})[0]; got.Outcome != c.want {
			t.Errorf("got %+v, want %s", got, c.want)
		}
	}
	// One id is named in the answer, the other left out.
	got := s.Status(ctx, []dispatch.Assignment{there, never})
	if got[0].Outcome != dispatch.Done || got[1].Outcome != dispatch.Uncertain {
		t.Errorf("got %+v", got)
	}
}

// TestSawtoothMany: more than 15 are asked for by POST, with an id among
// them that would spoil the question.
func TestSawtoothMany(t *testing.T) {
	var asked []string
	node := &targettest.Sawtooth{Fault: func(r *http.Request) targettest.Fault {
		if r.URL.Path == "/batch_statuses" {
			asked = append(asked, r.Method)
		}
		return targettest.Fault{}
	}}
	s := newSawtooth(t, serve(t, node.ServeHTTP))
	ctx := deadline(t, time.Minute)
	as := []dispatch.Assignment{assignment("k", "not an id", "")}
	for i := range 16 {
		a := signed(fmt.Sprint(i), "a")
		as = append(as, a)
		if i == 14 {
			s.Status(ctx, as)
		}
		s.Submit(ctx, a)
	}
	got := outcomes(s.Status(ctx, as))
	want := slices.Repeat([]dispatch.Outcome{dispatch.Done}, 17)
	want[0] = dispatch.InvalidMessage
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"GET", "POST"}, asked); diff != "" {
		t.Error(diff)
	}
}

func fault(code int) string {
	return fmt.Sprintf(`{"error": {"code": %d, "title": "T", "message": "M"}}`, code)
}

func TestSawtoothTable(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   dispatch.Outcome
	}{
		{400, fault(30), dispatch.InvalidMessage},
		{400, fault(34), dispatch.InvalidMessage},
		{400, fault(35), dispatch.InvalidMessage},
		{400, fault(42), dispatch.Misconfigured},
		{400, "?", dispatch.InvalidMessage},
		{413, "", dispatch.InvalidMessage},
		{401, "", dispatch.Misconfigured},
		{404, "", dispatch.Misconfigured},
		{302, "", dispatch.Misconfigured},
		{408, fault(19), dispatch.Busy},
		{408, "", dispatch.Uncertain},
		{429, fault(31), dispatch.Busy},
		{500, fault(10), dispatch.Uncertain},
		{500, fault(20), dispatch.Uncertain},
		{502, "<html>", dispatch.Uncertain},
		{503, fault(15), dispatch.Busy},
		{503, fault(17), dispatch.Uncertain},
		{503, fault(18), dispatch.Uncertain},
		{503, "", dispatch.Uncertain},
		{504, "", dispatch.Uncertain},
		{200, "{}", dispatch.Uncertain},
		{202, "{}", dispatch.Accepted},
		{202, `{"link`, dispatch.Accepted},
	} {
		node := &targettest.Sawtooth{Fault: func(*http.Request) targettest.Fault {
			return targettest.Fault{Status: c.status, Body: c.body}
		}}
		s := newSawtooth(t, serve(t, node.ServeHTTP))
		got := s.Submit(deadline(t, time.Minute), signed("a", "a"))
		if got.Outcome != c.want || got.Code != c.status {
			t.Errorf("%d %s: got %+v, want %s", c.status, c.body, got, c.want)
		}
		if c.body == fault(30) && got.Detail != "T (code 30): M" {
			t.Errorf("detail %q", got.Detail)
		}
		if c.status == 202 || c.status == 200 {
			continue
		}
		if got := s.Status(deadline(t, time.Minute), []dispatch.Assignment{signed("a", "a")})[0]; got.Outcome != dispatch.Uncertain {
			t.Errorf("asked, %d %s: got %+v", c.status, c.body, got)
		}
	}
}

// ledger is what both have in common.
type ledger interface {
	http.Handler
	Effects() []string
	Posts() []string
}

// TestLedgerFaults: whatever happens to an answer, it never says more than is known.
func TestLedgerFaults(t *testing.T) {
	for name, c := range map[string]struct {
		fault targettest.Fault
		want  dispatch.Outcome
		asked dispatch.Outcome
	}{
		"cut before": {targettest.Fault{Cut: true}, dispatch.Uncertain, dispatch.NotFound},
		"cut after":  {targettest.Fault{Cut: true, After: true}, dispatch.Uncertain, dispatch.Done},
		"half after": {targettest.Fault{Half: true, After: true}, dispatch.Accepted, dispatch.Done},
		"garbage":    {targettest.Fault{Garbage: true, After: true}, dispatch.Accepted, dispatch.Done},
		"429 before": {targettest.Fault{Status: 429}, dispatch.Busy, dispatch.NotFound},
		"503 after":  {targettest.Fault{Status: 503, Body: fault(17), After: true}, dispatch.Uncertain, dispatch.Done},
	} {
		for _, kind := range []string{"sawtooth", "scabbard"} {
			t.Run(kind+" "+name, func(t *testing.T) {
				var well atomic.Bool
				strike := func(*http.Request) targettest.Fault {
					if well.Load() {
						return targettest.Fault{}
					}
					return c.fault
				}
				var node ledger = &targettest.Sawtooth{Fault: strike}
				if kind == "scabbard" {
					node = &targettest.Scabbard{Fault: strike, Services: []string{"abcde-12345::gsAA"}}
				}
				url := serve(t, node.ServeHTTP)
				var to dispatch.Target = newSawtooth(t, url)
				if kind == "scabbard" {
					to = newScabbard(t, url, "")
				}
				ctx, a := deadline(t, time.Minute), signed("a", "a")
				if got := to.Submit(ctx, a); got.Outcome != c.want || got.Detail == "" && c.fault.Status != 429 {
					t.Errorf("got %+v, want %s, and why", got, c.want)
				}
				if got := to.Status(ctx, []dispatch.Assignment{a})[0]; got.Outcome != dispatch.Uncertain {
					t.Errorf("asked through the fault: %+v", got)
				}
				well.Store(true)
				if got := to.Status(ctx, []dispatch.Assignment{a})[0]; got.Outcome != c.asked {
					t.Errorf("asked: %+v, want %s", got, c.asked)
				}
				if n := len(node.Posts()); n > 1 {
					t.Errorf("it was posted %d times", n)
				}
			})
		}
	}
}

func TestLedgerRefusesByItself(t *testing.T) {
	var requests atomic.Int32
	url := serve(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	good := signed("a", "a")
	_, two := targettest.NewSigner("ledger").Batch("b", "b")
	for name, spoil := range map[string]func(a *dispatch.Assignment){
		"no protobuf":  func(a *dispatch.Assignment) { a.Payload = []byte("hello") },
		"empty":        func(a *dispatch.Assignment) { a.Payload = nil },
		"two batches":  func(a *dispatch.Assignment) { a.Payload = append(slices.Clone(a.Payload), targettest.List(two)...) },
		"another's id": func(a *dispatch.Assignment) { a.ID = strings.Repeat("0", 128) },
		"cut":          func(a *dispatch.Assignment) { a.Payload = a.Payload[:len(a.Payload)-1] },
		"no transactions": func(a *dispatch.Assignment) {
			id, none := targettest.NewSigner("ledger").Batch("none")
			a.ID, a.Payload = id, targettest.List(none)
		},
		"a signature that none can be": func(a *dispatch.Assignment) {
			a.Payload = bytes.ReplaceAll(a.Payload, []byte(a.ID), bytes.Repeat([]byte("f"), 128))
			a.ID = strings.Repeat("f", 128)
		},
	} {
		for _, to := range []dispatch.Target{newSawtooth(t, url), newScabbard(t, url, "")} {
			a := good
			spoil(&a)
			if got := to.Submit(deadline(t, time.Minute), a); got.Outcome != dispatch.InvalidMessage || got.Detail == "" {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
	for _, key := range []string{"----", "abcde-12345::../../x", "abcde-12345::"} {
		a := good
		a.Key = key
		s := newScabbard(t, url, "")
		if got := s.Submit(deadline(t, time.Minute), a); got.Outcome != dispatch.InvalidMessage || !strings.Contains(got.Detail, "CIRCUIT::SERVICE") {
			t.Errorf("key %s: %+v", key, got)
		}
		if got := s.Status(deadline(t, time.Minute), []dispatch.Assignment{a})[0]; got.Outcome != dispatch.InvalidMessage {
			t.Errorf("key %s, asked: %+v", key, got)
		}
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("the ledger saw %d requests", n)
	}
}

func TestScabbard(t *testing.T) {
	services := []string{"abcde-12345::gsAA", "abcde-12345::gsBB"}
	node := &targettest.Scabbard{Services: services, Token: "Cylinder:jwt", Manual: true, Invalid: refuseX}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("Cylinder:jwt\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := serve(t, node.ServeHTTP)
	s := newScabbard(t, url, file)
	ctx := deadline(t, time.Minute)
	good, bad, other := signed("good", "a", "b"), signed("bad", "x"), signed("other", "c")
	other.Key = services[1]
	all := []dispatch.Assignment{other, good, bad}
	for _, a := range all {
		got := s.Submit(ctx, a)
		want := "/scabbard/abcde-12345/" + a.Key[13:] + "/batch_statuses?ids=" + a.ID
		if got.Outcome != dispatch.Accepted || got.Link != want {
			t.Fatalf("got %+v", got)
		}
	}
	ask := func(want ...dispatch.Outcome) []dispatch.Answer {
		t.Helper()
		got := s.Status(ctx, all)
		if diff := cmp.Diff(want, outcomes(got)); diff != "" {
			t.Error(diff)
		}
		return got
	}
	ask(dispatch.Accepted, dispatch.Accepted, dispatch.Accepted)
	node.Commit(services[0], 2)
	if got := ask(dispatch.Accepted, dispatch.Done, dispatch.InvalidMessage); !strings.HasSuffix(got[2].Detail, ": x is not possible") {
		t.Errorf("detail %q", got[2].Detail)
	}
	node.Restart()
	if got := ask(dispatch.NotFound, dispatch.Done, dispatch.NotFound); !strings.Contains(got[1].Detail, "receipts") {
		t.Errorf("what is not remembered has left receipts: %+v", got[1])
	}

	if got := newScabbard(t, url, "").Submit(ctx, good); got.Outcome != dispatch.Misconfigured || got.Code != 401 {
		t.Errorf("without a token: %+v", got)
	}
	lost := good
	lost.Key = "abcde-12345::gsCC"
	if got := s.Submit(ctx, lost); got.Outcome != dispatch.Misconfigured || got.Code != 404 {
		t.Errorf("a service that is not there: %+v", got)
	}
	if got := s.Semantics(); got.Resend || !got.HasStatus || !got.Forgets {
		t.Errorf("%+v", got)
	}
	// Why it must not be sent again: it is carried out again, and the circuit ends.
	s.Submit(ctx, good)
	node.Commit(services[0], 1)
	if diff := cmp.Diff([]string{good.ID, good.ID}, node.Effects()); diff != "" || !node.HasDiverged("abcde-12345") {
		t.Error(diff)
	}
	s.Submit(ctx, bad)
	node.Commit(services[0], 1)
	ask(dispatch.NotFound, dispatch.Executed, dispatch.Executed) // for ever
}

// TestScabbardNodeState: what is the node's state and not the batch's is a delay.
func TestScabbardNodeState(t *testing.T) {
	var fault atomic.Value
	fault.Store(targettest.Fault{})
	node := &targettest.Scabbard{Services: []string{"abcde-12345::gsAA"}, Fault: func(*http.Request) targettest.Fault { return fault.Load().(targettest.Fault) }}
	s := newScabbard(t, serve(t, node.ServeHTTP), "")
	ctx, a := deadline(t, time.Minute), signed("a", "a")
	fault.Store(targettest.Fault{Status: 400, Body: `{"libsplinter_version":"0.8.0","message":"no version in common","requested_protocol":"1","splinter_protocol":"2"}`})
	if got := s.Submit(ctx, a); got.Outcome != dispatch.Misconfigured || got.Permanent || got.Detail != "no version in common" {
		t.Errorf("another protocol version: %+v", got)
	}
	fault.Store(targettest.Fault{Status: 400, Body: `{"message":"No valid batches provided"}`})
	if got := s.Submit(ctx, a); got.Outcome != dispatch.InvalidMessage {
		t.Errorf("a bad signature: %+v", got)
	}
	fault.Store(targettest.Fault{Status: 401, Body: `{"code":"401","message":"Client is not authorized"}`})
	if got := s.Submit(ctx, a); got.Outcome != dispatch.Misconfigured || got.Detail != "Client is not authorized" {
		t.Errorf("a code that is a string: %+v", got)
	}
	fault.Store(targettest.Fault{})
	node.Stop()
	if got := s.Submit(ctx, a); got.Outcome != dispatch.Misconfigured || got.Permanent || got.Detail != "scabbard service gsAA on circuit abcde-12345 not found" {
		t.Errorf("a node that stops: %+v", got)
	}
	if got := s.Status(ctx, []dispatch.Assignment{a})[0]; got.Outcome != dispatch.Uncertain {
		t.Errorf("a node that stops, asked: %+v", got)
	}
	node.Restart()
	if got := s.Submit(ctx, a); got.Outcome != dispatch.Accepted {
		t.Errorf("after that: %+v", got)
	}
}

// TestScabbardReason: of an invalid batch, the transaction that failed is named, and not those that fell with it.
func TestScabbardReason(t *testing.T) {
	node := &targettest.Scabbard{Services: []string{"abcde-12345::gsAA"}, Invalid: refuseX}
	s := newScabbard(t, serve(t, node.ServeHTTP), "")
	payloads := slices.Repeat([]string{"good"}, 20) // 20 entries for good ones are more than a detail keeps
	ctx, a := deadline(t, time.Minute), signed("a", append(payloads, "x")...)
	s.Submit(ctx, a)
	got := s.Status(ctx, []dispatch.Assignment{a})[0]
	if detail := dispatch.CutDetail(got.Detail); got.Outcome != dispatch.InvalidMessage || !strings.HasSuffix(detail, ": x is not possible") || strings.Contains(detail, "containing batch") {
		t.Errorf("%+v", got)
	}
}

func TestScabbardMany(t *testing.T) {
	node := &targettest.Scabbard{Services: []string{"abcde-12345::gsAA"}, Manual: true, Older: true}
	s := newScabbard(t, serve(t, node.ServeHTTP), "")
	ctx := deadline(t, time.Minute)
	var as []dispatch.Assignment
	for i := range 32 {
		as = append(as, signed(fmt.Sprint(i), "a"))
		want := dispatch.Accepted
		if i == 31 {
			want = dispatch.Busy // its queue is full
		}
		if got := s.Submit(ctx, as[i]); got.Outcome != want {
			t.Errorf("batch %d: %+v", i+1, got)
		}
	}
	node.Commit("abcde-12345::gsAA", 20)
	// An older node refuses to speak of a batch that is not decided.
	want := slices.Repeat([]dispatch.Outcome{dispatch.Done}, 32)
	for i := 20; i < 32; i++ {
		want[i] = dispatch.Uncertain
	}
	if diff := cmp.Diff(want, outcomes(s.Status(ctx, as))); diff != "" {
		t.Error(diff)
	}
	if got := s.Submit(ctx, as[31]); got.Outcome != dispatch.Accepted {
		t.Errorf("after its queue was emptied: %+v", got)
	}
}

// TestNeverDecided: what real nodes take and never decide is pending, executed or not known for ever, and said to be so.
func TestNeverDecided(t *testing.T) {
	signer, ctx := targettest.NewSigner("ledger"), deadline(t, time.Minute)
	batch := func(spec targettest.Spec) (a dispatch.Assignment, txns []string) {
		id, raw := signer.Make(spec)
		a = assignment("abcde-12345::gsAA", id, string(targettest.List(raw)))
		list, err := sawtooth.ParseList(targettest.List(raw))
		if err == nil {
			err = list[0].Transactions(func(t sawtooth.Transaction) error { txns = append(txns, t.ID); return nil })
		}
		if err != nil {
			t.Fatal(err)
		}
		return a, txns
	}
	check := func(name string, to dispatch.Target, a dispatch.Assignment, want dispatch.Outcome) {
		t.Helper()
		if got := to.Submit(ctx, a); got.Outcome != dispatch.Accepted {
			t.Errorf("%s: %+v", name, got)
		}
		a.Work = dispatch.Poll
		if got := to.Status(ctx, []dispatch.Assignment{a})[0]; got.Outcome != want {
			t.Errorf("%s: %+v, want %s", name, got, want)
		}
	}
	validator := newSawtooth(t, serve(t, (&targettest.Sawtooth{Invalid: refuseX}).ServeHTTP))
	bad, of := batch(targettest.Spec{Nonce: "bad", Payloads: []string{"x"}})
	check("invalid", validator, bad, dispatch.InvalidMessage)
	after, _ := batch(targettest.Spec{Nonce: "after", Payloads: []string{"a"}, After: of})
	check("after an invalid one", validator, after, dispatch.Accepted)
	lost, _ := batch(targettest.Spec{Nonce: "lost", Payloads: []string{"a"}, After: []string{strings.Repeat("a", 128)}})
	check("after one that was never seen", validator, lost, dispatch.NotFound)

	node := &targettest.Scabbard{Services: []string{"abcde-12345::gsAA"}, Families: []string{"intkey"}, Follows: true, Invalid: refuseX}
	service := newScabbard(t, serve(t, node.ServeHTTP), "")
	foreign, _ := batch(targettest.Spec{Nonce: "foreign", Payloads: []string{"a"}, Family: "xo"})
	check("of an unknown family", service, foreign, dispatch.Accepted)
	check("invalid, where another service coordinates", service, bad, dispatch.Accepted)
	node.SetPeerDown(true)
	check("while the peer is down", service, after, dispatch.Executed)
	node.SetPeerDown(false)
	if got := service.Status(ctx, []dispatch.Assignment{after})[0]; got.Outcome != dispatch.Executed {
		t.Errorf("the peer is back: %+v", got)
	}
}

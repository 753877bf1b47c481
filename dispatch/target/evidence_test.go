package target_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/target"
	"github.com/understudy-ha/understudy/dispatch/target/targettest"
	"github.com/understudy-ha/understudy/lease"
)

// TestScabbardEvidence: before an operator is asked, the other service of the circuit is, and the receipts are read.
func TestScabbardEvidence(t *testing.T) {
	const here, there = "abcde-12345::gsAA", "abcde-12345::gsBB"
	var hangs atomic.Bool
	other := &targettest.Scabbard{Services: []string{there}, Token: "Cylinder:jwt", Fault: func(*http.Request) targettest.Fault {
		return targettest.Fault{Never: hangs.Load()}
	}}
	node := &targettest.Scabbard{Services: []string{here, "fghij-12345::gsAA"}, Invalid: refuseX, Follows: true, Peers: []*targettest.Scabbard{other}, Token: "Cylinder:jwt"}
	url, otherURL := serve(t, node.ServeHTTP), serve(t, other.ServeHTTP)+"/scabbard/abcde-12345/gsBB"
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("Cylinder:jwt\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	connect := func(also ...string) *target.Scabbard {
		t.Helper()
		s, err := target.NewScabbard(target.ScabbardConfig{HTTPConfig: target.HTTPConfig{URL: url, TokenFile: token}, OtherServices: also})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s, alone := connect(otherURL), connect()
	ctx := deadline(t, time.Minute)
	good, bad, never := signed("good", "a", "b"), signed("bad", "x"), signed("never", "a")
	for _, a := range []dispatch.Assignment{good, bad} {
		if got := s.Submit(ctx, a); got.Outcome != dispatch.Accepted {
			t.Fatalf("%+v", got)
		}
	}
	ask := func(s *target.Scabbard, a dispatch.Assignment, work dispatch.Work, want dispatch.Outcome, detail string) {
		t.Helper()
		a.Work = work
		if got := s.Status(ctx, []dispatch.Assignment{a})[0]; got.Outcome != want || !strings.Contains(got.Detail, detail) {
			t.Errorf("got %+v, want %s, %q", got, want, detail)
		}
	}
	// Here it stays pending for ever; the service that coordinates knows better.
	ask(s, bad, dispatch.Poll, dispatch.Accepted, "")
	bad.Undecided = time.Minute
	ask(s, bad, dispatch.Poll, dispatch.InvalidMessage, "x is not possible; so says "+otherURL)
	ask(alone, bad, dispatch.Poll, dispatch.Accepted, "")

	node.Restart()
	ask(s, good, dispatch.Poll, dispatch.NotFound, "")
	ask(s, good, dispatch.Resolve, dispatch.Done, "so says "+otherURL)
	ask(alone, good, dispatch.Resolve, dispatch.Done, "the receipts of its transactions are at "+url+"/scabbard/abcde-12345/gsAA")
	elsewhere := good
	elsewhere.Key = "fghij-12345::gsAA" // another circuit
	var both sync.WaitGroup             // each reads until no more receipts come
	both.Go(func() { ask(s, never, dispatch.Resolve, dispatch.NotFound, "has forgotten it") })
	both.Go(func() { ask(s, elsewhere, dispatch.Resolve, dispatch.NotFound, "has forgotten it") })
	both.Wait()

	// A search that could not be made has not found nothing.
	hangs.Store(true)
	ctx = deadline(t, 900*time.Millisecond)
	ask(s, good, dispatch.Resolve, dispatch.Done, "the receipts of its transactions are at "+url)
	ask(s, never, dispatch.Resolve, dispatch.Uncertain, "has forgotten it; "+url+"/scabbard/abcde-12345/gsAA was not searched: reading its receipts takes too long; "+otherURL+" was not searched: no answer")
	hangs.Store(false)
	ctx = deadline(t, time.Minute)

	other.Stop()
	ask(s, good, dispatch.Resolve, dispatch.Done, "the receipts of its transactions are at "+url)

	for _, wrong := range []string{"", "ftp://x/scabbard/abcde-12345/gsBB", "http://x/abcde-12345/gsBB", "http://x/scabbard/abcde-12345", "http://x/scabbard/abcde/gsBB", "http://u:p@x/scabbard/abcde-12345/gsBB"} {
		_, err := target.NewScabbard(target.ScabbardConfig{HTTPConfig: target.HTTPConfig{URL: url}, OtherServices: []string{wrong}})
		if !errors.Is(err, lease.ErrInvalid) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("other service %q: %v", wrong, err)
		}
	}
}

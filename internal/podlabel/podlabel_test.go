package podlabel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/kubeapi"
)

// shownBy is what a stand-in's pod shows now.
func shownBy(api *kubeapi.Server) (label, epoch string) {
	labels, annotations := api.History()
	label, _ = labels[len(labels)-1][Label].(string)
	epoch, _ = annotations[len(annotations)-1][Annotation].(string)
	return label, epoch
}

func wantShown(t *testing.T, api *kubeapi.Server, label, epoch string) {
	t.Helper()
	if l, e := shownBy(api); l != label || e != epoch {
		t.Errorf("the pod shows %q and epoch %q, want %q and %q", l, e, label, epoch)
	}
}

// near is a pod whose requests go to the stand-in without a network.
func near(api *kubeapi.Server) *Pod {
	return &Pod{log: slog.New(slog.DiscardHandler), wake: make(chan struct{}, 1), deadline: deadline, send: func(ctx context.Context, body []byte) ([]byte, error) { return deliver(api, body) }}
}

func deliver(api *kubeapi.Server, body []byte) ([]byte, error) {
	switch code, answer := api.Patch(body); code {
	case http.StatusOK:
		return answer, nil
	case http.StatusConflict:
		return nil, errConflict
	default:
		return nil, &refusal{status: code, message: string(answer)}
	}
}

// start runs a pod until the returned function is called.
func start(t *testing.T, p *Pod) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return func() { cancel(); <-done }
}

func TestRolesAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := kubeapi.New("shop", "orders-0", "")
		p := near(api)
		stop := start(t, p)
		time.Sleep(time.Hour)
		if n := api.Patches(); n != 0 {
			t.Errorf("%d requests before a role is known", n)
		}
		p.Set(false, 0)
		synctest.Wait()
		wantShown(t, api, "", "")
		before := api.Patches()
		p.Set(true, 7)
		synctest.Wait()
		wantShown(t, api, Primary, "7")
		if n := api.Patches() - before; n != 1 {
			t.Errorf("a promotion took %d requests, want 1", n)
		}
		p.Set(false, 7)
		synctest.Wait()
		wantShown(t, api, "", "7")
		if n := api.Patches() - before; n != 2 {
			t.Errorf("a demotion took %d requests, want 1", n-1)
		}
		api.Touch() // the version from before has passed
		p.Set(true, 8)
		time.Sleep(time.Second)
		wantShown(t, api, Primary, "8")

		// Somebody takes the label away; it is put back, and while nothing changes there are two requests a minute.
		api.Patch([]byte(`{"metadata":{"labels":{"understudy/role":null}}}`))
		time.Sleep(recheck + time.Second)
		wantShown(t, api, Primary, "8")
		before = api.Patches()
		time.Sleep(time.Hour)
		if n := api.Patches() - before; n < 100 || n > 130 {
			t.Errorf("%d requests an hour while nothing changes", n)
		}
		p.Set(false, 0) // as the agent leaves
		stop()
		wantShown(t, api, "", "8")
	})
}

// An agent that starts in a pod with a label leaves it until the role is known, and never goes back to an older epoch.
func TestNewerEpochStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := kubeapi.New("shop", "orders-0", "")
		api.Patch([]byte(`{"metadata":{"labels":{"understudy/role":"primary"},"annotations":{"understudy/epoch":"9"}}}`))
		var log bytes.Buffer
		p := near(api)
		p.log = slog.New(slog.NewTextHandler(&log, nil))
		stop := start(t, p)
		synctest.Wait()
		wantShown(t, api, Primary, "9")
		p.Set(false, 0)
		synctest.Wait()
		wantShown(t, api, "", "9")
		p.Set(true, 8)
		time.Sleep(10 * time.Minute)
		wantShown(t, api, "", "9")
		if n := strings.Count(log.String(), "newer epoch"); n != 1 {
			t.Errorf("%d lines of it:\n%s", n, log.String())
		}
		p.Set(true, 10)
		time.Sleep(time.Second)
		wantShown(t, api, Primary, "10")
		stop()
	})
}

// TestLateRequests changes the role again and again while requests are lost, answered to nobody, or carried out long after they were given
// up: the epoch that the pod shows never falls, no label of an older epoch comes back over a newer one, and in the end the pod shows the role.
func TestLateRequests(t *testing.T) {
	violations := func(t *testing.T, seed uint64, lax bool) (found []string) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 23))
			api := kubeapi.New("shop", "orders-0", "")
			api.Lax = lax
			p := near(api)
			var quiet atomic.Bool
			faults := rand.New(rand.NewPCG(seed, 24))
			p.send = func(ctx context.Context, body []byte) ([]byte, error) {
				body = bytes.Clone(body)
				if quiet.Load() {
					return deliver(api, body)
				}
				lost := errors.New("connection reset")
				switch faults.IntN(8) {
				case 0:
					return nil, lost
				case 1:
					_, _ = deliver(api, body)
					return nil, lost
				case 2: // the API server's own time limit is a minute
					time.AfterFunc(time.Duration(faults.IntN(60_000))*time.Millisecond, func() { _, _ = deliver(api, body) })
					<-ctx.Done()
					return nil, ctx.Err()
				case 3:
					return nil, &refusal{status: 429, retryAfter: time.Duration(faults.IntN(10)) * time.Second}
				case 4:
					api.Touch()
				}
				return deliver(api, body)
			}
			stop := start(t, p)
			epoch, primary := int64(0), false
			for range 60 {
				if primary = !primary; primary {
					epoch += random.Int64N(3) // sometimes the same one goes on
				}
				p.Set(primary, epoch)
				time.Sleep(time.Duration(random.IntN(20_000)) * time.Millisecond)
			}
			time.Sleep(2 * time.Minute)
			quiet.Store(true)
			time.Sleep(2 * recheck)
			want := ""
			if primary {
				want = Primary
			}
			if got, _ := shownBy(api); got != want {
				found = append(found, fmt.Sprintf("in the end the pod shows %q, want %q", got, want))
			}
			stop()
			_, annotations := api.History()
			highest := int64(0)
			for _, a := range annotations {
				text, _ := a[Annotation].(string)
				n, _ := strconv.ParseInt(text, 10, 64)
				if n < highest {
					found = append(found, fmt.Sprintf("epoch %d after %d", n, highest))
				}
				highest = max(highest, n)
			}
			if highest == 0 {
				found = append(found, "nothing was labelled")
			}
		})
		return found
	}
	caught := 0
	for seed := range uint64(12) {
		if found := violations(t, seed, false); len(found) > 0 {
			t.Errorf("seed %d: %s", seed, strings.Join(found, "; "))
		}
		caught += min(1, len(violations(t, seed, true)))
	}
	if caught == 0 {
		t.Error("a server that accepts a PATCH of a version that has passed was not caught")
	}
}

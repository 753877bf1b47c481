//go:build linux

package fault_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/cache/client"
	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// patience is what a busy machine is given.
const patience = time.Minute

// TestFaultCache hurts the peers of a cache one way at a time.
func TestFaultCache(t *testing.T) {
	t.Parallel()
	programs := fault.Build(t)
	for _, s := range []struct {
		name string
		run  func(*testing.T, fault.Programs)
	}{
		{"network", cutLinks},
		{"chaos", cacheChaos},
		{"fetching peer killed", killedFetching},
		{"fetching peer killed, its source is a program", killedWithProgram},
		{"peer killed before it asks", func(t *testing.T, p fault.Programs) { killedAt(t, p, "raise") }},
		{"peer killed when it has won", func(t *testing.T, p fault.Programs) { killedAt(t, p, "won") }},
		{"peer killed when it has the value", func(t *testing.T, p fault.Programs) { killedAt(t, p, "fetched") }},
		{"fetching peer stopped in order", stoppedInOrder},
		{"fetching peer paused", pausedFetching},
		{"peer paused when it has won", func(t *testing.T, p fault.Programs) { pausedAt(t, p, "won") }},
		{"peer paused when it has the value", func(t *testing.T, p fault.Programs) { pausedAt(t, p, "fetched") }},
		{"voter paused", pausedVoter},
		{"all but one paused", pausedAllButOne},
		{"source called twice is seen", doubleIsSeen},
		{"source fails", sourceFails},
		{"source hangs", sourceHangs},
		{"source is slower than the time to live", sourceSlow},
		{"source gives too much", sourceLarge},
		{"source flaps", sourceFlaps},
		{"source panics", sourcePanics},
		{"clocks are wrong", wrongClocks},
		{"disk is full", fullDisk},
		{"data directory is removed", diskRemoved},
		{"disk cannot be written", diskReadOnly},
		{"members change while peers die", membersChange},
		{"malformed messages", malformed},
		{"random bytes", randomBytes},
		{"flood", flood},
		{"subscriptions", fickle},
		{"many connections", manyConnections},
		{"clients that do not read", deafClients},
		{"clients that leave while they wait", fleeting},
		{"slow peer", slowPeer},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(t, programs)
		})
	}
}

// peersOf are peers of a source that is held until its callers go.
func peersOf(t *testing.T, programs fault.Programs, change func(*fault.PeersConfig)) *fault.Peers {
	t.Helper()
	cfg := fault.PeersConfig{Programs: programs, Origin: fault.NewOrigin(t, "127.0.0.1:0")}
	if change != nil {
		change(&cfg)
	}
	return fault.NewPeers(t, cfg)
}

// lasting has values stay fresh, so that one fetch of each is enough.
func lasting(cfg *fault.PeersConfig) { cfg.TTL = time.Minute }

// patient has silent peers be waited for so long that a busy machine, too, sees the
// difference when they are not; see prompt.
func patient(cfg *fault.PeersConfig) { cfg.TTL, cfg.Announce = time.Minute, 6*time.Second }

// seek asks a peer for a key over and over, until it has a value, and sends that.
func seek(t *testing.T, p *fault.Peer, key string) <-chan fault.Answer {
	out := make(chan fault.Answer, 1)
	c := fault.NewCacheClient(t, p)
	go func() {
		for {
			a := p.Ask(t.Context(), c, key, client.Options{}, 2*patience)
			if a.Err == nil || errors.Is(a.Err, client.ErrClosed) || t.Context().Err() != nil {
				out <- a
				return
			}
			<-time.After(10 * time.Millisecond)
		}
	}()
	return out
}

// judge wants no rule broken.
func judge(t *testing.T, e fault.CacheEvidence) fault.CacheVerdict {
	t.Helper()
	v := fault.JudgeCache(e)
	for _, violation := range v.Violations {
		t.Errorf("VIOLATION %s", violation)
	}
	return v
}

func got(t *testing.T, from <-chan fault.Answer) fault.Answer {
	t.Helper()
	select {
	case a := <-from:
		if a.Err != nil {
			t.Fatal(a.Err)
		}
		return a
	case <-time.After(2 * patience):
		t.Fatal("nobody was answered")
		panic("unreachable")
	}
}

// handover has all ask, hurts the one that fetches first, and waits until another
// has fetched. It returns how long nobody began after the hurt.
func handover(t *testing.T, c *fault.Peers, key string, hurt func(*fault.Peer) time.Duration) (fault.Call, time.Duration) {
	t.Helper()
	o := c.Origin
	// A connection that breaks when it has hardly started is made again more slowly.
	c.Pass(200 * time.Millisecond)
	n := len(o.Calls())
	o.Answer(func(fault.Call) fault.Plan { return fault.Plan{Hold: true} })
	var waiting []<-chan fault.Answer
	asked := map[string]<-chan fault.Answer{}
	for _, p := range c.All() {
		asked[p.Name] = seek(t, p, key)
	}
	first := o.Await(t, key, n, 2*patience)
	for name, from := range asked {
		if name != first.Peer {
			waiting = append(waiting, from)
		}
	}
	o.Answer(func(fault.Call) fault.Plan { return fault.Plan{Delay: 50 * time.Millisecond} })
	at := hurt(c.Named(first.Peer))
	second := o.Await(t, key, first.N+1, 2*patience)
	if second.Peer == first.Peer {
		t.Errorf("%s fetches again; it was hurt", first.Peer)
	}
	var answers []fault.Answer
	for _, from := range waiting {
		a := got(t, from)
		if answers = append(answers, a); a.Term < second.Term {
			t.Errorf("%s gave term %d; %s fetched in %d", a.Peer, a.Term, second.Peer, second.Term)
		}
	}
	judge(t, fault.CacheEvidence{Calls: o.Calls(), Answers: answers})
	return second, second.Begun - at
}

func killedFetching(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, nil)
	c.Start()
	var took []time.Duration
	for _, key := range []string{"a", "b", "c"} {
		var dead *fault.Peer
		_, after := handover(t, c, key, func(p *fault.Peer) time.Duration { dead = p; return p.Kill() })
		took = append(took, after)
		dead.Start()
		c.Ready()
	}
	prompt(t, c, took)
}

// prompt wants the takeovers to have been at once: not after a time-out.
func prompt(t *testing.T, c *fault.Peers, took []time.Duration) {
	t.Helper()
	slices.Sort(took)
	t.Logf("from SIGKILL to the next fetch: %v", took)
	if took[0] > c.Announce-c.Announce/4 {
		t.Errorf("the fastest of %v took as long as a silent peer", took)
	}
}

func killedWithProgram(t *testing.T, programs fault.Programs) {
	realserver.Find(t, "curl")
	c := peersOf(t, programs, func(cfg *fault.PeersConfig) { cfg.Announce, cfg.Options = 6*time.Second, fault.Curl() })
	c.Start()
	_, after := handover(t, c, "a", (*fault.Peer).Kill)
	prompt(t, c, []time.Duration{after})
	// Whose source is a program dies with it: nothing holds the first call open.
	realserver.Eventually(t, patience, "the first call has ended", func() error {
		if running := c.Origin.Running("a"); len(running) > 0 {
			return errors.New("it runs")
		}
		return nil
	})
}

// atGate has one peer, a cacheworker, come to a gate, and hurts it there.
func atGate(t *testing.T, programs fault.Programs, at string, change func(*fault.PeersConfig), hurt func(*fault.Peer) time.Duration) (c *fault.Peers, second fault.Call, after time.Duration) {
	t.Helper()
	c = peersOf(t, programs, change)
	w := c.Named("p1")
	w.Worker, w.Options = true, []string{"-gates", at}
	c.Start()
	c.Origin.Takes(10 * time.Millisecond)
	c.Pass(200 * time.Millisecond) // see handover
	seek(t, w, "a")
	gate := c.Origin.AwaitGate(t, at, 2*patience)
	n := len(c.Origin.Calls())
	others := c.But(w)
	var waiting []<-chan fault.Answer
	for _, p := range others {
		waiting = append(waiting, seek(t, p, "a"))
	}
	when := hurt(w)
	second = c.Origin.Await(t, "a", n, 2*patience)
	if second.Peer == w.Name {
		t.Errorf("%s fetches; it was hurt", w.Name)
	}
	var answers []fault.Answer
	for _, from := range waiting {
		answers = append(answers, got(t, from))
	}
	judge(t, fault.CacheEvidence{Calls: c.Origin.Calls(), Answers: answers})
	gate.GoOn()
	return c, second, second.Begun - when
}

func killedAt(t *testing.T, programs fault.Programs, at string) {
	c, _, after := atGate(t, programs, at, patient, (*fault.Peer).Kill)
	if at == "raise" {
		return // it had asked nobody: the others did not wait for it
	}
	prompt(t, c, []time.Duration{after})
}

func stoppedInOrder(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, nil)
	c.Start()
	_, after := handover(t, c, "a", func(p *fault.Peer) time.Duration {
		c.Origin.Answer(func(fault.Call) fault.Plan { return fault.Plan{} })
		at := p.Stopped()
		return at
	})
	t.Logf("from SIGTERM to the next fetch: %v", after)
}

func pausedFetching(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, lasting)
	c.Start()
	var paused *fault.Peer
	second, after := handover(t, c, "a", func(p *fault.Peer) time.Duration { paused = p; return p.Pause() })
	silentFor(t, c, after)
	waked(t, c, paused, "a", second)
}

// silentFor wants the takeover to have come with the announce timeout.
func silentFor(t *testing.T, c *fault.Peers, after time.Duration) {
	t.Helper()
	t.Logf("from the fault to the next fetch: %v, of which %v are over the announce timeout", after, after-c.Announce)
	if after > c.Announce+patience/2 {
		t.Errorf("the next fetch began after %v; the announce timeout is %v", after, c.Announce)
	}
}

// waked lets a peer continue, whose fetch is no longer the newest: its value must not
// replace that of the second.
func waked(t *testing.T, c *fault.Peers, p *fault.Peer, key string, second fault.Call) {
	t.Helper()
	p.GoOn()
	realserver.Eventually(t, 2*patience, "all have the newer value", func() error {
		for _, p := range c.All() {
			a := p.Ask(t.Context(), fault.NewCacheClient(t, p), key, client.Options{}, patience)
			if a.Err != nil {
				return a.Err
			}
			if a.Term < second.Term {
				return errors.New(p.Name + " has an older one")
			}
		}
		return nil
	})
	var answers []fault.Answer
	for range 5 {
		for _, p := range c.All() {
			answers = append(answers, p.Ask(t.Context(), fault.NewCacheClient(t, p), key, client.Options{}, patience))
		}
	}
	for _, a := range answers {
		if a.Err != nil || a.Term < second.Term {
			t.Errorf("%s gave term %d, %v; the newest is at least %d", a.Peer, a.Term, a.Err, second.Term)
		}
	}
	v := judge(t, fault.CacheEvidence{Calls: c.Origin.Calls(), Answers: answers})
	if v.Apart > 1+c.Origin.Standstills() {
		t.Errorf("%d calls overlapped with one of the peer that was paused", v.Apart)
	}
}

func pausedAt(t *testing.T, programs fault.Programs, at string) {
	var paused *fault.Peer
	c, second, after := atGate(t, programs, at, lasting, func(p *fault.Peer) time.Duration { paused = p; return p.Pause() })
	silentFor(t, c, after)
	waked(t, c, paused, "a", second)
}

func pausedVoter(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, lasting)
	c.Start()
	c.Origin.Takes(100 * time.Millisecond)
	voter := c.Named("p3")
	voter.Pause()
	for _, key := range []string{"a", "b", "c"} {
		got(t, seek(t, c.Named("p1"), key))
	}
	voter.GoOn()
	a := got(t, seek(t, voter, "c"))
	judge(t, fault.CacheEvidence{Calls: c.Origin.Calls(), Answers: []fault.Answer{a}})
	if n := len(c.Origin.Calls()); n > 4 {
		t.Errorf("three keys were fetched %d times", n)
	}
}

// Whoever is alone gives what it has, and nothing is fetched before the others
// go on.
func pausedAllButOne(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, nil)
	c.Start()
	c.Origin.Takes(10 * time.Millisecond)
	alone := c.Named("p1")
	old := got(t, seek(t, alone, "a"))
	for _, p := range c.But(alone) {
		p.Pause()
	}
	realserver.Eventually(t, 2*patience, "a peer without a majority says so", func() error {
		if a := alone.Get("b", "", 5*time.Second); fault.Status(a.Err) != 503 {
			return a.Err
		}
		return nil
	})
	n := len(c.Origin.Calls())
	if a := alone.Get("a", "", patience); a.Err != nil || a.Term != old.Term {
		t.Errorf("asked for what it has, it gave term %d, %v", a.Term, a.Err)
	}
	for _, p := range c.But(alone) {
		p.GoOn()
	}
	answers := []fault.Answer{got(t, seek(t, alone, "b")), got(t, seek(t, c.Named("p2"), "c"))}
	for _, call := range c.Origin.Calls()[:n] {
		if call.Key == "b" {
			t.Error("it fetched without a majority")
		}
	}
	judge(t, fault.CacheEvidence{Calls: c.Origin.Calls(), Answers: answers})
}

// awake are the calls of peers none of which was paused: a machine that stood still is
// no excuse for what the judge must see.
func awake(o *fault.Origin) []fault.Call {
	calls := o.Calls()
	for i := range calls {
		calls[i].Apart = false
	}
	return calls
}

// doubleIsSeen has peers whose source is called twice: the judge must see it. The
// other twin, whose source does not obey its context, is among the cut links.
func doubleIsSeen(t *testing.T, programs fault.Programs) {
	c := peersOf(t, programs, nil)
	for _, p := range c.All() {
		p.Worker, p.Options = true, []string{"-double"}
	}
	c.Start()
	c.Origin.Takes(200 * time.Millisecond)
	got(t, seek(t, c.Named("p1"), "a"))
	seen := map[fault.Rule]bool{}
	for _, v := range fault.JudgeCache(fault.CacheEvidence{Calls: awake(c.Origin)}).Violations {
		seen[v.Rule] = true
	}
	if !seen[fault.Overlap] || !seen[fault.Terms] {
		t.Errorf("the judge sees %v", seen)
	}
}

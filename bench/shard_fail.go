package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
)

const (
	// gentle is a writer's pause between writes, where nothing but the moment counts.
	gentle = time.Millisecond
	// settling is how long a writer writes before and after.
	settling = 300 * time.Millisecond
	// outageWithin is until an outage should be over, whoever watches.
	outageWithin = time.Minute

	// Sticky clients stay with the old primary when it goes on.
	stickyFor     = 3 * time.Second
	stickyClients = 50
	stickyBatch   = 16
	stickyPause   = 50 * time.Millisecond
)

// fast is the timing for a takeover after a second of silence; usual is the default.
func fast() lease.Timing { return lease.Timing{Interval: 200 * time.Millisecond, Timeout: time.Second} }
func usual() lease.Timing {
	return lease.Timing{Interval: lease.DefaultInterval, Timeout: lease.DefaultTimeout}
}

// outage is one way in which a primary fails.
type outage struct {
	section, name string
	timing        lease.Timing
	signal        syscall.Signal // SIGSTOP is followed by SIGCONT
	both          bool           // its agent fails with it
	bound         time.Duration
	ratio         float64 // to Sentinel's; 0 for none
	strict        bool    // nothing may be accepted by the old primary afterwards
}

func outagesOfShards() []outage {
	t := fast().Timeout
	return []outage{
		{section: "node", name: "node killed", timing: usual(), signal: syscall.SIGKILL, bound: 150 * time.Millisecond},
		{section: "host", name: "node and agent killed", timing: fast(), signal: syscall.SIGKILL, both: true, bound: t + 300*time.Millisecond, ratio: 0.6},
		{section: "silent", name: "node and agent silent", timing: fast(), signal: syscall.SIGSTOP, both: true, bound: max(t, 2*time.Second) + 500*time.Millisecond},
		{section: "hung", name: "node hung", timing: fast(), signal: syscall.SIGSTOP, bound: t + 500*time.Millisecond, strict: true},
	}
}

// victim is the primary's processes, found while they answer.
type victim struct {
	pid   int
	agent *realserver.Process // nil if it is spared, or if there is none
}

func (v victim) signal(s syscall.Signal) {
	if v.agent != nil {
		v.agent.Signal(s)
	}
	_ = syscall.Kill(v.pid, s)
}

// came is what came of one outage.
type came struct {
	down     time.Duration
	lost     int // acknowledged before, and gone
	accepted int // by the old primary, after the new one had accepted something
}

// shardTrials compares outages of a trio of agents with those of a trio of Sentinels.
type shardTrials struct {
	b    *bed
	r    *Report
	prog agentProgram
	kind string // of the store
	n    int    // of the next shard

	serverPid int // of the store; 0 if that is not known
}

func newShardTrials(ctx context.Context, b *bed, r *Report, program, kind string) *shardTrials {
	var p place
	if kind == "postgres" {
		server := startPostgres(b, map[string]string{"max_connections": "300"})
		p = place{kind: kind, url: server.NewDatabase(b), pid: postmaster(b, server)}
	} else {
		p = startOne(b, kind)
	}
	_, shards := openShards(ctx, b, p.url, 2)
	pid := p.pid
	if u, err := url.Parse(p.url); kind == "redis" && err == nil {
		pid, _ = strconv.Atoi(infoField(u.Host, "server", "process_id"))
	}
	return &shardTrials{b: b, r: r, kind: kind, serverPid: pid, prog: agentProgram{path: program, store: p.url, registry: shards.Registry()}}
}

// pair starts one of each, both new.
func (s *shardTrials) pair(timing lease.Timing) (ours, theirs *trio) {
	s.n++
	ours = startAgents(s.b, s.prog, fmt.Sprintf("bench-%d", s.n), timing)
	theirs = startSentinels(s.b, fmt.Sprintf("bench-%d", s.n))
	ours.ready()
	theirs.ready()
	return ours, theirs
}

// rounds runs f with each of both trios, in turns, and ends them.
func (s *shardTrials) rounds(n int, timing lease.Timing, f func(t *trio, ours bool)) {
	for round := range n {
		ours, theirs := s.pair(timing)
		for turn := range 2 {
			if (round+turn)%2 == 0 {
				f(ours, true)
			} else {
				f(theirs, false)
			}
		}
		ours.end()
		theirs.end()
	}
}

// outage measures one kind of outage and reports it.
func (s *shardTrials) outage(ctx context.Context, o outage, rounds int) {
	var ours, theirs []came
	s.rounds(rounds, o.timing, func(t *trio, mine bool) {
		c := t.suffer(ctx, o)
		fmt.Fprintf(os.Stderr, "    %-10s %s: %v, %d lost, %d accepted afterwards%s\n", t.who(), o.name, c.down.Round(100*time.Microsecond), c.lost, c.accepted, t.story())
		if mine {
			ours = append(ours, c)
		} else {
			theirs = append(theirs, c)
		}
	})
	mine, peer := downs(ours), downs(theirs)
	what := o.name + ": until the new primary has accepted a write, "
	f := Figure{Section: o.section, Subject: s.kind, Unit: "ms", Versus: sentinelPeer, Count: len(mine)}
	f.Name, f.Value, f.Peer, f.Bound = what+"median", millis(mine.median()), millis(peer.median()), millis(o.bound)
	s.r.add(f)
	f.Name, f.Value, f.Peer, f.Bound = what+"worst", millis(mine.max()), millis(peer.max()), 0
	s.r.add(f)
	if o.ratio != 0 {
		s.r.add(Figure{Section: o.section, Subject: s.kind, Name: o.name + ": median, as a part of Sentinel's", Value: float64(mine.median()) / float64(peer.median()), Bound: o.ratio, Count: len(mine)})
	}
	s.counts(o.section, o.name+": acknowledged writes lost, of a writer that waits for each, ", ours, theirs, func(c came) int { return c.lost }, false)
	if o.signal == syscall.SIGSTOP {
		s.counts(o.section, o.name+": writes that the old primary accepted afterwards, when it went on, ", ours, theirs, func(c came) int { return c.accepted }, o.strict)
	}
}

// counts reports median and worst of something that is counted.
func (s *shardTrials) counts(section, what string, ours, theirs []came, of func(came) int, none bool) {
	mine, peer := countsOf(ours, of), countsOf(theirs, of)
	for _, f := range []struct {
		name string
		of   func([]float64) float64
	}{{"median", median}, {"worst", slices.Max[[]float64]}} {
		s.r.add(Figure{Section: section, Subject: s.kind, Name: what + f.name, Value: f.of(mine), Limited: none, Count: len(mine)},
			Figure{Section: section, Subject: sentinelPeer, Name: what + f.name, Value: f.of(peer), Count: len(peer)})
	}
}

func countsOf(all []came, of func(came) int) (out []float64) {
	for _, c := range all {
		out = append(out, float64(of(c)))
	}
	return out
}

func downs(all []came) (out sample) {
	for _, c := range all {
		out = append(out, c.down)
	}
	return out
}

func (t *trio) who() string {
	if t.registry != nil {
		return "understudy"
	}
	return "sentinel"
}

// suffer lets the primary fail, and returns what came of it.
func (t *trio) suffer(ctx context.Context, o outage) (c came) {
	was := t.primary()
	v := victim{pid: t.node(was).pid()}
	if o.both {
		v.agent = t.node(was).agent
	}
	h := listen(ctx, t.guides, t.shard)
	defer h.end()
	w := &writer{key: "gentle", batch: 1, pause: gentle, patience: writeWithin, newFind: t.finder, herald: h}
	w.start(ctx)
	var sticky []*writer
	if o.signal == syscall.SIGSTOP {
		sticky = startSticky(ctx, was)
	}
	t.await(w, was)
	time.Sleep(settling + rand.N(o.timing.Interval))

	moment := time.Now()
	v.signal(o.signal)
	if t.registry != nil {
		fmt.Fprintf(os.Stderr, "    struck at %s\n", moment.Format("05.000"))
	}
	first := t.awaitNew(w, was, moment)
	c.down = first.at.Sub(moment)
	time.Sleep(settling)
	if o.signal == syscall.SIGSTOP {
		v.signal(syscall.SIGCONT)
		time.Sleep(stickyFor)
	}
	w.stop()
	for _, s := range sticky {
		s.stop()
		c.accepted += s.countBy(was, first.at)
	}
	c.accepted += w.countBy(was, first.at)
	c.lost = t.lost([]*writer{w})
	return c
}

// startSticky starts clients that know one address only, and send batches at an easy pace.
func startSticky(ctx context.Context, address string) (all []*writer) {
	for i := range stickyClients {
		w := &writer{key: fmt.Sprintf("sticky-%d", i), batch: stickyBatch, pause: stickyPause, patience: outageWithin, again: stickyPause,
			newFind: func() finder { return fixed(address) }}
		w.start(ctx)
		all = append(all, w)
	}
	return all
}

// primary, as clients are told.
func (t *trio) primary() (address string) {
	find := t.finder()
	defer find.close()
	waitFor(t.b, "somebody tells the primary of shard "+t.shard, func() bool {
		var err error
		address, err = find.find()
		return err == nil
	})
	return address
}

// await returns when a server has acknowledged a writer's write.
func (t *trio) await(w *writer, address string) {
	waitFor(t.b, address+" accepts writes", func() bool { return w.countBy(address, time.Time{}) > 0 })
}

// awaitNew returns the first write that a new primary acknowledged.
func (t *trio) awaitNew(w *writer, was string, moment time.Time) ack {
	for deadline := moment.Add(outageWithin); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if a, ok := w.firstAfter(moment, was); ok {
			return a
		}
	}
	t.b.Fatalf("bench: shard %s (%s) has no new primary after %v%s\n%s", t.shard, t.who(), outageWithin, t.story(), t.output())
	return ack{}
}

// output of all processes, for a person who has to find out what went wrong.
func (t *trio) output() string {
	var out strings.Builder
	for i, p := range t.procs {
		fmt.Fprintf(&out, "--- process %d:\n%s\n", i, p.Output())
	}
	return out.String()
}

// lost counts what writers had acknowledged and the present primary does not have.
func (t *trio) lost(writers []*writer) (sum int) {
	address := t.primary()
	var mu sync.Mutex
	var looking sync.WaitGroup
	for _, w := range writers {
		looking.Go(func() {
			n, _, err := w.lost(address)
			if err != nil {
				t.b.Fatalf("bench: reading what was written: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			sum += n
		})
	}
	looking.Wait()
	return sum
}

// story is what the agents' last plan did, with what each step took.
func (t *trio) story() string {
	if t.registry == nil {
		return ""
	}
	row := t.view().Row
	plan := row.Plan
	if plan == nil {
		plan = row.Last
	}
	if plan == nil {
		return "; no plan"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "; %s: %s; began %s,", plan.Kind, plan.Reason, plan.Began.Format("05.000"))
	for _, s := range plan.Steps {
		fmt.Fprintf(&out, " %s %v", s.Phase, s.Took.Round(100*time.Microsecond))
	}
	if plan.Failed != "" {
		fmt.Fprintf(&out, " FAILED: %s", plan.Failed)
	}
	return out.String()
}

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/understudy-ha/understudy/lease"
)

const (
	// stickyFor is how long a primary that was stopped goes on.
	stickyFor = 3 * time.Second
	// batchWithin bounds a batch of the crowd, which takes its time on a busy machine.
	batchWithin = 300 * time.Millisecond
	// fenceWithin is until a fence has closed of which nobody refuses a connection.
	fenceWithin = 2 * time.Second
	// ownPeer is what the server does by itself.
	ownPeer = "Redis FAILOVER"
	// shardStore is where the agents of several hosts meet.
	shardStore = "postgres"
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

// The ways in which a primary fails.
var (
	nodeOutage   = outage{section: "node", name: "node killed", timing: usual(), signal: syscall.SIGKILL, bound: 150 * time.Millisecond}
	hostOutage   = outage{section: "host", name: "node and agent killed", timing: fast(), signal: syscall.SIGKILL, both: true, bound: fast().Timeout + 300*time.Millisecond, ratio: 0.6}
	silentOutage = outage{section: "silent", name: "node and agent silent", timing: fast(), signal: syscall.SIGSTOP, both: true, bound: fenceWithin + 500*time.Millisecond}
	hungOutage   = outage{section: "hung", name: "node hung", timing: fast(), signal: syscall.SIGSTOP, bound: fast().Timeout + 500*time.Millisecond, strict: true}
)

// shardTrials compares changes of primary of a trio of agents with those of a trio of Sentinels.
type shardTrials struct {
	b    *bed
	r    *Report
	prog agentProgram
	n    int // of the next shard
}

func newShardTrials(ctx context.Context, b *bed, r *Report) *shardTrials {
	p := postgresPlace(b, startPostgres(b, map[string]string{"max_connections": "300"}))
	return &shardTrials{b: b, r: r, prog: agentProgram{path: buildProgram(ctx, b), store: p.url, registry: openRegistry(ctx, b, p.url)}}
}

// startShard starts a new shard of agents.
func (s *shardTrials) startShard(timing lease.Timing) *trio {
	s.n++
	return startAgents(s.b, s.prog, fmt.Sprintf("bench-%d", s.n), timing)
}

// rounds runs f with new trios of both kinds, in turns, and returns what came of it.
func (s *shardTrials) rounds(n int, timing lease.Timing, f func(t *trio, ours bool) came) (ours, theirs []came) {
	for round := range n {
		mine := s.startShard(timing)
		peer := startSentinels(s.b, mine.shard)
		mine.ready()
		peer.ready()
		for turn := range 2 {
			if (round+turn)%2 == 0 {
				ours = append(ours, f(mine, true))
			} else {
				theirs = append(theirs, f(peer, false))
			}
		}
		mine.end()
		peer.end()
	}
	return ours, theirs
}

// shardOutage measures how long a shard is without a primary, in one of the ways in which one fails.
func shardOutage(what outage) func(context.Context, *bed, options, *Report) {
	return func(ctx context.Context, b *bed, o options, r *Report) {
		s := newShardTrials(ctx, b, r)
		ours, theirs := s.rounds(o.fails, what.timing, func(t *trio, mine bool) came { return t.suffer(ctx, what) })
		s.addDown(what.section, what.name+": until the new primary has accepted a write, ", ours, theirs, what.bound)
		mine, peer := downs(ours), downs(theirs)
		if what.ratio != 0 {
			r.add(Figure{Section: what.section, Subject: shardStore, Name: what.name + ": median, fraction of Sentinel's",
				Value: float64(mine.median()) / float64(peer.median()), Bound: what.ratio, Count: len(mine)})
		}
		lost := func(c came) int { return c.lost }
		s.addCounts(what.section, what.name+": acknowledged writes lost, of a writer that waits for each, ", ours, theirs, lost, false)
		if what.signal == syscall.SIGSTOP {
			s.addCounts(what.section, what.name+": writes that the old primary accepted afterwards, when it went on, ", ours, theirs, func(c came) int { return c.accepted }, what.strict)
		}
	}
}

// suffer lets the primary fail, and returns what came of it.
func (t *trio) suffer(ctx context.Context, o outage) came {
	victim := t.node(t.primary())
	pid := victim.pid() // found while it answers
	signal := func(s syscall.Signal) {
		if o.both && victim.agent != nil {
			victim.agent.Signal(s)
		}
		_ = syscall.Kill(pid, s)
	}
	c := change{patience: writeWithin, runs: settling + rand.N(o.timing.Interval), strike: func(string) { signal(o.signal) }}
	if o.signal == syscall.SIGSTOP {
		c.sticky = true
		c.afterwards = func() {
			signal(syscall.SIGCONT)
			time.Sleep(stickyFor)
		}
	}
	out := t.undergo(ctx, c)
	t.progress(o.name, out)
	return out
}

// progress shows what came of one change.
func (t *trio) progress(what string, c came) {
	fmt.Fprintf(os.Stderr, "    %-10s %s: %v, %d of %d lost, %d accepted afterwards\n", t.who(), what, c.down.Round(100*time.Microsecond), c.lost, c.acked, c.accepted)
}

// addDown reports how long primaries were missing, or writes paused.
func (s *shardTrials) addDown(section, what string, ours, theirs []came, bound time.Duration) {
	mine, peer := downs(ours), downs(theirs)
	f := Figure{Section: section, Subject: shardStore, Unit: "ms", Versus: sentinelPeer, Count: len(mine)}
	f.Name, f.Value, f.Peer, f.Bound = what+"median", millis(mine.median()), millis(peer.median()), millis(bound)
	s.r.add(f)
	f.Name, f.Value, f.Peer, f.Bound = what+"worst", millis(mine.max()), millis(peer.max()), 0
	s.r.add(f)
}

// addCounts reports median and worst of something that is counted; none: there should be none of ours.
func (s *shardTrials) addCounts(section, what string, ours, theirs []came, of func(came) int, none bool) {
	mine, peer := countsOf(ours, of), countsOf(theirs, of)
	for _, f := range []struct {
		name string
		of   func([]float64) float64
	}{{"median", median}, {"worst", slices.Max[[]float64]}} {
		s.r.add(Figure{Section: section, Subject: shardStore, Name: what + f.name, Value: f.of(mine), Limited: none, Count: len(mine)},
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

// shardCrash kills a primary under load, and counts what is lost.
func shardCrash(ctx context.Context, b *bed, o options, r *Report) {
	s := newShardTrials(ctx, b, r)
	ours, theirs := s.rounds(o.fails, usual(), func(t *trio, mine bool) came {
		pid := t.node(t.primary()).pid()
		c := t.undergo(ctx, change{crowd: true, patience: batchWithin, runs: crowdRuns, strike: func(string) { _ = syscall.Kill(pid, syscall.SIGKILL) }})
		t.progress("killed under load", c)
		return c
	})
	const what = "node killed under 50 × 16 writes: "
	s.addDown("crash", what+"until the new primary has accepted one, ", ours, theirs, 0)
	s.addCounts("crash", what+"acknowledged writes lost, ", ours, theirs, func(c came) int { return c.lost }, false)
	acked := [2]float64{}
	for i, all := range [][]came{ours, theirs} {
		for _, c := range all {
			acked[i] += float64(c.acked)
		}
	}
	r.add(Figure{Section: "crash", Subject: shardStore, Name: "acknowledged in all", Value: acked[0], Peer: acked[1], Versus: sentinelPeer})
}

// shardSwitchover measures changes of primary on purpose.
func shardSwitchover(ctx context.Context, b *bed, o options, r *Report) {
	s := newShardTrials(ctx, b, r)
	s.switchover(ctx, "switchover, one writer", false, o.fails)
	s.switchover(ctx, "switchover, 50 × 16 writes", true, o.fails)
}

// switchover changes the primary by the command, by Sentinel's, and by the server's own.
func (s *shardTrials) switchover(ctx context.Context, what string, crowd bool, rounds int) {
	c := change{crowd: crowd, patience: switchoverWithin, runs: crowdRuns, planned: true}
	run := func(t *trio, strike func(was string)) came {
		c.strike = strike
		out := t.undergo(ctx, c)
		t.progress(what, out)
		return out
	}
	var own []came
	ours, theirs := s.rounds(rounds, usual(), func(t *trio, mine bool) came {
		if mine {
			return run(t, func(string) { t.command(s.prog) })
		}
		alone := startAlone(s.b)
		own = append(own, run(alone, func(was string) {
			_, err := ask(was, "FAILOVER")
			s.b.check(err, "FAILOVER")
		}))
		alone.end()
		return run(t, func(string) {
			_, err := ask(t.guides[0], "SENTINEL", "FAILOVER", t.shard)
			s.b.check(err, "SENTINEL FAILOVER")
		})
	})
	const section = "switchover"
	s.addDown(section, what+": writes paused, ", ours, theirs, 150*time.Millisecond)
	s.r.add(Figure{Section: section, Subject: ownPeer, Name: what + ": writes paused, median", Value: millis(downs(own).median()), Unit: "ms", Count: len(own)})
	s.addCounts(section, what+": acknowledged writes lost, ", ours, theirs, func(c came) int { return c.lost }, true)
}

// command runs the switchover as a person would.
func (t *trio) command(p agentProgram) {
	out, err := exec.Command(p.path, "shard", "switchover", t.shard, "--store", p.store).CombinedOutput()
	t.b.check(err, "shard switchover: %s\n%s", out, t.output())
}

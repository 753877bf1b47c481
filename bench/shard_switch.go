package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

const (
	crowdOfWriters = 50
	crowdBatch     = 16
	// crowdWithin bounds a batch of the crowd, which takes its time on a busy machine.
	batchWithin = 300 * time.Millisecond
	// crowdRuns is how long the crowd writes before something happens.
	crowdRuns = time.Second
	// ownPeer is what the server does by itself.
	ownPeer = "Redis FAILOVER"
)

// crowd writes as fast as it goes, always at the primary.
func (t *trio) crowd(ctx context.Context, h *herald, patience time.Duration) (all []*writer) {
	for i := range crowdOfWriters {
		w := &writer{key: fmt.Sprintf("crowd-%d", i), batch: crowdBatch, patience: patience, newFind: t.finder, herald: h}
		w.start(ctx)
		all = append(all, w)
	}
	return all
}

// turnOf is the first write that a new primary acknowledged to any of the writers after a
// moment, and how long before that the old one had acknowledged its last.
func turnOf(all []*writer, was string, moment time.Time) (first ack, gap time.Duration, ok bool) {
	for _, w := range all {
		if a, came := w.firstAfter(moment, was); came && (!ok || a.at.Before(first.at)) {
			first, ok = a, true
		}
	}
	if !ok {
		return first, 0, false
	}
	gap = first.at.Sub(moment)
	for _, w := range all {
		if a, came := w.lastBy(was, first.at); came {
			gap = min(gap, first.at.Sub(a.at))
		}
	}
	return first, gap, true
}

// awaitTurn is turnOf, as soon as there is one.
func (t *trio) awaitTurn(all []*writer, was string, moment time.Time) (ack, time.Duration) {
	for deadline := moment.Add(outageWithin); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if a, gap, ok := turnOf(all, was, moment); ok {
			return a, gap
		}
	}
	t.b.Fatalf("bench: shard %s (%s) has no new primary after %v%s\n%s", t.shard, t.who(), outageWithin, t.story(), t.output())
	return ack{}, 0
}

// turned is what came of a change of primary among many writers.
type turned struct {
	down  time.Duration // from the moment, or the pause of writes
	lost  int
	acked int
	after int // accepted by the old primary after the new one had accepted something
}

// change lets writers write, changes the primary, and looks what came of it. planned: the
// pause counts, instead of the time since the moment.
func (t *trio) change(ctx context.Context, crowd, planned bool, strike func(was string)) (out turned) {
	was := t.primary()
	h := listen(ctx, t.guides, t.shard)
	defer h.end()
	var all []*writer
	patience := batchWithin
	if planned {
		patience = switchoverWithin
	}
	if crowd {
		all = t.crowd(ctx, h, patience)
	} else {
		w := &writer{key: "gentle", batch: 1, pause: gentle, patience: patience, newFind: t.finder, herald: h}
		w.start(ctx)
		all = []*writer{w}
	}
	for _, w := range all {
		t.await(w, was)
	}
	time.Sleep(crowdRuns)
	moment := time.Now()
	strike(was)
	first, gap := t.awaitTurn(all, was, moment)
	out.down = first.at.Sub(moment)
	if planned {
		out.down = gap
	}
	time.Sleep(settling)
	for _, w := range all {
		w.stop()
		out.acked += len(w.acks)
		out.after += w.countBy(was, first.at)
	}
	out.lost = t.lost(all)
	return out
}

// crash kills a primary under load.
func (s *shardTrials) crash(ctx context.Context, rounds int) {
	var ours, theirs []turned
	s.rounds(rounds, usual(), func(t *trio, mine bool) {
		pid := t.node(t.primary()).pid()
		c := t.change(ctx, true, false, func(string) { _ = syscall.Kill(pid, syscall.SIGKILL) })
		fmt.Fprintf(os.Stderr, "    %-10s killed under load: %v, %d of %d lost%s\n", t.who(), c.down.Round(time.Millisecond), c.lost, c.acked, t.story())
		if mine {
			ours = append(ours, c)
		} else {
			theirs = append(theirs, c)
		}
	})
	s.turns("crash", s.kind, "node killed under 50 × 16 writes: until the new primary has accepted one, ", ours, theirs, 0)
	s.losses("crash", "node killed under 50 × 16 writes: acknowledged writes lost, ", ours, theirs, false)
	s.r.add(Figure{Section: "crash", Subject: s.kind, Name: "acknowledged in all", Value: allAcked(ours), Peer: allAcked(theirs), Versus: sentinelPeer})
}

func allAcked(all []turned) (sum float64) {
	for _, c := range all {
		sum += float64(c.acked)
	}
	return sum
}

func (s *shardTrials) turns(section, subject, what string, ours, theirs []turned, bound time.Duration) {
	mine, peer := turnTimes(ours), turnTimes(theirs)
	f := Figure{Section: section, Subject: subject, Unit: "ms", Versus: sentinelPeer, Count: len(mine)}
	f.Name, f.Value, f.Peer, f.Bound = what+"median", millis(mine.median()), millis(peer.median()), millis(bound)
	s.r.add(f)
	f.Name, f.Value, f.Peer, f.Bound = what+"worst", millis(mine.max()), millis(peer.max()), 0
	s.r.add(f)
}

func turnTimes(all []turned) (out sample) {
	for _, c := range all {
		out = append(out, c.down)
	}
	return out
}

func (s *shardTrials) losses(section, what string, ours, theirs []turned, none bool) {
	for _, one := range []struct {
		of  string
		all []turned
	}{{s.kind, ours}, {sentinelPeer, theirs}} {
		var lost []float64
		for _, c := range one.all {
			lost = append(lost, float64(c.lost))
		}
		s.r.add(Figure{Section: section, Subject: one.of, Name: what + "median", Value: median(lost), Limited: none && one.of == s.kind, Count: len(lost)},
			Figure{Section: section, Subject: one.of, Name: what + "worst", Value: slices.Max(lost), Limited: none && one.of == s.kind, Count: len(lost)})
	}
}

// switchover changes the primary on purpose: by the command, by Sentinel's, and by the server's own.
func (s *shardTrials) switchover(ctx context.Context, crowd bool, rounds int) {
	with := "one writer"
	if crowd {
		with = "50 × 16 writes"
	}
	got := map[string][]turned{}
	note := func(who string, t *trio, took *time.Duration, c turned) {
		fmt.Fprintf(os.Stderr, "    %-14s switchover, %s: paused %v, %d of %d lost, %d accepted by the old one afterwards, command %v%s\n",
			who, with, c.down.Round(100*time.Microsecond), c.lost, c.acked, c.after, took.Round(time.Millisecond), t.story())
		got[who] = append(got[who], c)
	}
	s.rounds(rounds, usual(), func(t *trio, mine bool) {
		var took time.Duration
		if mine {
			c := t.change(ctx, crowd, true, func(string) { took = t.command(s.prog) })
			note(s.kind, t, &took, c)
			return
		}
		c := t.change(ctx, crowd, true, func(string) {
			if _, err := ask(t.guides[0], "SENTINEL", "FAILOVER", t.shard); err != nil {
				t.b.Fatalf("bench: SENTINEL FAILOVER: %v", err)
			}
		})
		note(sentinelPeer, t, &took, c)
		own := startAlone(s.b)
		c = own.change(ctx, crowd, true, func(was string) {
			if _, err := ask(was, "FAILOVER"); err != nil {
				t.b.Fatalf("bench: FAILOVER: %v", err)
			}
		})
		note(ownPeer, own, &took, c)
		own.end()
	})
	section := "switchover"
	s.turns(section, s.kind, "switchover, "+with+": writes paused, ", got[s.kind], got[sentinelPeer], 150*time.Millisecond)
	own := turnTimes(got[ownPeer])
	s.r.add(Figure{Section: section, Subject: ownPeer, Name: "switchover, " + with + ": writes paused, median", Value: millis(own.median()), Unit: "ms", Count: len(own)})
	s.losses(section, "switchover, "+with+": acknowledged writes lost, ", got[s.kind], got[sentinelPeer], true)
	var lost []float64
	for _, c := range got[ownPeer] {
		lost = append(lost, float64(c.lost))
	}
	s.r.add(Figure{Section: section, Subject: ownPeer, Name: "switchover, " + with + ": acknowledged writes lost, worst", Value: slices.Max(lost), Count: len(lost)})
}

// command runs the switchover as a person would, and returns how long it took.
func (t *trio) command(p agentProgram) time.Duration {
	began := time.Now()
	out, err := exec.Command(p.path, "shard", "switchover", t.shard, "--store", p.store).CombinedOutput()
	if err != nil {
		t.b.Fatalf("bench: shard switchover: %v\n%s\n%s", err, out, t.output())
	}
	return time.Since(began)
}

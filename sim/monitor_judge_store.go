package sim

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/monitor"
)

// ResolveSources implements [monitor.HeartbeatStore].
func (j *monitorJudge) ResolveSources(ctx context.Context, refs []monitor.SourceRef) ([]monitor.ResolvedSource, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	out, err := j.Store.ResolveSources(ctx, refs)
	j.touch(err)
	for i, r := range out {
		if r.ID != 0 && err == nil {
			j.ids[r.ID] = refs[i]
		}
	}
	return out, err
}

// RecordHeartbeats implements [monitor.HeartbeatStore].
func (j *monitorJudge) RecordHeartbeats(ctx context.Context, d monitor.HeartbeatBatch) (monitor.BatchResult, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	out, err := j.Store.RecordHeartbeats(ctx, d)
	j.touch(err)
	if err == nil {
		j.proves(d.Probes)
	}
	return out, err
}

// proves notes since when paths could see, and when they could not.
func (j *monitorJudge) proves(proofs []monitor.Probe) {
	now := time.Now()
	for _, v := range proofs {
		if !v.NameOnly && !j.proven.IsZero() && now.Sub(j.proven) > j.gap(v.Path) {
			for _, p := range j.paths {
				p.maybe = true
			}
		}
	}
	for _, v := range proofs {
		p := j.paths[v.Path]
		if p == nil {
			p = &pathBook{}
			j.paths[v.Path] = p
		}
		if v.NameOnly {
			continue
		}
		sure := p.counted > j.gap(v.Path)
		switch {
		case p.proof.IsZero():
			p.blind = append(p.blind, blindness{now, now, true})
		case sure || p.maybe || p.hidden:
			p.blind = append(p.blind, blindness{p.proof, now, sure})
			j.r.Blind++
			j.trace("path %s was blind from %s", v.Path, j.at(p.proof))
		}
		p.proof, p.counted, p.maybe, p.hidden = now, 0, false, false
		j.proven = now
	}
}

// gap is what the path was opened with.
func (j *monitorJudge) gap(path string) time.Duration {
	if path == "router" {
		return routerGap
	}
	return steadyGap
}

// DueSources implements [monitor.Detection].
func (j *monitorJudge) DueSources(ctx context.Context, ps []int, limit int) (monitor.Scan, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	l, err := j.Store.DueSources(ctx, ps, limit)
	return j.looked(l, err)
}

// Sweep implements [monitor.Detection].
func (j *monitorJudge) Sweep(ctx context.Context, keep time.Duration, limit int) (monitor.Scan, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	l, err := j.Store.Sweep(ctx, keep, limit)
	return j.looked(l, err)
}

func (j *monitorJudge) looked(l monitor.Scan, err error) (monitor.Scan, error) {
	j.touch(err)
	for _, c := range l.Candidates {
		j.ids[c.ID] = monitor.SourceRef{Check: j.names[c.CheckID], Source: c.Source}
	}
	return l, err
}

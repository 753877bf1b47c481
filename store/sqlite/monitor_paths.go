package sqlite

import (
	"slices"

	"github.com/understudy-ha/understudy/monitor"
)

const (
	listPaths = "SELECT id, name, proof_us, trust_us, gap_us, blind_us, resumed_us, skipped FROM understudy_monitor_path"

	addPath = "INSERT INTO understudy_monitor_path (name) VALUES (?1) RETURNING id"

	setPath = `
UPDATE understudy_monitor_path SET proof_us = ?2, trust_us = ?3, gap_us = ?4, blind_us = ?5, resumed_us = ?6, skipped = 0
WHERE id = ?1`

	skipPaths = "UPDATE understudy_monitor_path SET skipped = 1"
)

// pathRow is a path as the store has it.
type pathRow struct {
	monitor.Path
	id      int64
	skipped bool
}

// paths are all there are, by number.
func paths(r rowReader) (map[int64]*pathRow, error) {
	out := map[int64]*pathRow{}
	err := r.rows(listPaths, nil, func(scan func(...any) error) error {
		p := &pathRow{}
		err := p.scan(scan)
		out[p.id] = p
		return err
	})
	return out, err
}

func (p *pathRow) scan(scan func(...any) error) error {
	var trust, gap, blind int64
	err := scan(&p.id, &p.Name, &p.Proof, &trust, &gap, &blind, &p.Resumed, &p.skipped)
	p.Trust, p.Gap, p.Blind = micros(trust), micros(gap), micros(blind)
	return err
}

// latest is the path that was proven last, nil when there is none.
func latest(paths map[int64]*pathRow) (last *pathRow) {
	for _, p := range paths {
		if last == nil || p.Proof > last.Proof || p.Proof == last.Proof && p.id < last.id {
			last = p
		}
	}
	return last
}

// prove records proofs and returns their paths.
func (l *ledger) prove(proofs []monitor.Proof) ([]*pathRow, error) {
	if len(proofs) == 0 {
		return nil, nil
	}
	known, err := paths(l)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]*pathRow, len(known))
	for _, p := range known {
		byName[p.Name] = p
	}
	if err := l.noticeSkip(known, proofs); err != nil {
		return nil, err
	}
	out := make([]*pathRow, len(proofs))
	for i, proof := range proofs {
		p := byName[proof.Path]
		if p == nil {
			p = &pathRow{Path: monitor.Path{Name: proof.Path}}
			if err := l.row(addPath, []any{p.Name}, &p.id); err != nil {
				return nil, err
			}
			byName[p.Name] = p
		}
		if out[i] = p; proof.Unproven {
			continue
		}
		p.renew(l.moment(), proof)
		_, err := l.exec(setPath, p.id, l.at, p.Trust.Microseconds(), p.Gap.Microseconds(), p.Blind.Microseconds(), p.Resumed)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// renew counts what was blind since the last proof. Before the first, nothing is
// known.
func (p *pathRow) renew(now monitor.Moment, proof monitor.Proof) {
	since := now.Sub(p.Proof)
	switch {
	case p.Proof == 0:
		p.Resumed = now
	case p.skipped || since > proof.Gap:
		p.Blind += since
		p.Resumed = now
	}
	p.Proof, p.Trust, p.Gap, p.skipped = now, proof.Trust, proof.Gap, false
}

// noticeSkip has every path count what the clock skipped, also those whose gap is
// too long to notice: when nothing was proven for so long, nobody was there, or the
// clock has gone ahead.
func (l *ledger) noticeSkip(known map[int64]*pathRow, proofs []monitor.Proof) error {
	last := latest(known)
	if last == nil || last.Proof == 0 {
		return nil
	}
	since := l.moment().Sub(last.Proof)
	if !slices.ContainsFunc(proofs, func(p monitor.Proof) bool { return !p.Unproven && since > p.Gap }) {
		return nil
	}
	for _, p := range known {
		p.skipped = true
	}
	_, err := l.exec(skipPaths)
	return err
}

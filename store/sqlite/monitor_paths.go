package sqlite

import "github.com/understudy-ha/understudy/monitor"

const (
	listPaths = "SELECT id, name, proof_us, trust_us, gap_us, blind_us, resumed_us, skipped FROM understudy_monitor_path"

	addPath = "INSERT INTO understudy_monitor_path (name) VALUES (?1) RETURNING id"

	setPath = `
UPDATE understudy_monitor_path SET proof_us = ?2, trust_us = ?3, gap_us = ?4, blind_us = ?5, resumed_us = ?6, skipped = 0
WHERE id = ?1`

	skipPaths = "UPDATE understudy_monitor_path SET skipped = 1"
)

// pathRow is a path as the store has it. Its rules are those of [monitor.PathStatus].
type pathRow struct {
	monitor.PathStatus
	id      int64
	skipped bool // time was skipped since its last probe; see [monitor.SkippedTime]
}

// paths are all there are, by number.
func paths(t *monitorTxn) (map[int64]*pathRow, error) {
	out := map[int64]*pathRow{}
	err := t.each(listPaths, nil, func(scan scanner) error {
		p, err := scanPath(scan)
		out[p.id] = p
		return err
	})
	return out, err
}

func scanPath(scan scanner) (*pathRow, error) {
	p := &pathRow{}
	var trust, gap, blind int64
	err := scan(&p.id, &p.Name, &p.LastSeen, &trust, &gap, &blind, &p.BlindUntil, &p.skipped)
	p.TrustFor, p.MaxGap, p.BlindTotal = micros(trust), micros(gap), micros(blind)
	return p, err
}

// lastSeenPath is the path that was probed last, nil when there is none.
func lastSeenPath(paths map[int64]*pathRow) (last *pathRow) {
	for _, p := range paths {
		if last == nil || p.LastSeen > last.LastSeen || p.LastSeen == last.LastSeen && p.id < last.id {
			last = p
		}
	}
	return last
}

// recordProbes records probes and returns their paths.
func (t *monitorTxn) recordProbes(probes []monitor.Probe) ([]*pathRow, error) {
	if len(probes) == 0 {
		return nil, nil
	}
	known, err := paths(t)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]*pathRow, len(known))
	for _, p := range known {
		byName[p.Name] = p
	}
	if err := t.noteSkippedTime(known, probes); err != nil {
		return nil, err
	}
	out := make([]*pathRow, len(probes))
	for i, probe := range probes {
		p := byName[probe.Path]
		if p == nil {
			p = &pathRow{PathStatus: monitor.PathStatus{Name: probe.Path}}
			if err := t.one(addPath, []any{p.Name}, &p.id); err != nil {
				return nil, err
			}
			byName[p.Name] = p
		}
		if out[i] = p; probe.NameOnly {
			continue
		}
		p.RecordProbe(t.at, probe, p.skipped)
		p.skipped = false
		_, err := t.exec(setPath, p.id, t.at, p.TrustFor.Microseconds(), p.MaxGap.Microseconds(), p.BlindTotal.Microseconds(), p.BlindUntil)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// noteSkippedTime marks every path if none can have worked since the last probe of any.
func (t *monitorTxn) noteSkippedTime(known map[int64]*pathRow, probes []monitor.Probe) error {
	last := lastSeenPath(known)
	if last == nil || !monitor.SkippedTime(last.LastSeen, t.at, probes) {
		return nil
	}
	for _, p := range known {
		p.skipped = true
	}
	_, err := t.exec(skipPaths)
	return err
}

package sqlite

import (
	"context"
	"encoding/json"

	"github.com/understudy-ha/understudy/monitor"
)

const sourceColumns = factColumns + `,
  s.declared, s.note, b.beats, b.recent, b.every_us, b.sent_us, b.seq, b.code
FROM understudy_monitor_event e CROSS JOIN understudy_monitor_source s `

// selectSources goes through the checks by name, and through an index of the
// sources of each. Only labels are compared one by one.
func selectSources(q monitor.SourceQuery) (text string, args []any) {
	index := "INDEXED BY understudy_monitor_source_state"
	switch {
	case q.Label == monitor.PingLabel: // every ping asks for it
		index = "INDEXED BY understudy_monitor_source_ping"
	case q.State == "":
		index = "INDEXED BY sqlite_autoindex_understudy_monitor_source_1"
	}
	text = sourceColumns + index + " ON s.event = e.id"
	and := func(condition string, more ...any) {
		text, args = text+" AND "+condition, append(args, more...)
	}
	if q.State != "" {
		and("s.state = ?", q.State)
	}
	if q.Source != "" {
		and("s.name = ?", q.Source)
	}
	if q.Label == monitor.PingLabel {
		and("s.labels <> '' AND json_extract(s.labels, '$.ping') = ?", q.Value)
	}
	if q.AfterCheck != "" || q.AfterSource != "" {
		and("s.name > iif(e.name = ?, ?, '')", q.AfterCheck, q.AfterSource)
	}
	text += factJoins + " WHERE 1"
	if q.Check != "" {
		and("e.name = ?", q.Check)
	}
	if q.AfterCheck != "" {
		and("e.name >= ?", q.AfterCheck)
	}
	if q.Label != "" && q.Label != monitor.PingLabel {
		and("s.labels <> '' AND EXISTS (SELECT 1 FROM json_each(s.labels) l WHERE l.key = ? AND l.value = ?)", q.Label, q.Value)
	}
	return text + " ORDER BY e.name, s.name LIMIT ?", append(args, monitor.PageSize(q.Limit))
}

// Sources implements [monitor.Admin].
func (m monitors) Sources(ctx context.Context, q monitor.SourceQuery) ([]monitor.SourceRecord, error) {
	text, args := selectSources(q)
	var out []monitor.SourceRecord
	err := m.read(ctx, "listing sources", func(t *monitorTxn) error {
		out = nil
		known, err := paths(t)
		if err != nil {
			return err
		}
		last := lastSeenPath(known)
		found, err := list(t.call, text, args, scanSource)
		checks := checksOf(t)
		for _, s := range found {
			if err == nil {
				err = s.complete(t, known, last)
			}
			if err != nil {
				return err
			}
			e, err := checks.byNumber(s.Candidate.CheckID)
			if err != nil || e == nil {
				return err
			}
			out = append(out, s.record(t, e, known))
		}
		return err
	})
	return out, err
}

// sourceRow is a source with all that people see.
type sourceRow struct {
	factRow
	declared               bool
	note                   string
	beats, every, sent, no int64
	recent                 int64
	code                   int
}

func scanSource(scan scanner) (*sourceRow, error) {
	s := &sourceRow{}
	return s, s.factRow.scan(scan, &s.declared, &s.note, &s.beats, &s.recent, &s.every, &s.sent, &s.no, &s.code)
}

func (s *sourceRow) record(t *monitorTxn, e *checkRow, known map[int64]*pathRow) monitor.SourceRecord {
	out := s.Record(e.Check)
	out.Declared, out.Beats, out.Sent, out.Seq, out.Code, out.Note = s.declared, s.beats, timeOf(s.sent), s.no, s.code, s.note
	if s.LastBeat != 0 {
		out.Recent = monitor.RecentSlots(uint64(s.recent), int64(s.Now)/s.every-int64(s.LastBeat)/s.every)
	}
	if p := known[s.path]; p != nil {
		out.Path = p.Name
	}
	return out
}

const (
	countSources = `
SELECT e.id, e.name, e.config, e.paused, e.rev, e.base_us, e.removed, e.every_us, c.up, c.down, c.paused, c.retired, c.unseen, c.standing
FROM understudy_monitor_event e JOIN understudy_monitor_count c ON c.event = e.id ORDER BY e.name`

	readConfigured = "SELECT configured_us, origin, error FROM understudy_monitor"

	listMembers = `
SELECT m.session, x.instance, x.name, x.address, m.process, m.host, m.service, m.active, m.partitions, m.sinks
FROM understudy_monitor_member m JOIN understudy_session x ON x.id = m.session
WHERE ` + aliveSQL + " ORDER BY x.name, x.instance"
)

// Overview implements [monitor.Admin]. It reads a row for each event, and none for
// a source.
func (m monitors) Overview(ctx context.Context) (monitor.Overview, error) {
	var out monitor.Overview
	err := m.read(ctx, "reading the overview of the monitor", func(t *monitorTxn) error {
		out = monitor.Overview{Now: t.wallTime()}
		var err error
		out.Checks, err = list(t.call, countSources, nil, func(scan scanner) (c monitor.CheckCount, err error) {
			var standing int64
			e, err := scanCheck(scan, &c.Up, &c.Down, &c.Paused, &c.Retired, &c.NeverSeen, &standing)
			if err == nil {
				c.StoredCheck = e.StoredCheck
				out.Standing += standing
			}
			return c, err
		})
		if err != nil {
			return err
		}
		var configured int64
		if err := t.one(readConfigured, nil, &configured, &out.Origin, &out.Error); err != nil {
			return err
		}
		out.Configured = timeOf(configured)
		out.Paths, err = list(t.call, pathsByName, nil, func(scan scanner) (monitor.PathView, error) {
			p, err := scanPath(scan)
			return p.View(t.at), err
		})
		if err != nil {
			return err
		}
		if out.Sinks, err = sinks(t); err != nil {
			return err
		}
		out.Members, err = list(t.call, listMembers, []any{t.boot}, scanMember)
		return err
	})
	return out, err
}

const pathsByName = listPaths + " ORDER BY name"

func scanMember(scan scanner) (m monitor.Member, err error) {
	var sinks []byte
	err = scan(&m.Session, &m.Instance.ID, &m.Instance.Name, &m.Instance.Address, &m.Process, &m.Host, &m.Service, &m.Active, &m.Partitions, &sinks)
	if err == nil {
		err = json.Unmarshal(sinks, &m.Sinks)
	}
	return m, err
}

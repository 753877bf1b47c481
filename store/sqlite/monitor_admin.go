package sqlite

import (
	"context"
	"encoding/json"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

const sourceColumns = factColumns + `,
  s.declared, s.note, b.beats, b.recent, b.every_us, b.sent_us, b.seq, b.code
FROM understudy_monitor_event e CROSS JOIN understudy_monitor_source s `

// selectSources goes through the events by name, and through an index of the
// sources of each. Only labels are looked for one by one.
func selectSources(q monitor.SourceQuery) (text string, args []any) {
	index := "INDEXED BY understudy_monitor_source_state"
	if q.State == "" {
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
	if q.Label != "" {
		and("s.labels <> '' AND EXISTS (SELECT 1 FROM json_each(s.labels) l WHERE l.key = ? AND l.value = ?)", q.Label, q.Value)
	}
	return text + " ORDER BY e.name, s.name LIMIT ?", append(args, pageOf(q.Limit))
}

// Sources implements [monitor.Admin].
func (m monitors) Sources(ctx context.Context, q monitor.SourceQuery) ([]monitor.SourceRecord, error) {
	text, args := selectSources(q)
	var out []monitor.SourceRecord
	err := m.read(ctx, "listing sources", func(v *snapshot) error {
		out = nil
		known, err := paths(v)
		if err != nil {
			return err
		}
		last := lastSeenPath(known)
		var found []*sourceRow
		err = v.rows(text, args, func(scan func(...any) error) error {
			s := &sourceRow{}
			found = append(found, s)
			return s.read(scan)
		})
		events := checksOf(v)
		for _, s := range found {
			if err == nil {
				err = s.complete(v, known, last)
			}
			if err != nil {
				return err
			}
			e, err := events.byNumber(s.Candidate.CheckID)
			if err != nil || e == nil {
				return err
			}
			out = append(out, s.record(v, e, known))
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

func (s *sourceRow) read(scan func(...any) error) error {
	return s.factRow.scan(scan, &s.declared, &s.note, &s.beats, &s.recent, &s.every, &s.sent, &s.no, &s.code)
}

func (s *sourceRow) record(r rowReader, e *checkRow, known map[int64]*pathRow) monitor.SourceRecord {
	out := monitor.SourceRecord{
		Check: e.Name, Source: s.Source, Labels: s.Labels, Declared: s.declared, State: s.State, Running: s.RunStarted != 0,
		Last: wallOf(r, int64(s.LastBeat)), Beats: s.beats, Recent: s.intervals(), Sent: timeOf(s.sent), Seq: s.no, Code: s.code,
		Alarm: s.Alarm, Reason: s.Reason, Since: s.Started, Until: wallOf(r, int64(s.PausedUntil)), Note: s.note,
	}
	if s.LastBeat != 0 {
		out.Quiet = s.Now.Sub(s.LastBeat)
	}
	if p := known[s.path]; p != nil {
		out.Path = p.Name
	}
	out.Left = s.left(e.Check)
	return out
}

// left is how long a source may still be quiet, if its path works and whatever its
// state is.
func (s *sourceRow) left(e monitor.Check) time.Duration {
	f := s.Facts
	f.State, f.Alarm, f.RetireRequested, f.Removed = monitor.Up, "", false, false
	f.Path.LastSeen, f.Path.TrustFor = f.Now, monitor.MaxInterval
	e.Paused = false
	v := e.Evaluate(f)
	switch {
	case v.Transition != monitor.NoTransition:
		return v.At.Sub(f.Now)
	case v.Due == monitor.Never:
		return time.Duration(1<<63 - 1)
	}
	return v.Due.Sub(f.Now)
}

// intervals are the last ones of a source that has beaten, the present one first.
func (s *sourceRow) intervals() []bool {
	if s.LastBeat == 0 {
		return nil
	}
	recent := uint64(s.recent) << (int64(s.Now)/s.every - int64(s.LastBeat)/s.every)
	out := make([]bool, 64)
	for i := range out {
		out[i] = recent>>i&1 == 1
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
	err := m.read(ctx, "looking at the monitor", func(v *snapshot) error {
		out = monitor.Overview{Now: v.wallTime()}
		err := v.rows(countSources, nil, func(scan func(...any) error) error {
			var e checkRow
			var c monitor.CheckCount
			var standing int64
			err := e.scan(scan, &c.Up, &c.Down, &c.Paused, &c.Retired, &c.NeverSeen, &standing)
			c.StoredCheck = e.StoredCheck
			out.Checks = append(out.Checks, c)
			out.Standing += standing
			return err
		})
		if err != nil {
			return err
		}
		var configured int64
		if err := v.row(readConfigured, nil, &configured, &out.Origin, &out.Error); err != nil {
			return err
		}
		out.Configured = timeOf(configured)
		if out.Paths, err = pathRecords(v); err != nil {
			return err
		}
		if out.Sinks, err = sinks(v); err != nil {
			return err
		}
		out.Members, err = members(v, m.s.clocks.boot)
		return err
	})
	return out, err
}

const pathsByName = listPaths + " ORDER BY name"

func pathRecords(r rowReader) (out []monitor.PathView, err error) {
	err = r.rows(pathsByName, nil, func(scan func(...any) error) error {
		var p pathRow
		if err := p.scan(scan); err != nil {
			return err
		}
		now := r.moment()
		out = append(out, monitor.PathView{PathStatus: p.PathStatus, Working: now.Sub(p.LastSeen) <= max(p.TrustFor, p.MaxGap), Quiet: now.Sub(p.LastSeen)})
		return nil
	})
	return out, err
}

func members(r rowReader, boot string) (out []monitor.Member, err error) {
	err = r.rows(listMembers, []any{boot}, func(scan func(...any) error) error {
		m := monitor.Member{Instance: lease.Instance{}}
		var told []byte
		err := scan(&m.Session, &m.Instance.ID, &m.Instance.Name, &m.Instance.Address, &m.Process, &m.Host, &m.Service, &m.Active, &m.Partitions, &told)
		if err == nil {
			err = json.Unmarshal(told, &m.Sinks)
		}
		out = append(out, m)
		return err
	})
	return out, err
}

package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// sourcesSQL reads a page of sources; an event comes with the first of its sources.
const sourcesSQL = `SELECT l.moment, l.wall, ` + candidateColumns + `, s.declared, s.known, s.note,
		b.beats, b.sent, b.seq, b.code, b.recent, b.width,
		CASE WHEN lag(c.event) OVER (ORDER BY c.i) IS DISTINCT FROM c.event
			THEN (SELECT {{rules}}.monitor_check_json(e) FROM {{schema}}.monitor_event e WHERE e.id = c.event) END
	FROM {{rules}}.monitor_sources($1, $2, $3, $4, $5, $6, $7, $8, $9) l, LATERAL ` + candidates + `,
	LATERAL (SELECT s.* FROM {{schema}}.monitor_source s WHERE s.id = c.id OFFSET 0) s,
	LATERAL (SELECT b.* FROM {{schema}}.monitor_beat b WHERE b.id = c.id OFFSET 0) b ORDER BY c.i`

// Sources implements [monitor.Admin].
func (m *monitors) Sources(ctx context.Context, q monitor.SourceQuery) (out []monitor.SourceRecord, err error) {
	if !isStorable(q.AfterCheck, q.AfterSource) {
		return nil, fmt.Errorf("%w: no source can be named as that after which the list is to go on", lease.ErrInvalid)
	}
	if !isStorable(q.Check, q.Source, string(q.State), q.Label, q.Value) {
		return nil, nil
	}
	labels := ""
	if q.Label != "" {
		text, err := json.Marshal(map[string]string{q.Label: q.Value})
		if err != nil {
			return nil, fmt.Errorf("listing sources: %w", err)
		}
		labels = string(text)
	}
	var e monitor.StoredCheck // of the row before
	out, err = rowsReadCommitted(ctx, m.db, sourcesSQL, func(r pgx.CollectableRow) (monitor.SourceRecord, error) { return scanSource(r, &e) },
		m.latest.Load(), q.Check, q.Source, string(q.State), labels, q.AfterCheck, q.AfterSource, int64(monitor.PageSize(q.Limit)), lockTimeout{})
	return out, during(err, "listing sources")
}

// scanSource reads a row of sourcesSQL; e is the event of the one before.
func scanSource(r pgx.Row, e *monitor.StoredCheck) (monitor.SourceRecord, error) {
	var now, known monitor.StoreTime
	var wall time.Time
	var declared bool
	var note string
	var beats, sent, seq, recent, width int64
	var code int
	var event *string
	c, err := scanCandidate(r, []any{&now, &wall}, &declared, &known, &note, &beats, &sent, &seq, &code, &recent, &width, &event)
	if err == nil && event != nil {
		*e = monitor.StoredCheck{}
		err = e.UnmarshalStored([]byte(*event))
	}
	if err != nil {
		return monitor.SourceRecord{}, err
	}
	c.Now, c.Wall = now, wall.UTC()
	out := c.Record(e.Check)
	out.Declared, out.Beats, out.Sent, out.Seq, out.Code, out.Note = declared, beats, fromMicros(sent), seq, code, note
	if c.LastBeat != 0 {
		out.Path, out.Recent = c.Path.Name, monitor.RecentSlots(uint64(recent), int64(now)/width-int64(c.LastBeat)/width)
	}
	return out, nil
}

// Alarms implements [monitor.Admin].
func (m *monitors) Alarms(ctx context.Context, q monitor.AlarmQuery) ([]monitor.Alarm, error) {
	if !isStorable(q.ID, q.Check, q.Source, q.BeforeID) {
		return nil, nil
	}
	where, args := "true", []any{}
	add := func(condition string, values ...any) {
		args = append(args, values...)
		n := len(args)
		where += " AND " + fmt.Sprintf(condition, n-len(values)+1, n)
	}
	if q.ID != "" {
		add("a.id = $%[1]d", q.ID)
	}
	if q.Check != "" {
		add("a.event = $%[1]d", q.Check)
	}
	if q.Source != "" {
		add("a.source = $%[1]d", q.Source)
	}
	if q.Standing {
		where += " AND a.ended IS NULL"
	}
	if !q.NotifiedBefore.IsZero() {
		add("a.ended IS NULL AND a.acknowledged = '' AND NOT a.held AND a.group_alarm = '' AND coalesce(a.reminded, a.raised) < $%[1]d", q.NotifiedBefore)
	}
	if !q.Before.IsZero() {
		add("(a.raised, a.id) < ($%[1]d, $%[2]d)", q.Before, q.BeforeID)
	}
	out, err := rows(ctx, m.db, fmt.Sprintf(`SELECT %s FROM {{schema}}.monitor_alarm a WHERE %s ORDER BY a.raised DESC, a.id DESC LIMIT %d`,
		alarmColumns, where, monitor.PageSize(q.Limit)), func(r pgx.CollectableRow) (monitor.Alarm, error) { return scanAlarm(r) }, args...)
	return out, during(err, "listing alarms")
}

// overviewSQL is an [monitor.Overview] as one statement reads it.
const overviewSQL = `SELECT n.moment, n.wall, s.configured, s.origin, s.error,
	(SELECT coalesce(array_agg(k.name ORDER BY k.name), '{}') FROM {{schema}}.monitor_sink k),
	(SELECT coalesce(array_agg(jsonb_build_object('event', {{rules}}.monitor_check_json(e)::jsonb, 'counts', c.counts)::text ORDER BY e.name), '{}')
		FROM {{schema}}.monitor_event e LEFT JOIN (
			SELECT x.event, jsonb_object_agg(x.state || CASE WHEN x.seen THEN '' ELSE ' unseen' END, x.n) AS counts
			FROM (SELECT y.event, y.state, y.seen, sum(y.n) AS n FROM {{schema}}.monitor_count y GROUP BY y.event, y.state, y.seen) x GROUP BY x.event) c ON c.event = e.id),
	(SELECT coalesce(array_agg(to_jsonb(p)::text ORDER BY p.name), '{}') FROM {{schema}}.monitor_path p),
	(SELECT coalesce(array_agg(to_jsonb(m)::text ORDER BY m.name, m.session), '{}') FROM {{schema}}.monitor_member m WHERE {{rules}}.is_alive(m.session, n.wall))
	FROM {{rules}}.monitor_now($1) n, {{schema}}.monitor_setting s`

// Overview implements [monitor.Admin]. It reads no source and no alarm: these are
// counted as they change.
func (m *monitors) Overview(ctx context.Context) (out monitor.Overview, err error) {
	var now monitor.StoreTime
	var configured *time.Time
	var events, paths, members []string
	err = m.db.rowReadCommitted(ctx, overviewSQL, func(r pgx.Row) error {
		return r.Scan(&now, &out.Now, &configured, &out.Origin, &out.Error, &out.Sinks, &events, &paths, &members)
	}, m.latest.Load())
	if err == nil {
		out.Now, out.Configured = out.Now.UTC(), utc(configured)
		m.noteTime(now)
		err = readOverview(&out, now, events, paths, members)
	}
	if err != nil {
		return monitor.Overview{}, fmt.Errorf("looking at the monitor: %w", err)
	}
	return out, nil
}

func readOverview(out *monitor.Overview, now monitor.StoreTime, events, paths, members []string) error {
	for _, text := range events {
		var e struct {
			Event  json.RawMessage
			Counts map[string]int64
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			return err
		}
		var check monitor.StoredCheck
		if err := check.UnmarshalStored(e.Event); err != nil {
			return err
		}
		n := e.Counts
		out.Checks = append(out.Checks, monitor.CheckCount{
			StoredCheck: check, Up: n["up"] + n["up unseen"], Down: n["down"] + n["down unseen"], Paused: n["paused"] + n["paused unseen"],
			Retired: n["retired"] + n["retired unseen"], NeverSeen: n["up unseen"] + n["down unseen"],
		})
		out.Standing += n["alarm"]
	}
	for _, text := range paths {
		var p struct {
			Name              string
			Proof, Resumed    monitor.StoreTime
			Trust, Gap, Blind int64
		}
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return err
		}
		path := monitor.PathStatus{Name: p.Name, LastSeen: p.Proof, TrustFor: micro(p.Trust), MaxGap: micro(p.Gap), BlindTotal: micro(p.Blind), BlindUntil: p.Resumed}
		out.Paths = append(out.Paths, path.View(now))
	}
	for _, text := range members {
		var m struct {
			Session, Name, Address, Host, Service string
			InstanceID                            string `json:"instance_id"`
			Process, Partitions                   int
			Active                                bool
			Sinks                                 []string
		}
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			return err
		}
		n := monitor.Member{Session: m.Session, Process: m.Process, Host: m.Host, Service: m.Service, Active: m.Active, Partitions: m.Partitions, Sinks: m.Sinks}
		n.Instance.ID, n.Instance.Name, n.Instance.Address = m.InstanceID, m.Name, m.Address
		out.Members = append(out.Members, n)
	}
	return nil
}

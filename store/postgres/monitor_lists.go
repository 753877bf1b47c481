package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
)

// listed is how many rows a list has.
func listed(asked int) int {
	if asked <= 0 || asked > monitor.MaxPage {
		return monitor.MaxPage
	}
	return asked
}

// pageSQL reads a page of sources; an event comes with the first of its sources.
const pageSQL = `SELECT l.moment, l.wall, ` + candidateColumns + `, s.declared, s.known, s.note,
		b.beats, b.sent, b.seq, b.code, b.recent, b.width,
		CASE WHEN lag(c.event) OVER (ORDER BY c.i) IS DISTINCT FROM c.event
			THEN (SELECT {{rules}}.monitor_check_json(e) FROM {{schema}}.monitor_event e WHERE e.id = c.event) END
	FROM {{rules}}.monitor_page_of_sources($1, $2, $3, $4, $5, $6, $7, $8, $9) l, LATERAL ` + candidates + `,
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
	sql := m.db.sql(pageSQL)
	err = m.db.atReadCommitted(ctx, func(ctx context.Context, r runner) error {
		out = nil
		found, err := r.Query(ctx, sql, withPatience(ctx, []any{m.floor.Load(), q.Check, q.Source, string(q.State), labels,
			q.AfterCheck, q.AfterSource, int64(listed(q.Limit)), lockPatience{}})...)
		if err != nil {
			return err
		}
		defer found.Close()
		var e monitor.StoredCheck
		for found.Next() {
			s, err := scanSource(found, &e)
			if err != nil {
				return err
			}
			out = append(out, s)
		}
		return found.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("listing sources: %w", err)
	}
	return out, nil
}

// scanSource reads a row of pageSQL; e is the event of the one before.
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
	at := func(m monitor.StoreTime) time.Time {
		if m == 0 || m == monitor.Never {
			return time.Time{}
		}
		return c.Wall.Add(-now.Sub(m))
	}
	out := monitor.SourceRecord{
		Check: e.Name, Source: c.Source, Labels: c.Labels, Declared: declared, State: c.State, Running: c.RunStarted != 0,
		Last: at(c.LastBeat), Beats: beats, Sent: fromMicros(sent), Seq: seq, Code: code,
		Alarm: c.Alarm, Reason: c.Reason, Since: c.Started, Until: at(c.PausedUntil), Note: note, Left: left(e, c.Facts),
	}
	if c.LastBeat != 0 {
		out.Quiet, out.Path = now.Sub(c.LastBeat), c.Path.Name
		out.Recent = sparks(uint64(recent), int64(now)/width-int64(c.LastBeat)/width)
	}
	return out, nil
}

// left is how long a source may still be quiet, if all but itself is as it should be.
func left(e *monitor.StoredCheck, f monitor.Facts) time.Duration {
	f.State, f.Alarm, f.RetireRequested, f.Removed = monitor.Up, "", false, false
	f.Path.LastSeen, f.Path.TrustFor = f.Now, 0
	event := e.Check
	event.Paused = false
	switch v := event.Evaluate(f); {
	case v.Transition != monitor.NoTransition:
		return v.At.Sub(f.Now)
	case v.Due == monitor.Never:
		return math.MaxInt64
	default:
		return v.Due.Sub(f.Now)
	}
}

// sparks are the last slots of time, the newest first; "ago" is how many have passed since the
// one of the lowest bit.
func sparks(recent uint64, ago int64) []bool {
	if ago = max(ago, 0); ago < 64 {
		recent <<= uint(ago)
	} else {
		recent = 0
	}
	out := make([]bool, 64)
	for i := range out {
		out[i] = recent>>i&1 == 1
	}
	return out
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
	if !q.Before.IsZero() {
		add("(a.raised, a.id) < ($%[1]d, $%[2]d)", q.Before, q.BeforeID)
	}
	out, err := rows(ctx, m.db, fmt.Sprintf(`SELECT %s FROM {{schema}}.monitor_alarm a WHERE %s ORDER BY a.raised DESC, a.id DESC LIMIT %d`,
		alarmColumns, where, listed(q.Limit)), func(r pgx.CollectableRow) (monitor.Alarm, error) { return scanAlarm(r) }, args...)
	if err != nil {
		return nil, fmt.Errorf("listing alarms: %w", err)
	}
	return out, nil
}

// glance is an [monitor.Overview] as one statement reads it.
const glance = `SELECT n.moment, n.wall, s.configured, s.origin, s.error,
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
	err = m.db.rowReadCommitted(ctx, glance, func(r pgx.Row) error {
		return r.Scan(&now, &out.Now, &configured, &out.Origin, &out.Error, &out.Sinks, &events, &paths, &members)
	}, m.floor.Load())
	if err == nil {
		out.Now, out.Configured = out.Now.UTC(), utc(configured)
		m.raiseFloor(now)
		err = shownAll(&out, now, events, paths, members)
	}
	if err != nil {
		return monitor.Overview{}, fmt.Errorf("looking at the monitor: %w", err)
	}
	return out, nil
}

func shownAll(out *monitor.Overview, now monitor.StoreTime, events, paths, members []string) error {
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
		quiet := now.Sub(p.Proof)
		out.Paths = append(out.Paths, monitor.PathView{
			PathStatus: monitor.PathStatus{Name: p.Name, LastSeen: p.Proof, TrustFor: micro(p.Trust), MaxGap: micro(p.Gap), BlindTotal: micro(p.Blind), BlindUntil: p.Resumed},
			Working:    quiet <= max(micro(p.Gap), micro(p.Trust)), Quiet: quiet,
		})
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

-- What becomes of sources: turns, the alarms that they begin and end, and groups of these.

-- Puts batches at the ends of their keys as append_to_key and enqueue_all do, all at once. This is the
-- second INSERT into batch, beside entry/enqueue.sql: a change of one is a change of both. It comes last
-- in its transaction: others that enqueue to one of the keys wait for its end.
-- A batch whose id the queue has already is left out.
CREATE FUNCTION {{rules}}.monitor_enqueue(p_queue text, p_keys text[], p_ids text[], p_payloads bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_keys text[] := ARRAY(SELECT DISTINCT k.key COLLATE "C" FROM unnest(p_keys) k (key) ORDER BY 1);
    v_starts bigint[]; -- a number that was given, and all before it
    v_lasts bigint[];  -- the last that was given
    v_terms bigint[];
    v_ready bigint;
BEGIN
    PERFORM {{rules}}.require_queue(p_queue);
    INSERT INTO {{schema}}.tail (queue, key) SELECT p_queue, k.key FROM unnest(v_keys) k (key) ON CONFLICT DO NOTHING;
    PERFORM FROM unnest(v_keys) k (key), LATERAL (
        SELECT FROM {{schema}}.tail e WHERE e.queue = p_queue AND e.key = k.key FOR NO KEY UPDATE) l;
    -- In a statement of its own, which sees what the last holders of the locks did.
    SELECT array_agg(e.last ORDER BY k.i), array_agg(coalesce(m.last, e.last) ORDER BY k.i), array_agg(e.term ORDER BY k.i)
      INTO v_starts, v_lasts, v_terms
      FROM unnest(v_keys) WITH ORDINALITY k (key, i)
      JOIN LATERAL (SELECT e.last, e.term FROM {{schema}}.tail e WHERE e.queue = p_queue AND e.key = k.key OFFSET 0) e ON true
      LEFT JOIN LATERAL (SELECT b.seq AS last FROM {{schema}}.batch b
        WHERE b.queue = p_queue AND b.key = k.key AND b.seq > e.last ORDER BY b.seq DESC LIMIT 1) m ON true;
    INSERT INTO {{schema}}.batch (queue, key, id, content_type, payload, seq)
    SELECT p_queue, x.key, x.id, 'application/json', x.payload, v_lasts[x.place] + row_number() OVER (PARTITION BY x.place ORDER BY x.i)
      FROM (SELECT u.*, dense_rank() OVER (ORDER BY u.key COLLATE "C") AS place
              FROM unnest(p_keys, p_ids, p_payloads) WITH ORDINALITY u (key, id, payload, i)) x
     WHERE NOT EXISTS (SELECT FROM {{schema}}.batch b WHERE b.id = x.id AND b.queue = p_queue)
     ORDER BY x.i ON CONFLICT (id, queue) DO NOTHING;
    -- Nobody marks a key as idle while its tail is locked.
    WITH readied AS (
        INSERT INTO {{schema}}.claim AS c (space, key, term, since, ready_at, done)
        SELECT 'queue/' || p_queue, k.key, k.term, {{schema}}.clock(), {{schema}}.clock(), k.start FROM unnest(v_keys, v_terms, v_starts) k (key, term, start)
         WHERE NOT EXISTS (SELECT FROM {{schema}}.claim o WHERE o.space = 'queue/' || p_queue AND o.key = k.key
                            AND (o.session <> '' OR o.ready_at IS NOT NULL OR o.blocked IS NOT NULL))
        ON CONFLICT (space, key) DO UPDATE SET ready_at = coalesce(c.ready_at, excluded.ready_at)
        RETURNING 1
    )
    SELECT count(*) INTO v_ready FROM readied;
    IF v_ready > 0 THEN
        PERFORM {{rules}}.wake_members('queue/' || p_queue, v_ready);
    END IF;
END $$;

-- Tells sinks, each of an id once. A sink that was dropped meanwhile is not told. It comes
-- last: what looks at the batches at the commit, one by one, is to keep its plans.
CREATE FUNCTION {{rules}}.monitor_notify(p_sinks text[], p_keys text[], p_ids text[], p_payloads bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{rules}}.monitor_enqueue('alarms.' || x.sink, array_agg(x.key ORDER BY x.i), array_agg(x.id ORDER BY x.i), array_agg(x.payload ORDER BY x.i))
       FROM unnest(p_sinks, p_keys, p_ids, p_payloads) WITH ORDINALITY x (sink, key, id, payload, i)
       JOIN {{schema}}.monitor_sink s ON s.name = x.sink
      GROUP BY x.sink ORDER BY x.sink;
    PERFORM set_config('plan_cache_mode', 'auto', true);
END $$;

-- Writes to the history what happened to the subjects, and tells that something did.
CREATE FUNCTION {{rules}}.monitor_record_history(p_at timestamptz, p_subjects text[], p_reasons text[], p_durations bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_subjects IS NOT NULL THEN
        INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
        SELECT p_at, 'monitor', x.subject, '', '', 0, {{rules}}.shorten_reason(x.reason), x.duration FROM unnest(p_subjects, p_reasons, p_durations) x (subject, reason, duration);
        PERFORM pg_notify({{channel}}, '');
    END IF;
END $$;

-- Moves the dues of sources of which nothing has changed since they were judged, and returns
-- the places of those. What is compared is read under the lock of the due, which whoever
-- changes it has to wait for before it makes the source due.
CREATE FUNCTION {{rules}}.monitor_move_due(p_places bigint[], p_ids bigint[], p_revs bigint[], p_stamps bigint[], p_event_revs bigint[],
    p_dues bigint[], p_wells bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_places bigint[];
    v_wells bigint[];
    v_free bigint[];
BEGIN
    -- Dues of what turned are locked already: nothing is waited for from here on. What
    -- others have is left as it was, due.
    v_free := ARRAY(SELECT l.id FROM unnest(p_ids) x (id), LATERAL (
        SELECT d.id FROM {{schema}}.monitor_due d WHERE d.id = x.id FOR NO KEY UPDATE SKIP LOCKED) l);
    WITH moved AS (
        UPDATE {{schema}}.monitor_due d SET due = x.due
          FROM (SELECT x.place, x.id, x.due, x.well <> s.well AS well
                  FROM unnest(p_places, p_ids, p_revs, p_stamps, p_event_revs, p_dues, p_wells) x (place, id, rev, stamp, event_rev, due, well)
                  JOIN {{schema}}.monitor_source s ON s.id = x.id AND s.rev = x.rev
                  JOIN {{schema}}.monitor_beat b ON b.id = x.id AND b.beats + b.run = x.stamp
                  JOIN {{schema}}.monitor_event e ON e.id = s.event AND e.rev = x.event_rev
                 WHERE x.id = ANY (v_free)) x
         WHERE d.id = x.id
        RETURNING x.place, x.well
    )
    SELECT array_agg(place), array_agg(place) FILTER (WHERE well) INTO v_places, v_wells FROM moved;
    IF v_wells IS NOT NULL THEN
        -- Others may have turned it by now, or are at it; then it means nothing.
        v_free := ARRAY(SELECT l.id FROM unnest(p_places, p_ids) x (place, id), LATERAL (
            SELECT s.id FROM {{schema}}.monitor_source s WHERE s.id = x.id FOR NO KEY UPDATE SKIP LOCKED) l WHERE x.place = ANY (v_wells));
        UPDATE {{schema}}.monitor_source s SET well = x.well
          FROM unnest(p_ids, p_revs, p_wells) x (id, rev, well) WHERE s.id = x.id AND s.rev = x.rev AND s.id = ANY (v_free);
    END IF;
    RETURN coalesce(v_places, '{}');
END $$;

-- What becomes of one source.
CREATE TYPE {{rules}}.monitor_transition AS (
    place bigint, id bigint, turn text, due bigint, base bigint, alarm text, reason text, at timestamptz, grp text,
    event bigint, event_name text, name text, labels jsonb, was text, stood text, seen boolean, state text
);

-- Turns sources of which nothing has changed since they were judged, and returns the
-- places of those. Beats under way are waited for; later ones wait, and then see it.
CREATE FUNCTION {{rules}}.monitor_apply_transitions(t bigint, p_wall timestamptz, p_places bigint[], p_ids bigint[], p_revs bigint[], p_stamps bigint[],
    p_event_revs bigint[], p_turns text[], p_dues bigint[], p_bases bigint[], p_alarms text[], p_reasons text[], p_ats bigint[], p_groups text[])
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_turned {{rules}}.monitor_transition[];
BEGIN
    PERFORM FROM unnest(p_ids) x (id), LATERAL (
        SELECT FROM {{schema}}.monitor_beat b JOIN {{schema}}.monitor_source s ON s.id = b.id WHERE b.id = x.id FOR NO KEY UPDATE OF b, s) l;
    SELECT array_agg(ROW(x.place, x.id, x.turn, x.due, x.base, x.alarm, x.reason, coalesce({{rules}}.monitor_wall(nullif(x.at, 0)), p_wall), x.grp,
               e.id, e.name, s.name, s.labels, s.state, s.alarm, b.at <> 0,
               CASE x.turn WHEN 'ONSET' THEN 'down' WHEN 'return' THEN 'up' WHEN 'retire' THEN 'retired' WHEN 'forget' THEN NULL
                    WHEN 'resume' THEN CASE WHEN s.alarm <> '' THEN 'down' ELSE 'up' END
                    ELSE CASE WHEN s.state = 'down' THEN 'up' ELSE s.state END END)::{{rules}}.monitor_transition ORDER BY x.id)
      INTO v_turned
      FROM (SELECT DISTINCT ON (x.id) x.*
              FROM unnest(p_places, p_ids, p_revs, p_stamps, p_event_revs, p_turns, p_dues, p_bases, p_alarms, p_reasons, p_ats, p_groups)
                   x (place, id, rev, stamp, event_rev, turn, due, base, alarm, reason, at, grp) ORDER BY x.id, x.place) x
      JOIN {{schema}}.monitor_source s ON s.id = x.id AND s.rev = x.rev
      JOIN {{schema}}.monitor_beat b ON b.id = x.id AND b.beats + b.run = x.stamp
      JOIN {{schema}}.monitor_event e ON e.id = s.event AND e.rev = x.event_rev;
    IF v_turned IS NULL THEN
        RETURN '{}';
    END IF;
    UPDATE {{schema}}.monitor_beat b SET watched = x.turn = 'ONSET' OR x.turn = 'retire' OR x.turn = 'resume' AND x.stood <> ''
      FROM unnest(v_turned) x WHERE b.id = x.id AND x.turn <> 'forget';
    UPDATE {{schema}}.monitor_source s
       SET rev = s.rev + 1, state = x.state, well = 0,
           alarm = CASE x.turn WHEN 'ONSET' THEN x.alarm WHEN 'resume' THEN s.alarm ELSE '' END,
           reason = CASE x.turn WHEN 'ONSET' THEN x.reason WHEN 'resume' THEN s.reason ELSE '' END,
           onset = CASE x.turn WHEN 'ONSET' THEN t WHEN 'resume' THEN s.onset ELSE 0 END,
           base = CASE WHEN x.turn IN ('resume', 'return') THEN x.base ELSE s.base END,
           until = CASE WHEN x.turn IN ('resume', 'retire') THEN 0 ELSE s.until END,
           ended = CASE x.turn WHEN 'retire' THEN t WHEN 'return' THEN 0 ELSE s.ended END,
           asked = s.asked AND x.turn NOT IN ('retire', 'return')
      FROM unnest(v_turned) x WHERE s.id = x.id AND x.turn <> 'forget';
    PERFORM {{rules}}.monitor_start_and_end_alarms(p_wall, v_turned);
    UPDATE {{schema}}.monitor_due d SET due = x.due FROM unnest(v_turned) x WHERE d.id = x.id AND x.turn <> 'forget';
    IF 'forget' = ANY (p_turns) THEN
        DELETE FROM {{schema}}.monitor_beat b USING unnest(v_turned) x WHERE b.id = x.id AND x.turn = 'forget';
        DELETE FROM {{schema}}.monitor_source s USING unnest(v_turned) x WHERE s.id = x.id AND x.turn = 'forget';
        DELETE FROM {{schema}}.monitor_due d USING unnest(v_turned) x WHERE d.id = x.id AND x.turn = 'forget';
    END IF;
    INSERT INTO {{schema}}.monitor_count (event, state, seen, n)
    SELECT c.event, c.state, c.seen, sum(c.n) FROM (
        SELECT x.event, x.was AS state, x.seen, -1 AS n FROM unnest(v_turned) x
        UNION ALL SELECT x.event, x.state, x.seen, 1 FROM unnest(v_turned) x WHERE x.state IS NOT NULL
        UNION ALL SELECT x.event, 'alarm', true, CASE WHEN x.turn = 'ONSET' THEN 1 ELSE -1 END FROM unnest(v_turned) x
         WHERE x.turn = 'ONSET' OR x.turn <> 'resume' AND x.stood <> '') c
     GROUP BY c.event, c.state, c.seen HAVING sum(c.n) <> 0;
    RETURN ARRAY(SELECT x.place FROM unnest(v_turned) x);
END $$;

-- Begins and ends the alarms of sources that turn.
CREATE FUNCTION {{rules}}.monitor_start_and_end_alarms(p_wall timestamptz, p_turned {{rules}}.monitor_transition[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_subjects text[];
    v_reasons text[];
    v_lasted bigint[];
BEGIN
    INSERT INTO {{schema}}.monitor_alarm (id, event, source, grp, held, labels, reason, started, raised)
    SELECT x.alarm, x.event_name, x.name, x.grp, x.grp <> '', x.labels, x.reason, x.at, p_wall FROM unnest(p_turned) x WHERE x.turn = 'ONSET';
    PERFORM FROM (SELECT x.stood FROM unnest(p_turned) x WHERE x.turn NOT IN ('ONSET', 'resume') AND x.stood <> '' ORDER BY x.stood) x,
        LATERAL (SELECT FROM {{schema}}.monitor_alarm a WHERE a.id = x.stood FOR NO KEY UPDATE) l;
    WITH ended AS (
        UPDATE {{schema}}.monitor_alarm a SET ended = x.at, finish = x.turn, held = false
          FROM unnest(p_turned) x WHERE a.id = x.stood AND x.turn NOT IN ('ONSET', 'resume') AND x.stood <> ''
        RETURNING x.place, x.event_name || '/' || x.name AS subject, x.turn AS reason, {{rules}}.nanoseconds(greatest(x.at - a.started, '0')) AS lasted
    ), both_kinds AS (
        SELECT * FROM ended
        UNION ALL SELECT x.place, x.event_name || '/' || x.name, x.reason, {{rules}}.nanoseconds(greatest(p_wall - x.at, '0')) FROM unnest(p_turned) x WHERE x.turn = 'ONSET'
    )
    SELECT array_agg(subject ORDER BY place), array_agg(reason ORDER BY place), array_agg(lasted ORDER BY place)
      INTO v_subjects, v_reasons, v_lasted FROM both_kinds;
    PERFORM {{rules}}.monitor_record_history(p_wall, v_subjects, v_reasons, v_lasted);
END $$;

-- Makes changes, those that only move dues and others, and tells which were made.
CREATE FUNCTION {{rules}}.monitor_apply_changes(p_floor bigint, p_ids bigint[], p_revs bigint[], p_stamps bigint[], p_event_revs bigint[], p_turns text[],
    p_dues bigint[], p_wells bigint[], p_bases bigint[], p_alarms text[], p_reasons text[], p_ats bigint[], p_groups text[],
    p_places bigint[], p_sinks text[], p_keys text[], p_nids text[], p_payloads bytea[], p_patience bigint, OUT made bigint[], OUT moment bigint) LANGUAGE plpgsql AS $$
DECLARE
    v_now record;
BEGIN
    PERFORM {{rules}}.monitor_configure_statement(p_patience);
    SELECT * INTO v_now FROM {{rules}}.monitor_now(p_floor);
    moment := v_now.moment;
    made := '{}';
    IF EXISTS (SELECT FROM unnest(p_turns) x (turn) WHERE x.turn <> '') THEN
        SELECT {{rules}}.monitor_apply_transitions(v_now.moment, v_now.wall, array_agg(x.i), array_agg(x.id), array_agg(x.rev), array_agg(x.stamp), array_agg(x.event_rev),
                   array_agg(x.turn), array_agg(x.due), array_agg(x.base), array_agg(x.alarm), array_agg(x.reason), array_agg(x.at), array_agg(x.grp))
          INTO made
          FROM (SELECT x.* FROM unnest(p_ids, p_revs, p_stamps, p_event_revs, p_turns, p_dues, p_bases, p_alarms, p_reasons, p_ats, p_groups) WITH ORDINALITY
                     x (id, rev, stamp, event_rev, turn, due, base, alarm, reason, at, grp, i) WHERE x.turn <> '' ORDER BY x.id, x.i) x;
    END IF;
    IF '' = ANY (p_turns) THEN
        SELECT made || {{rules}}.monitor_move_due(array_agg(x.i), array_agg(x.id), array_agg(x.rev), array_agg(x.stamp), array_agg(x.event_rev),
                   array_agg(x.due), array_agg(x.well))
          INTO made
          FROM (SELECT x.* FROM unnest(p_ids, p_revs, p_stamps, p_event_revs, p_turns, p_dues, p_wells) WITH ORDINALITY
                     x (id, rev, stamp, event_rev, turn, due, well, i) WHERE x.turn = '' ORDER BY x.id) x;
    END IF;
    IF cardinality(p_places) > 0 AND made <> '{}' THEN
        PERFORM set_config('enable_hashjoin', 'on', true);
        PERFORM {{rules}}.monitor_notify(array_agg(x.sink ORDER BY x.i), array_agg(x.key ORDER BY x.i), array_agg(x.id ORDER BY x.i), array_agg(x.payload ORDER BY x.i))
          FROM unnest(p_places, p_sinks, p_keys, p_nids, p_payloads) WITH ORDINALITY x (place, sink, key, id, payload, i)
         WHERE x.place IN (SELECT unnest(made));
    END IF;
END $$;

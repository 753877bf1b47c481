-- What becomes of sources: their transitions, the alarms that these start and end, and the notifications of sinks.

-- Makes changes of sources: those with a transition, and those that only move a due. Returns the numbers of those that were made.
CREATE FUNCTION {{rules}}.monitor_apply_changes(p_latest bigint, p_ids bigint[], p_revs bigint[], p_beat_revs bigint[], p_check_revs bigint[], p_transitions text[],
    p_dues bigint[], p_well_since bigint[], p_bases bigint[], p_alarms text[], p_reasons text[], p_ats bigint[], p_groups text[],
    p_change_nos bigint[], p_sinks text[], p_keys text[], p_nids text[], p_payloads bytea[], p_lock_timeout_ms bigint, OUT made bigint[], OUT moment bigint) LANGUAGE plpgsql AS $$
DECLARE
    v_now record;
BEGIN
    PERFORM {{rules}}.monitor_configure_statement(p_lock_timeout_ms);
    SELECT * INTO v_now FROM {{rules}}.monitor_now(p_latest);
    moment := v_now.moment;
    made := '{}';
    IF EXISTS (SELECT FROM unnest(p_transitions) x (transition) WHERE x.transition <> '') THEN
        SELECT {{rules}}.monitor_apply_transitions(v_now.moment, v_now.wall, array_agg(x.i), array_agg(x.id), array_agg(x.rev), array_agg(x.beat_rev), array_agg(x.check_rev),
                   array_agg(x.transition), array_agg(x.due), array_agg(x.base), array_agg(x.alarm), array_agg(x.reason), array_agg(x.at), array_agg(x.grp))
          INTO made
          FROM (SELECT x.* FROM unnest(p_ids, p_revs, p_beat_revs, p_check_revs, p_transitions, p_dues, p_bases, p_alarms, p_reasons, p_ats, p_groups) WITH ORDINALITY
                     x (id, rev, beat_rev, check_rev, transition, due, base, alarm, reason, at, grp, i) WHERE x.transition <> '' ORDER BY x.id, x.i) x;
    END IF;
    IF '' = ANY (p_transitions) THEN
        SELECT made || {{rules}}.monitor_move_due(array_agg(x.i), array_agg(x.id), array_agg(x.rev), array_agg(x.beat_rev), array_agg(x.check_rev),
                   array_agg(x.due), array_agg(x.well))
          INTO made
          FROM (SELECT x.* FROM unnest(p_ids, p_revs, p_beat_revs, p_check_revs, p_transitions, p_dues, p_well_since) WITH ORDINALITY
                     x (id, rev, beat_rev, check_rev, transition, due, well, i) WHERE x.transition = '' ORDER BY x.id) x;
    END IF;
    IF cardinality(p_change_nos) > 0 AND made <> '{}' THEN
        PERFORM set_config('enable_hashjoin', 'on', true);
        PERFORM {{rules}}.monitor_notify(array_agg(x.sink ORDER BY x.i), array_agg(x.key ORDER BY x.i), array_agg(x.id ORDER BY x.i), array_agg(x.payload ORDER BY x.i))
          FROM unnest(p_change_nos, p_sinks, p_keys, p_nids, p_payloads) WITH ORDINALITY x (change_no, sink, key, id, payload, i)
         WHERE x.change_no IN (SELECT unnest(made));
    END IF;
END $$;

-- What becomes of one source.
CREATE TYPE {{rules}}.monitor_transition AS (
    change_no bigint, id bigint, transition text, due bigint, base bigint, alarm text, reason text, at timestamptz, grp text,
    event bigint, event_name text, name text, labels jsonb, was text, standing text, beats bigint, seen boolean, state text
);

-- Makes the transitions of sources of which nothing has changed since they were evaluated, and returns the numbers of
-- those changes: their places in the arrays of monitor_apply_changes. Heartbeats under way are waited for; later ones wait, and
-- then see the transition.
CREATE FUNCTION {{rules}}.monitor_apply_transitions(t bigint, p_wall timestamptz, p_change_nos bigint[], p_ids bigint[], p_revs bigint[], p_beat_revs bigint[],
    p_check_revs bigint[], p_transitions text[], p_dues bigint[], p_bases bigint[], p_alarms text[], p_reasons text[], p_ats bigint[], p_groups text[])
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_transitions {{rules}}.monitor_transition[];
BEGIN
    PERFORM FROM unnest(p_ids) x (id), LATERAL (
        SELECT FROM {{schema}}.monitor_beat b JOIN {{schema}}.monitor_source s ON s.id = b.id WHERE b.id = x.id FOR NO KEY UPDATE OF b, s) l;
    SELECT array_agg(ROW(x.change_no, x.id, x.transition, x.due, x.base, x.alarm, x.reason, coalesce({{rules}}.monitor_wall(nullif(x.at, 0)), p_wall), x.grp,
               e.id, e.name, s.name, s.labels, s.state, s.alarm, b.beats, b.at <> 0,
               CASE x.transition WHEN 'ONSET' THEN 'down' WHEN 'return' THEN 'up' WHEN 'retire' THEN 'retired' WHEN 'forget' THEN NULL
                    WHEN 'resume' THEN CASE WHEN s.alarm <> '' THEN 'down' ELSE 'up' END
                    ELSE CASE WHEN s.state = 'down' THEN 'up' ELSE s.state END END)::{{rules}}.monitor_transition ORDER BY x.id)
      INTO v_transitions
      FROM (SELECT DISTINCT ON (x.id) x.*
              FROM unnest(p_change_nos, p_ids, p_revs, p_beat_revs, p_check_revs, p_transitions, p_dues, p_bases, p_alarms, p_reasons, p_ats, p_groups)
                   x (change_no, id, rev, beat_rev, check_rev, transition, due, base, alarm, reason, at, grp) ORDER BY x.id, x.change_no) x
      JOIN {{schema}}.monitor_source s ON s.id = x.id AND s.rev = x.rev
      JOIN {{schema}}.monitor_beat b ON b.id = x.id AND b.beats + b.run = x.beat_rev
      JOIN {{schema}}.monitor_event e ON e.id = s.event AND e.rev = x.check_rev;
    IF v_transitions IS NULL THEN
        RETURN '{}';
    END IF;
    UPDATE {{schema}}.monitor_beat b SET watched = x.transition = 'ONSET' OR x.transition = 'retire' OR x.transition = 'resume' AND x.standing <> ''
      FROM unnest(v_transitions) x WHERE b.id = x.id AND x.transition <> 'forget';
    UPDATE {{schema}}.monitor_source s
       SET rev = s.rev + 1, state = x.state, well = 0,
           alarm = CASE x.transition WHEN 'ONSET' THEN x.alarm WHEN 'resume' THEN s.alarm ELSE '' END,
           reason = CASE x.transition WHEN 'ONSET' THEN x.reason WHEN 'resume' THEN s.reason ELSE '' END,
           onset = CASE x.transition WHEN 'ONSET' THEN t WHEN 'resume' THEN s.onset ELSE 0 END,
           base = CASE WHEN x.transition IN ('resume', 'return') THEN x.base ELSE s.base END,
           until = CASE WHEN x.transition IN ('resume', 'retire') THEN 0 ELSE s.until END,
           ended = CASE x.transition WHEN 'retire' THEN t WHEN 'return' THEN 0 ELSE s.ended END,
           asked = s.asked AND x.transition NOT IN ('retire', 'return'),
           note = CASE WHEN x.transition IN ('resume', 'return') THEN '' ELSE s.note END
      FROM unnest(v_transitions) x WHERE s.id = x.id AND x.transition <> 'forget';
    PERFORM {{rules}}.monitor_start_and_end_alarms(p_wall, v_transitions);
    UPDATE {{schema}}.monitor_due d SET due = x.due FROM unnest(v_transitions) x WHERE d.id = x.id AND x.transition <> 'forget';
    IF 'forget' = ANY (p_transitions) THEN
        DELETE FROM {{schema}}.monitor_beat b USING unnest(v_transitions) x WHERE b.id = x.id AND x.transition = 'forget';
        DELETE FROM {{schema}}.monitor_source s USING unnest(v_transitions) x WHERE s.id = x.id AND x.transition = 'forget';
        DELETE FROM {{schema}}.monitor_due d USING unnest(v_transitions) x WHERE d.id = x.id AND x.transition = 'forget';
    END IF;
    INSERT INTO {{schema}}.monitor_count (event, state, seen, n)
    SELECT c.event, c.state, c.seen, sum(c.n) FROM (
        SELECT x.event, x.was AS state, x.seen, -1 AS n FROM unnest(v_transitions) x
        UNION ALL SELECT x.event, x.state, x.seen, 1 FROM unnest(v_transitions) x WHERE x.state IS NOT NULL
        UNION ALL SELECT x.event, 'alarm', true, CASE WHEN x.transition = 'ONSET' THEN 1 ELSE -1 END FROM unnest(v_transitions) x
         WHERE x.transition = 'ONSET' OR x.transition <> 'resume' AND x.standing <> '') c
     GROUP BY c.event, c.state, c.seen HAVING sum(c.n) <> 0;
    RETURN ARRAY(SELECT x.change_no FROM unnest(v_transitions) x);
END $$;

-- Starts and ends the alarms of sources with a transition.
CREATE FUNCTION {{rules}}.monitor_start_and_end_alarms(p_wall timestamptz, p_transitions {{rules}}.monitor_transition[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_subjects text[];
    v_reasons text[];
    v_lasted bigint[];
BEGIN
    INSERT INTO {{schema}}.monitor_alarm (id, event, source, grp, held, labels, reason, started, raised, beats)
    SELECT x.alarm, x.event_name, x.name, x.grp, x.grp <> '', x.labels, x.reason, x.at, p_wall, x.beats FROM unnest(p_transitions) x WHERE x.transition = 'ONSET';
    PERFORM FROM (SELECT x.standing FROM unnest(p_transitions) x WHERE x.transition NOT IN ('ONSET', 'resume') AND x.standing <> '' ORDER BY x.standing) x,
        LATERAL (SELECT FROM {{schema}}.monitor_alarm a WHERE a.id = x.standing FOR NO KEY UPDATE) l;
    WITH ended AS (
        UPDATE {{schema}}.monitor_alarm a SET ended = x.at, finish = x.transition, held = false
          FROM unnest(p_transitions) x WHERE a.id = x.standing AND x.transition NOT IN ('ONSET', 'resume') AND x.standing <> ''
        RETURNING x.change_no, x.event_name || '/' || x.name AS subject, x.transition AS reason, {{rules}}.nanoseconds(greatest(x.at - a.started, '0')) AS lasted
    ), both_kinds AS (
        SELECT * FROM ended
        UNION ALL SELECT x.change_no, x.event_name || '/' || x.name, x.reason, {{rules}}.nanoseconds(greatest(p_wall - x.at, '0')) FROM unnest(p_transitions) x WHERE x.transition = 'ONSET'
    )
    SELECT array_agg(subject ORDER BY change_no), array_agg(reason ORDER BY change_no), array_agg(lasted ORDER BY change_no)
      INTO v_subjects, v_reasons, v_lasted FROM both_kinds;
    PERFORM {{rules}}.monitor_record_history(p_wall, v_subjects, v_reasons, v_lasted);
END $$;

-- Moves the dues of sources of which nothing has changed since they were evaluated, and returns
-- the numbers of those changes. What is compared is read under the lock of the due, which whoever
-- changes it has to wait for before it makes the source due.
CREATE FUNCTION {{rules}}.monitor_move_due(p_change_nos bigint[], p_ids bigint[], p_revs bigint[], p_beat_revs bigint[], p_check_revs bigint[],
    p_dues bigint[], p_well_since bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    v_change_nos bigint[];
    v_wells bigint[];
    v_free bigint[];
BEGIN
    -- Dues of sources with a transition are locked already: nothing is waited for from here on. What
    -- others have is left as it was, due.
    v_free := ARRAY(SELECT l.id FROM unnest(p_ids) x (id), LATERAL (
        SELECT d.id FROM {{schema}}.monitor_due d WHERE d.id = x.id FOR NO KEY UPDATE SKIP LOCKED) l);
    WITH moved AS (
        UPDATE {{schema}}.monitor_due d SET due = x.due
          FROM (SELECT x.change_no, x.id, x.due, x.well <> s.well AS well
                  FROM unnest(p_change_nos, p_ids, p_revs, p_beat_revs, p_check_revs, p_dues, p_well_since) x (change_no, id, rev, beat_rev, check_rev, due, well)
                  JOIN {{schema}}.monitor_source s ON s.id = x.id AND s.rev = x.rev
                  JOIN {{schema}}.monitor_beat b ON b.id = x.id AND b.beats + b.run = x.beat_rev
                  JOIN {{schema}}.monitor_event e ON e.id = s.event AND e.rev = x.check_rev
                 WHERE x.id = ANY (v_free)) x
         WHERE d.id = x.id
        RETURNING x.change_no, x.well
    )
    SELECT array_agg(change_no), array_agg(change_no) FILTER (WHERE well) INTO v_change_nos, v_wells FROM moved;
    IF v_wells IS NOT NULL THEN
        -- Others may have made a transition of it by now, or are at it; then the mark means nothing.
        v_free := ARRAY(SELECT l.id FROM unnest(p_change_nos, p_ids) x (change_no, id), LATERAL (
            SELECT s.id FROM {{schema}}.monitor_source s WHERE s.id = x.id FOR NO KEY UPDATE SKIP LOCKED) l WHERE x.change_no = ANY (v_wells));
        UPDATE {{schema}}.monitor_source s SET well = x.well
          FROM unnest(p_ids, p_revs, p_well_since) x (id, rev, well) WHERE s.id = x.id AND s.rev = x.rev AND s.id = ANY (v_free);
    END IF;
    RETURN coalesce(v_change_nos, '{}');
END $$;

-- Writes to the history what happened to the subjects, and notifies those that follow all changes.
CREATE FUNCTION {{rules}}.monitor_record_history(p_at timestamptz, p_subjects text[], p_reasons text[], p_durations bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF p_subjects IS NOT NULL THEN
        INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
        SELECT p_at, 'monitor', x.subject, '', '', 0, {{rules}}.shorten_reason(x.reason), x.duration FROM unnest(p_subjects, p_reasons, p_durations) x (subject, reason, duration);
        PERFORM {{rules}}.notify_change('monitor', '', 0, false, '');
    END IF;
END $$;

-- Stores the notifications of sinks, each id once; the sink '' stands for all. A sink that was dropped meanwhile gets none. It comes
-- last: the trigger that numbers the messages at the commit, one by one, is to keep its plans.
CREATE FUNCTION {{rules}}.monitor_notify(p_sinks text[], p_keys text[], p_ids text[], p_payloads bytea[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{rules}}.monitor_enqueue('alarms.' || s.name, array_agg(x.key ORDER BY x.i), array_agg(x.id ORDER BY x.i), array_agg(x.payload ORDER BY x.i))
       FROM unnest(p_sinks, p_keys, p_ids, p_payloads) WITH ORDINALITY x (sink, key, id, payload, i)
       JOIN {{schema}}.monitor_sink s ON x.sink IN ('', s.name)
      GROUP BY s.name ORDER BY s.name;
    PERFORM set_config('plan_cache_mode', 'auto', true);
END $$;

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
    SELECT p_queue, x.key, x.id, 'application/json', x.payload, v_lasts[x.key_no] + row_number() OVER (PARTITION BY x.key_no ORDER BY x.i)
      FROM (SELECT u.*, dense_rank() OVER (ORDER BY u.key COLLATE "C") AS key_no
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

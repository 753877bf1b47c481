-- Heartbeats and reports.

-- Records probes and heartbeats; p_at is the index of each heartbeat's path. p_signals and what
-- goes with it is null if all that the heartbeats say is that their sources are alive. Time is read
-- first: the probe does not cover what comes in while this waits.
CREATE FUNCTION {{rules}}.monitor_record_heartbeats(p_latest bigint, p_paths text[], p_trusts bigint[], p_gaps bigint[], p_name_only boolean[],
    p_ids bigint[], p_at integer[], p_sents bigint[], p_seqs bigint[], p_counts integer[], p_signals integer[], p_codes integer[], p_by boolean[], p_runs bigint[],
    p_lock_timeout_ms bigint, OUT unknown bigint[], OUT replayed bigint, OUT generation bigint, OUT moment bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c record;
    p record;
    t bigint;
    v_paths smallint[] := '{}';
    v_probed smallint[] := '{}';
    v_blinds bigint[] := '{}';
    v_resumed bigint[] := '{}';
    v_stored bigint[] := '{}';
    v_touched bigint[];
    v_first bigint[];
BEGIN
    PERFORM {{rules}}.monitor_configure_statement(p_lock_timeout_ms);
    SELECT * INTO c FROM {{rules}}.monitor_now(p_latest);
    t := c.moment;
    moment := t;
    generation := c.generation;
    unknown := '{}';
    replayed := 0;
    FOR n IN 1 .. cardinality(p_paths) LOOP
        SELECT x.* INTO p FROM {{schema}}.monitor_path x WHERE x.name = p_paths[n];
        IF p_name_only[n] THEN
            IF NOT FOUND THEN
                INSERT INTO {{schema}}.monitor_path (name, proof, trust, gap) VALUES (p_paths[n], 0, p_trusts[n], p_gaps[n]) ON CONFLICT DO NOTHING;
                SELECT x.* INTO p FROM {{schema}}.monitor_path x WHERE x.name = p_paths[n];
            END IF;
        ELSIF NOT FOUND OR p.anew OR t - p.proof > p_gaps[n] OR p.trust <> p_trusts[n] OR p.gap <> p_gaps[n] THEN
            SELECT * INTO p FROM {{rules}}.monitor_record_probe(t, p_paths[n], p_trusts[n], p_gaps[n]);
        END IF;
        IF NOT p_name_only[n] THEN
            v_probed := v_probed || p.id;
        END IF;
        v_paths := v_paths || p.id;
        v_blinds := v_blinds || p.blind;
        v_resumed := v_resumed || p.resumed;
    END LOOP;
    IF cardinality(p_ids) = 0 THEN
        NULL;
    ELSIF p_signals IS NULL THEN
        WITH recorded AS (
            UPDATE {{schema}}.monitor_beat b
               SET at = greatest(b.at, t), blind = v_blinds[x.p], path = v_paths[x.p],
                   sent = x.sent, seq = x.seq, beats = b.beats + x.n, run = 0, failing = false, code = 0, room = '',
                   recent = CASE WHEN t / b.width - b.at / b.width < 64 THEN b.recent << greatest(t / b.width - b.at / b.width, 0)::int ELSE 0 END | 1,
                   did = CASE WHEN b.watched OR b.run <> 0 THEN 1 ELSE 0 END + CASE WHEN b.at = 0 THEN 2 ELSE 0 END
              FROM unnest(p_ids, p_at, p_sents, p_seqs, p_counts) x (id, p, sent, seq, n)
             WHERE b.id = x.id AND NOT (x.sent <> 0 AND x.sent = b.sent AND x.seq = b.seq)
            RETURNING b.id, b.did
        )
        SELECT array_agg(id), array_agg(id) FILTER (WHERE did & 1 = 1), array_agg(id) FILTER (WHERE did & 2 = 2)
          INTO v_stored, v_touched, v_first FROM recorded;
    ELSE
        WITH recorded AS (
            UPDATE {{schema}}.monitor_beat b
               SET at = CASE WHEN x.signal = 1 THEN b.at
                       WHEN x.by AND x.sent <> 0 THEN {{rules}}.monitor_counts_from(b.at, x.sent - c.shift,
                           CASE WHEN b.at = 0 THEN (SELECT s.base FROM {{schema}}.monitor_source s WHERE s.id = b.id) END, t)
                       ELSE greatest(b.at, t) END,
                   blind = CASE WHEN x.signal = 1 THEN b.blind
                       WHEN x.by AND x.sent <> 0 THEN {{rules}}.monitor_blind_by({{rules}}.monitor_counts_from(b.at, x.sent - c.shift,
                           CASE WHEN b.at = 0 THEN (SELECT s.base FROM {{schema}}.monitor_source s WHERE s.id = b.id) END, t),
                           v_resumed[x.p], v_blinds[x.p], CASE WHEN b.path = v_paths[x.p] THEN b.blind END)
                       ELSE v_blinds[x.p] END,
                   path = CASE WHEN x.signal = 1 THEN b.path ELSE v_paths[x.p] END,
                   sent = CASE WHEN x.signal = 1 THEN b.sent ELSE x.sent END,
                   seq = CASE WHEN x.signal = 1 THEN b.seq ELSE x.seq END,
                   code = CASE WHEN x.signal = 1 THEN b.code ELSE x.code END,
                   beats = b.beats + CASE WHEN x.signal = 1 THEN 0 ELSE x.n END,
                   recent = CASE WHEN x.signal = 1 THEN b.recent ELSE {{rules}}.monitor_shift_recent(b.recent,
                       CASE WHEN x.by AND x.sent <> 0 THEN {{rules}}.monitor_counts_from(b.at, x.sent - c.shift, NULL, t) ELSE greatest(b.at, t) END / b.width - b.at / b.width) | 1 END,
                   run = CASE WHEN x.signal = 1 THEN t
                       WHEN x.signal = 0 AND x.run <> 0 AND b.run_key <> 0 AND x.run <> b.run_key THEN b.run ELSE 0 END,
                   run_key = CASE WHEN x.signal = 1 THEN x.run ELSE b.run_key END,
                   failing = CASE WHEN x.signal = 1 THEN b.failing ELSE x.signal = 2 END,
                   room = '',
                   did = CASE WHEN b.watched OR b.run <> 0 OR x.signal <> 0 THEN 1 ELSE 0 END + CASE WHEN b.at = 0 AND x.signal <> 1 THEN 2 ELSE 0 END
              FROM unnest(p_ids, p_at, p_sents, p_seqs, p_counts, p_signals, p_codes, p_by, p_runs) x (id, p, sent, seq, n, signal, code, by, run)
             WHERE b.id = x.id AND NOT (x.sent <> 0 AND x.sent = b.sent AND x.seq = b.seq)
            RETURNING b.id, b.did
        )
        SELECT array_agg(id), array_agg(id) FILTER (WHERE did & 1 = 1), array_agg(id) FILTER (WHERE did & 2 = 2)
          INTO v_stored, v_touched, v_first FROM recorded;
    END IF;
    IF cardinality(p_ids) > coalesce(cardinality(v_stored), 0) THEN
        SELECT * INTO unknown, replayed FROM {{rules}}.monitor_unknown_or_replayed(p_ids, p_counts, v_stored);
    END IF;
    IF v_first IS NOT NULL THEN
        -- Its state cannot change: who does that locks the beat first.
        INSERT INTO {{schema}}.monitor_count (event, state, seen, n)
        SELECT s.event, s.state, x.seen, count(*) * x.sign FROM unnest(v_first) f (id) JOIN {{schema}}.monitor_source s ON s.id = f.id,
               (VALUES (false, -1), (true, 1)) x (seen, sign) GROUP BY s.event, s.state, x.seen, x.sign;
    END IF;
    PERFORM {{rules}}.monitor_make_due(v_touched, t);
    -- Another that records a probe of a path just now does it for this one.
    UPDATE {{schema}}.monitor_path p SET proof = t
      FROM (SELECT x.id FROM {{schema}}.monitor_path x WHERE x.id = ANY (v_probed) AND x.proof < t ORDER BY x.id FOR NO KEY UPDATE SKIP LOCKED) mine
     WHERE p.id = mine.id AND p.proof < t;
END $$;

-- Records that a path works, where that takes a lock: for the first time, or
-- after more than its gap. Other proofs are recorded at the end of a statement. When
-- no path was seen for so long, all were blind.
CREATE FUNCTION {{rules}}.monitor_record_probe(t bigint, p_name text, p_trust bigint, p_gap bigint, OUT id smallint, OUT blind bigint, OUT resumed bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM FROM {{schema}}.monitor_path p ORDER BY p.id FOR NO KEY UPDATE;
    UPDATE {{schema}}.monitor_path p SET anew = true
     WHERE p.name <> p_name AND NOT p.anew AND t - (SELECT max(x.proof) FROM {{schema}}.monitor_path x) > p_gap;
    INSERT INTO {{schema}}.monitor_path AS p (name, proof, trust, gap, resumed) VALUES (p_name, t, p_trust, p_gap, t)
    ON CONFLICT (name) DO UPDATE
       SET proof = greatest(p.proof, t), trust = p_trust, gap = p_gap, anew = false,
           blind = p.blind + CASE WHEN p.proof > 0 AND (p.anew OR t - p.proof > p_gap) THEN greatest(t - p.proof, 0) ELSE 0 END,
           resumed = CASE WHEN p.anew OR t - p.proof > p_gap THEN greatest(p.resumed, t) ELSE p.resumed END
    RETURNING p.id, p.blind, p.resumed INTO id, blind, resumed;
END $$;

-- When a heartbeat counts from whose sender's clock counts: not from before the last one or, if there was none, the base.
CREATE FUNCTION {{rules}}.monitor_counts_from(p_last bigint, p_sent bigint, p_base bigint, t bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT least(greatest(p_last, p_sent, 1, p_base), greatest(p_last, t)) $$;

-- PathStatus.BlindBy: p_last is null if the last heartbeat came by another path.
CREATE FUNCTION {{rules}}.monitor_blind_by(p_at bigint, p_resumed bigint, p_blind bigint, p_last bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN p_at >= p_resumed THEN p_blind ELSE coalesce(p_last, p_blind - least(p_blind, p_resumed - p_at)) END $$;

-- Of heartbeats that were not all recorded: the ids of sources that do not exist. The others are replays.
CREATE FUNCTION {{rules}}.monitor_unknown_or_replayed(p_ids bigint[], p_counts integer[], p_stored bigint[], OUT unknown bigint[], OUT replayed bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    SELECT coalesce(array_agg(x.id) FILTER (WHERE b.id IS NULL), '{}'), coalesce(sum(x.n) FILTER (WHERE b.id IS NOT NULL), 0)
      INTO unknown, replayed
      FROM (SELECT id FROM unnest(p_ids) u (id) EXCEPT SELECT id FROM unnest(p_stored) u (id)) m
      JOIN unnest(p_ids, p_counts) x (id, n) ON x.id = m.id
      LEFT JOIN {{schema}}.monitor_beat b ON b.id = x.id;
END $$;

CREATE FUNCTION {{rules}}.monitor_shift_recent(p_recent bigint, p_slots bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN p_slots < 64 THEN p_recent << p_slots::int ELSE 0 END $$;

-- How long a slot of "recent" is. What has no interval gets one of an hour.
CREATE FUNCTION {{rules}}.monitor_slot_width(p_every bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN p_every > 0 THEN p_every ELSE 3600000000 END $$;

-- Finds sources by name, and makes those known that are not, if p_labels is given or
-- their event lets sources be learned and has no max_learned of them (p_learn if it does not say). An event that is not configured gives no row.
-- Additions of sources to one check wait for each other, so that their numbers have no gaps.
CREATE FUNCTION {{rules}}.monitor_resolve_sources(p_latest bigint, p_events text[], p_names text[], p_labels text[], p_learn bigint, p_lock_timeout_ms bigint)
RETURNS TABLE (i bigint, id bigint, sender_clock boolean, every bigint, fresh boolean, refused boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_now bigint;
    v_room bigint; -- null: for as many as there are
    v_events bigint[];
    v_made bigint[] := '{}';
    v_more bigint[];
    e record;
BEGIN
    PERFORM {{rules}}.monitor_configure_statement(p_lock_timeout_ms);
    v_events := ARRAY(SELECT DISTINCT e.id FROM unnest(p_events, p_names) x (event, name)
        JOIN {{schema}}.monitor_event e ON e.name = x.event AND NOT e.removed AND (p_labels IS NOT NULL OR NOT e.fixed)
        LEFT JOIN {{schema}}.monitor_source s ON s.event = e.id AND s.name = x.name WHERE s.id IS NULL ORDER BY 1);
    IF v_events <> '{}' THEN
        v_now := moment FROM {{rules}}.monitor_now(p_latest);
        FOR e IN SELECT e.* FROM unnest(v_events) v (id), LATERAL (
            SELECT x.* FROM {{schema}}.monitor_event x WHERE x.id = v.id AND NOT x.removed FOR NO KEY UPDATE) e
        LOOP
            IF p_labels IS NULL THEN
                v_room := greatest(0, coalesce((e.config->>'max_learned')::bigint, p_learn) -
                    (SELECT coalesce(sum(c.n), 0) FROM {{schema}}.monitor_count c WHERE c.event = e.id AND c.state <> 'alarm'));
            END IF;
            WITH added AS (
                INSERT INTO {{schema}}.monitor_source (event, name, number, known, base, declared, labels)
                SELECT e.id, x.name, e.numbered + row_number() OVER (), v_now, v_now, p_labels IS NOT NULL, coalesce(x.labels, '{}')::jsonb
                  FROM (SELECT DISTINCT ON (x.name) x.name, x.labels
                          FROM unnest(p_events, p_names, p_labels) WITH ORDINALITY x (event, name, labels, i)
                         WHERE x.event = e.name
                           AND NOT EXISTS (SELECT FROM {{schema}}.monitor_source s WHERE s.event = e.id AND s.name = x.name)
                         ORDER BY x.name, x.i DESC LIMIT v_room) x
                RETURNING monitor_source.id
            ), beaten AS (
                INSERT INTO {{schema}}.monitor_beat (id, width) SELECT a.id, {{rules}}.monitor_slot_width(e.every) FROM added a
            ), expected AS (
                INSERT INTO {{schema}}.monitor_due (id, due) SELECT a.id, v_now + CASE WHEN e.every > 0 THEN e.patience ELSE 0 END FROM added a
            )
            SELECT array_agg(a.id) INTO v_more FROM added a;
            IF v_more IS NOT NULL THEN
                UPDATE {{schema}}.monitor_event x SET numbered = x.numbered + cardinality(v_more) WHERE x.id = e.id;
                INSERT INTO {{schema}}.monitor_count (event, state, seen, n) VALUES (e.id, 'up', false, cardinality(v_more));
                v_made := v_made || v_more;
            END IF;
        END LOOP;
    END IF;
    RETURN QUERY SELECT x.i, s.id, e.sender_clock, e.every, s.id = ANY (v_made), s.id IS NULL AND NOT e.fixed
        FROM unnest(p_events, p_names) WITH ORDINALITY x (event, name, i)
        JOIN {{schema}}.monitor_event e ON e.name = x.event AND NOT e.removed
        LEFT JOIN {{schema}}.monitor_source s ON s.event = e.id AND s.name = x.name;
END $$;

-- Keeps a report of a source in place of the last one, and reports whether there is such a source.
CREATE FUNCTION {{rules}}.monitor_keep_report(p_event text, p_source text, p_kind text, p_code integer, p_run text, p_body bytea, p_lock_timeout_ms bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{rules}}.monitor_configure_statement(p_lock_timeout_ms);
    INSERT INTO {{schema}}.monitor_report (id, at, kind, code, run, body)
    SELECT s.id, {{schema}}.clock(), p_kind, p_code, p_run, p_body
      FROM {{schema}}.monitor_source s JOIN {{schema}}.monitor_event e ON e.id = s.event AND NOT e.removed WHERE e.name = p_event AND s.name = p_source
    ON CONFLICT (id) DO UPDATE SET at = excluded.at, kind = excluded.kind, code = excluded.code, run = excluded.run, body = excluded.body;
    RETURN FOUND;
END $$;

-- What people and programs do with the monitor, what is swept, and the views.

-- An event as package monitor reads it.
CREATE FUNCTION {{schema}}.monitor_expected(e {{schema}}.monitor_event) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT (e.config || jsonb_build_object('ID', e.id, 'Rev', e.rev, 'Removed', e.removed, 'paused', e.paused))::text
$$;

-- Makes sources known before their first beat, and gives them their labels; tells which are new.
CREATE FUNCTION {{schema}}.monitor_declare(p_floor bigint, p_events text[], p_names text[], p_labels text[], p_patience bigint)
RETURNS TABLE (i bigint, fresh boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_known record;
BEGIN
    SELECT array_agg(k.i ORDER BY k.i) AS i, array_agg(k.id ORDER BY k.i) AS id, array_agg(k.fresh ORDER BY k.i) AS fresh INTO v_known
      FROM {{schema}}.monitor_know(p_floor, p_events, p_names, p_labels, p_patience) k;
    UPDATE {{schema}}.monitor_source s SET declared = true, labels = x.labels
      FROM (SELECT k.id, p_labels[k.i]::jsonb AS labels FROM unnest(v_known.i, v_known.id, v_known.fresh) k (i, id, fresh) WHERE NOT k.fresh ORDER BY k.id) x
     WHERE s.id = x.id AND (NOT s.declared OR s.labels <> x.labels);
    RETURN QUERY SELECT k.i, k.fresh FROM unnest(v_known.i, v_known.fresh) k (i, fresh);
END $$;

-- Does the same for the places of which it then tells that they are new; nothing, if
-- the event "missing" is not there.
CREATE FUNCTION {{schema}}.monitor_declare_all(p_floor bigint, p_events text[], p_names text[], p_labels text[], p_patience bigint,
    OUT missing text, OUT fresh bigint[]) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{schema}}.monitor_settle(p_patience);
    PERFORM FROM {{schema}}.monitor_event e WHERE e.name = ANY (p_events) ORDER BY e.id FOR NO KEY UPDATE;
    SELECT d.event INTO missing FROM unnest(p_events) d (event)
     WHERE NOT EXISTS (SELECT FROM {{schema}}.monitor_event e WHERE e.name = d.event AND NOT e.removed) LIMIT 1;
    IF missing IS NULL THEN
        fresh := ARRAY(SELECT d.i FROM {{schema}}.monitor_declare(p_floor, p_events, p_names, p_labels, p_patience) d WHERE d.fresh);
    END IF;
END $$;

-- Puts a configuration into force; "missing" is an event for which sources are declared
-- and which there is none of: then nothing is done.
CREATE FUNCTION {{schema}}.monitor_configure(p_floor bigint, p_config text, p_keep boolean, p_origin text,
    p_events text[], p_names text[], p_labels text[], p_patience bigint,
    OUT missing text, OUT added text[], OUT changed text[], OUT removed text[], OUT declared bigint, OUT generation bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c record;
    v_names text[];
BEGIN
    PERFORM {{schema}}.monitor_settle(p_patience);
    SELECT * INTO c FROM {{schema}}.monitor_now(p_floor);
    PERFORM FROM {{schema}}.monitor_setting s FOR NO KEY UPDATE;
    PERFORM FROM {{schema}}.monitor_event e ORDER BY e.id FOR NO KEY UPDATE;
    v_names := ARRAY(SELECT x.name FROM jsonb_to_recordset(p_config::jsonb) x (name text));
    SELECT d.event INTO missing FROM unnest(p_events) d (event)
     WHERE d.event <> ALL (v_names) AND NOT EXISTS (SELECT FROM {{schema}}.monitor_event e WHERE e.name = d.event AND NOT e.removed) LIMIT 1;
    IF missing IS NOT NULL THEN
        RETURN;
    END IF;
    WITH x AS (
        SELECT o.id, o.removed AS was, o.config <> x.config AS differs, x.*,
               CASE WHEN o.removed OR x.paused <> coalesce((o.config->>'paused')::boolean, false) THEN x.paused ELSE o.paused END AS pause,
               o.removed OR o.schedule <> x.schedule OR x.patience < o.patience OR x.max_run > 0 AND (o.max_run = 0 OR x.max_run < o.max_run) AS shorter
          FROM jsonb_to_recordset(p_config::jsonb) x (name text, config jsonb, paused boolean, schedule text, max_run bigint, fixed boolean,
                   sender_clock boolean, every bigint, patience bigint, flaps integer, flap_window bigint)
          JOIN {{schema}}.monitor_event o ON o.name = x.name
    ), put AS (
        UPDATE {{schema}}.monitor_event e
           SET config = x.config, rev = e.rev + 1, removed = false, paused = x.pause, schedule = x.schedule, max_run = x.max_run, fixed = x.fixed,
               sender_clock = x.sender_clock, every = x.every, patience = x.patience, flaps = x.flaps, flap_window = x.flap_window,
               base = CASE WHEN x.shorter OR e.paused AND NOT x.pause THEN c.moment ELSE e.base END, respread = ''
          FROM x WHERE e.id = x.id AND (x.was OR x.differs)
        RETURNING e.name, x.was
    ), fresh AS (
        INSERT INTO {{schema}}.monitor_event (name, config, base, paused, schedule, max_run, fixed, sender_clock, every, patience, flaps, flap_window)
        SELECT x.name, x.config, c.moment, x.paused, x.schedule, x.max_run, x.fixed, x.sender_clock, x.every, x.patience, x.flaps, x.flap_window
          FROM jsonb_to_recordset(p_config::jsonb) x (name text, config jsonb, paused boolean, schedule text, max_run bigint, fixed boolean,
                   sender_clock boolean, every bigint, patience bigint, flaps integer, flap_window bigint)
         WHERE NOT EXISTS (SELECT FROM {{schema}}.monitor_event o WHERE o.name = x.name) ORDER BY x.name COLLATE "C"
        RETURNING name
    ), gone AS (
        UPDATE {{schema}}.monitor_event e SET removed = true, rev = e.rev + 1, respread = NULL
         WHERE NOT p_keep AND NOT e.removed AND e.name <> ALL (v_names)
        RETURNING e.name
    )
    SELECT ARRAY(SELECT n.name FROM (SELECT name FROM fresh UNION ALL SELECT name FROM put WHERE was) n ORDER BY n.name COLLATE "C"),
           ARRAY(SELECT name FROM put WHERE NOT was ORDER BY name COLLATE "C"), ARRAY(SELECT name FROM gone ORDER BY name COLLATE "C")
      INTO added, changed, removed;
    SELECT count(*) FILTER (WHERE d.fresh) INTO declared FROM {{schema}}.monitor_declare(p_floor, p_events, p_names, p_labels, p_patience) d;
    UPDATE {{schema}}.monitor_setting s
       SET configured = c.wall, origin = p_origin, error = '', generation = s.generation + (added || changed || removed <> '{}')::int
    RETURNING s.generation INTO generation;
END $$;

CREATE FUNCTION {{schema}}.monitor_changed() RETURNS void LANGUAGE sql VOLATILE AS $$
    UPDATE {{schema}}.monitor_setting s SET generation = s.generation + 1
$$;

-- Does what a person asked for: the answer is 'done', or what there is none of.
CREATE FUNCTION {{schema}}.monitor_act(p_floor bigint, p_verb text, p_event text, p_source text, p_alarm text, p_for bigint,
    p_who text, p_note text, p_patience bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    c record;
    e {{schema}}.monitor_event;
    v_subject text := p_source;
BEGIN
    PERFORM {{schema}}.monitor_settle(p_patience);
    SELECT * INTO c FROM {{schema}}.monitor_now(p_floor);
    CASE
    WHEN p_verb = 'acknowledge' THEN
        UPDATE {{schema}}.monitor_alarm a SET acknowledged = p_who WHERE a.id = p_alarm;
        v_subject := p_alarm;
        IF NOT FOUND THEN RETURN 'alarm'; END IF;
    WHEN p_verb = 'drop-sink' THEN
        PERFORM {{schema}}.monitor_changed();
        DELETE FROM {{schema}}.monitor_sink k WHERE k.name = p_source;
        IF NOT FOUND THEN RETURN 'sink'; END IF;
    WHEN p_verb = 'drop-path' THEN
        DELETE FROM {{schema}}.monitor_path p WHERE p.name = p_source;
        IF NOT FOUND THEN RETURN 'path'; END IF;
    ELSE
        IF p_source = '' THEN
            PERFORM FROM {{schema}}.monitor_setting s FOR NO KEY UPDATE;
        END IF;
        SELECT x.* INTO e FROM {{schema}}.monitor_event x WHERE x.name = p_event AND NOT x.removed FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            RETURN 'event';
        ELSIF p_source <> '' THEN
            IF NOT {{schema}}.monitor_act_on(c.moment, e.id, p_source, p_verb, p_for, p_note) THEN RETURN 'source'; END IF;
            v_subject := p_event || '/' || p_source;
        ELSE
            v_subject := p_event;
            IF e.paused <> (p_verb = 'pause') THEN
                UPDATE {{schema}}.monitor_event x
                   SET paused = p_verb = 'pause', base = CASE WHEN p_verb = 'pause' THEN x.base ELSE c.moment END, rev = x.rev + 1, respread = ''
                 WHERE x.id = e.id;
                PERFORM {{schema}}.monitor_changed();
            END IF;
        END IF;
    END CASE;
    PERFORM {{schema}}.monitor_record(c.wall, ARRAY[v_subject],
        ARRAY[p_verb || ' by ' || p_who || CASE WHEN p_note <> '' THEN ': ' || p_note ELSE '' END], ARRAY[0::bigint]);
    RETURN 'done';
END $$;

-- Pauses, resumes or retires one source, and tells whether there is one.
CREATE FUNCTION {{schema}}.monitor_act_on(t bigint, p_event bigint, p_name text, p_verb text, p_for bigint, p_note text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    s {{schema}}.monitor_source;
    v_seen boolean;
    v_state text;
    v_until bigint := CASE WHEN p_verb = 'pause' AND p_for > 0 THEN t + p_for ELSE 0 END;
BEGIN
    SELECT b.at <> 0 INTO v_seen FROM {{schema}}.monitor_beat b
     WHERE b.id = (SELECT x.id FROM {{schema}}.monitor_source x WHERE x.event = p_event AND x.name = p_name) FOR NO KEY UPDATE;
    SELECT x.* INTO s FROM {{schema}}.monitor_source x WHERE x.event = p_event AND x.name = p_name FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_verb = 'resume' AND s.state <> 'paused' OR p_verb <> 'resume' AND s.state = 'retired' THEN
        UPDATE {{schema}}.monitor_source x SET note = p_note WHERE x.id = s.id;
        RETURN true;
    END IF;
    v_state := CASE p_verb WHEN 'pause' THEN 'paused' WHEN 'retire' THEN s.state ELSE CASE WHEN s.alarm <> '' THEN 'down' ELSE 'up' END END;
    UPDATE {{schema}}.monitor_source x
       SET rev = x.rev + 1, note = p_note, state = v_state, asked = x.asked OR p_verb = 'retire',
           until = CASE WHEN p_verb = 'retire' THEN x.until ELSE v_until END, base = CASE WHEN p_verb = 'resume' THEN t ELSE x.base END
     WHERE x.id = s.id;
    UPDATE {{schema}}.monitor_due d
       SET due = CASE WHEN p_verb <> 'pause' THEN t WHEN v_until > 0 THEN v_until ELSE 9223372036854775807 END WHERE d.id = s.id;
    IF v_state <> s.state THEN
        INSERT INTO {{schema}}.monitor_count (event, state, seen, n) VALUES (s.event, s.state, v_seen, -1), (s.event, v_state, v_seen, 1);
    END IF;
    RETURN true;
END $$;

-- Makes an instance known whose session lives, and its sinks with their queues. False: it does not live.
CREATE FUNCTION {{schema}}.monitor_enlist(p_session text, p_instance text, p_name text, p_address text, p_process integer, p_host text, p_service text,
    p_active boolean, p_partitions integer, p_sinks text[], p_patience bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
BEGIN
    PERFORM {{schema}}.monitor_settle(p_patience);
    t := {{schema}}.clock();
    IF NOT {{schema}}.lives(p_session, t) THEN
        RETURN false;
    END IF;
    IF EXISTS (SELECT FROM unnest(p_sinks) x (name) LEFT JOIN {{schema}}.monitor_sink k ON k.name = x.name WHERE k.name IS NULL) THEN
        PERFORM FROM {{schema}}.monitor_setting s FOR NO KEY UPDATE;
        INSERT INTO {{schema}}.queue (name, made) SELECT DISTINCT 'alarms.' || x.name, t FROM unnest(p_sinks) x (name) ORDER BY 1 ON CONFLICT DO NOTHING;
        INSERT INTO {{schema}}.monitor_sink (name, made) SELECT DISTINCT x.name, t FROM unnest(p_sinks) x (name) ORDER BY 1 ON CONFLICT DO NOTHING;
        IF FOUND THEN
            PERFORM {{schema}}.monitor_changed();
        END IF;
    END IF;
    INSERT INTO {{schema}}.monitor_member AS m VALUES (p_session, p_instance, p_name, p_address, p_process, p_host, p_service, p_active, p_partitions, p_sinks, t)
    ON CONFLICT (session) DO UPDATE
       SET process = p_process, host = p_host, service = p_service, active = p_active, partitions = p_partitions, sinks = p_sinks, seen = t;
    -- Of those that are over, the last one that was active is still shown by hb_common.
    DELETE FROM {{schema}}.monitor_member m USING (
        SELECT o.session FROM {{schema}}.monitor_member o
         WHERE o.seen < t - interval '1 hour' AND NOT {{schema}}.lives(o.session, t)
           AND (NOT o.active OR EXISTS (SELECT FROM {{schema}}.monitor_member n WHERE n.active AND n.seen > o.seen)) FOR UPDATE SKIP LOCKED) gone
     WHERE m.session = gone.session;
    RETURN true;
END $$;

-- Does a part of what is left to do, and finds sources of removed events.
CREATE FUNCTION {{schema}}.monitor_sweep(p_floor bigint, p_keep bigint, p_limit integer, p_patience bigint,
    OUT moment bigint, OUT wall timestamptz, OUT generation bigint, OUT next bigint, OUT ids bigint[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_more boolean := false;
    v_n bigint;
BEGIN
    PERFORM {{schema}}.monitor_settle(p_patience);
    SELECT n.moment, n.wall INTO moment, wall FROM {{schema}}.monitor_now(p_floor) n;
    PERFORM {{schema}}.monitor_drop_events();
    v_more := {{schema}}.monitor_respread(moment, p_limit);
    -- An array: what is joined may be looked for once per row, past those that it has just deleted.
    DELETE FROM {{schema}}.monitor_alarm a WHERE a.id = ANY (ARRAY(
        SELECT x.id FROM {{schema}}.monitor_alarm x WHERE x.ended IS NOT NULL AND x.ended < wall - {{schema}}.us(p_keep)
         ORDER BY x.ended LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_n = ROW_COUNT;
    v_more := v_more OR v_n >= p_limit;
    PERFORM {{schema}}.monitor_fold();
    ids := ARRAY(SELECT s.id FROM {{schema}}.monitor_event e, LATERAL (
        SELECT x.id FROM {{schema}}.monitor_source x WHERE x.event = e.id ORDER BY x.name LIMIT p_limit + 1) s WHERE e.removed LIMIT p_limit + 1);
    ids := ids || ARRAY(SELECT s.id FROM {{schema}}.monitor_source s JOIN {{schema}}.monitor_event e ON e.id = s.event AND NOT e.removed
        WHERE s.state = 'retired' AND NOT s.declared AND s.ended < moment - p_keep ORDER BY s.ended LIMIT p_limit + 1 - cardinality(ids));
    v_more := v_more OR cardinality(ids) > p_limit;
    ids := ids[1:p_limit];
    next := CASE WHEN v_more THEN moment - 1 ELSE 9223372036854775807 END;
    SELECT s.generation INTO generation FROM {{schema}}.monitor_setting s;
END $$;

-- Makes sources due whose event was changed, and tells whether there are more.
CREATE FUNCTION {{schema}}.monitor_respread(t bigint, p_limit integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    e {{schema}}.monitor_event;
    v_ids bigint[];
    v_all bigint[] := '{}';
    v_widths bigint[] := '{}';
    v_left integer := p_limit;
BEGIN
    FOR e IN SELECT x.* FROM {{schema}}.monitor_event x WHERE x.respread IS NOT NULL AND NOT x.removed ORDER BY x.id LOOP
        EXIT WHEN v_left <= 0;
        SELECT x.* INTO e FROM {{schema}}.monitor_event x WHERE x.id = e.id AND x.respread IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        v_ids := ARRAY(SELECT s.id FROM {{schema}}.monitor_source s WHERE s.event = e.id AND s.name > e.respread ORDER BY s.name LIMIT v_left);
        UPDATE {{schema}}.monitor_event x
           SET respread = CASE WHEN cardinality(v_ids) = v_left THEN (SELECT s.name FROM {{schema}}.monitor_source s WHERE s.id = v_ids[v_left]) END
         WHERE x.id = e.id;
        v_left := v_left - cardinality(v_ids);
        v_all := v_all || v_ids;
        v_widths := v_widths || array_fill({{schema}}.monitor_width(e.every), ARRAY[cardinality(v_ids)]);
    END LOOP;
    -- All beats before all dues, each in the order of their ids.
    SELECT array_agg(x.id ORDER BY x.id), array_agg(x.width ORDER BY x.id) INTO v_all, v_widths FROM unnest(v_all, v_widths) x (id, width);
    IF v_all IS NOT NULL THEN
        -- What was noted of slots of another width means nothing any more.
        UPDATE {{schema}}.monitor_beat b SET width = x.width, recent = 0
          FROM unnest(v_all, v_widths) x (id, width) WHERE b.id = x.id AND b.width <> x.width;
        PERFORM {{schema}}.monitor_touch(v_all, t);
    END IF;
    RETURN v_left <= 0;
END $$;

-- Makes one row of many that count the same.
CREATE FUNCTION {{schema}}.monitor_fold() RETURNS void LANGUAGE sql VOLATILE AS $$
    WITH many AS (
        SELECT c.event, c.state, c.seen FROM {{schema}}.monitor_count c GROUP BY c.event, c.state, c.seen HAVING count(*) > 1 LIMIT 1000
    ), gone AS (
        DELETE FROM {{schema}}.monitor_count c USING many m WHERE c.event = m.event AND c.state = m.state AND c.seen = m.seen
        RETURNING c.event, c.state, c.seen, c.n
    )
    INSERT INTO {{schema}}.monitor_count (event, state, seen, n)
    SELECT event, state, seen, sum(n) FROM gone GROUP BY event, state, seen HAVING sum(n) <> 0
$$;

-- Forgets removed events that have no source any more.
CREATE FUNCTION {{schema}}.monitor_drop_events() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_id bigint;
BEGIN
    FOR v_id IN SELECT e.id FROM {{schema}}.monitor_event e
        WHERE e.removed AND NOT EXISTS (SELECT FROM {{schema}}.monitor_source s WHERE s.event = e.id) LIMIT 1000
    LOOP
        PERFORM FROM {{schema}}.monitor_setting s FOR NO KEY UPDATE;
        PERFORM FROM {{schema}}.monitor_event e WHERE e.id = v_id AND e.removed FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        DELETE FROM {{schema}}.monitor_event e WHERE e.id = v_id AND NOT EXISTS (SELECT FROM {{schema}}.monitor_source s WHERE s.event = e.id);
        IF FOUND THEN
            DELETE FROM {{schema}}.monitor_count c WHERE c.event = v_id;
            PERFORM {{schema}}.monitor_changed();
        END IF;
    END LOOP;
END $$;

-- Groups that have members to report, or none left; a row for each member, the oldest first.
CREATE FUNCTION {{schema}}.monitor_held(p_most integer, p_patience bigint)
RETURNS TABLE (grp text, event text, alarm text, since timestamptz, standing bigint, n bigint, age bigint, member {{schema}}.monitor_alarm) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
BEGIN
    PERFORM {{schema}}.monitor_settle(p_patience);
    t := {{schema}}.clock();
    RETURN QUERY SELECT g.grp, coalesce(a.event, (m.alarm).event), coalesce(a.id, ''), a.started, coalesce(n.standing, 0), coalesce(g.n, 0), {{schema}}.ns(greatest(t - m.raised, '0')) / 1000, m.alarm
       FROM (SELECT h.grp, sum(h.n)::bigint AS n FROM (
                SELECT h.grp, count(*) AS n FROM {{schema}}.monitor_alarm h WHERE h.held GROUP BY h.grp
                UNION ALL SELECT h.grp, 0 FROM {{schema}}.monitor_alarm h WHERE h.source = '' AND h.ended IS NULL) h GROUP BY h.grp) g
       LEFT JOIN {{schema}}.monitor_alarm a ON a.grp = g.grp AND a.source = '' AND a.ended IS NULL
       LEFT JOIN LATERAL (SELECT count(*) AS standing FROM {{schema}}.monitor_alarm x WHERE x.group_alarm = a.id AND x.group_alarm <> '' AND x.ended IS NULL) n ON true
       LEFT JOIN LATERAL (SELECT x AS alarm, x.raised, x.id FROM {{schema}}.monitor_alarm x WHERE x.grp = g.grp AND x.held ORDER BY x.raised, x.id LIMIT p_most) m ON true
      WHERE m.id IS NOT NULL OR a.id IS NOT NULL AND n.standing = 0
      ORDER BY g.grp COLLATE "C", m.raised, m.id;
END $$;

-- Reports held alarms, with one of their group or each by itself, or ends that of the group.
CREATE FUNCTION {{schema}}.monitor_report(p_floor bigint, p_group text, p_alarm text, p_members text[], p_end boolean, p_at bigint,
    p_sinks text[], p_keys text[], p_nids text[], p_payloads bytea[], p_patience bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c record;
    f {{schema}}.monitor_alarm;
    v_at timestamptz;
    v_reason text := 'ABATED';
    v_n bigint;
BEGIN
    PERFORM {{schema}}.monitor_settle(p_patience);
    SELECT * INTO c FROM {{schema}}.monitor_now(p_floor);
    v_at := coalesce({{schema}}.monitor_wall(nullif(p_at, 0)), c.wall);
    PERFORM FROM (SELECT x.id FROM unnest(p_members || p_alarm) x (id) ORDER BY x.id COLLATE "C") x,
        LATERAL (SELECT FROM {{schema}}.monitor_alarm a WHERE a.id = x.id FOR NO KEY UPDATE) l;
    IF p_end THEN
        UPDATE {{schema}}.monitor_alarm a SET ended = v_at, finish = 'ABATED'
         WHERE a.id = p_alarm AND a.source = '' AND a.ended IS NULL
           AND NOT EXISTS (SELECT FROM {{schema}}.monitor_alarm x WHERE x.group_alarm = p_alarm AND x.group_alarm <> '' AND x.ended IS NULL);
        IF NOT FOUND THEN
            RETURN false;
        END IF;
    ELSE
        SELECT count(DISTINCT a.id) INTO v_n FROM unnest(p_members) x (id) JOIN {{schema}}.monitor_alarm a ON a.id = x.id AND a.held AND a.grp = p_group;
        IF v_n = 0 OR v_n <> cardinality(p_members) THEN
            RETURN false;
        END IF;
        IF p_alarm <> '' THEN
            SELECT a.* INTO f FROM {{schema}}.monitor_alarm a WHERE a.id = p_members[1];
            UPDATE {{schema}}.monitor_alarm a SET members = a.members + v_n WHERE a.id = p_alarm AND a.source = '' AND a.grp = p_group AND a.ended IS NULL;
            IF NOT FOUND THEN
                INSERT INTO {{schema}}.monitor_alarm (id, event, source, grp, members, reason, started, raised)
                VALUES (p_alarm, f.event, '', p_group, v_n, f.reason, v_at, c.wall) ON CONFLICT DO NOTHING;
                IF NOT FOUND THEN
                    RETURN false;
                END IF;
                v_reason := f.reason;
            ELSE
                v_reason := NULL;
            END IF;
        ELSE
            v_reason := NULL;
        END IF;
        UPDATE {{schema}}.monitor_alarm a SET held = false, group_alarm = p_alarm, grp = CASE WHEN p_alarm = '' THEN '' ELSE a.grp END
          FROM unnest(p_members) x (id) WHERE a.id = x.id;
    END IF;
    IF v_reason IS NOT NULL THEN
        PERFORM {{schema}}.monitor_record(c.wall, ARRAY[p_group], ARRAY[v_reason], ARRAY[0::bigint]);
    END IF;
    PERFORM {{schema}}.monitor_notify(p_sinks, p_keys, p_nids, p_payloads);
    RETURN true;
END $$;

-- Finds a page of sources, in the order of event and name.
CREATE FUNCTION {{schema}}.monitor_page(p_floor bigint, p_event text, p_source text, p_state text, p_labels text, p_after_event text, p_after text,
    p_limit integer, p_patience bigint, OUT moment bigint, OUT wall timestamptz, OUT ids bigint[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    e record;
BEGIN
    PERFORM {{schema}}.monitor_settle(p_patience);
    SELECT n.moment, n.wall INTO moment, wall FROM {{schema}}.monitor_now(p_floor) n;
    ids := '{}';
    IF p_labels <> '' THEN
        -- Those that have a label are found by an index, and sorted.
        PERFORM set_config('enable_bitmapscan', 'on', true);
        ids := ARRAY(SELECT s.id FROM {{schema}}.monitor_source s JOIN {{schema}}.monitor_event e ON e.id = s.event
             WHERE s.labels @> p_labels::jsonb AND (p_event = '' OR e.name = p_event) AND (p_source = '' OR s.name = p_source)
               AND (p_state = '' OR s.state = p_state) AND (e.name, s.name) > (p_after_event, p_after)
             ORDER BY e.name, s.name LIMIT p_limit);
        RETURN;
    END IF;
    FOR e IN SELECT x.id, CASE WHEN x.name = p_after_event THEN p_after ELSE '' END AS after FROM {{schema}}.monitor_event x
              WHERE x.name >= p_after_event AND (p_event = '' OR x.name = p_event) ORDER BY x.name
    LOOP
        EXIT WHEN cardinality(ids) >= p_limit;
        IF p_source <> '' THEN
            ids := ids || ARRAY(SELECT s.id FROM {{schema}}.monitor_source s
                WHERE s.event = e.id AND s.name = p_source AND s.name > e.after AND (p_state = '' OR s.state = p_state));
        ELSIF p_state <> '' THEN
            ids := ids || ARRAY(SELECT s.id FROM {{schema}}.monitor_source s
                WHERE s.event = e.id AND s.state = p_state AND s.name > e.after ORDER BY s.name LIMIT p_limit - cardinality(ids));
        ELSE
            ids := ids || ARRAY(SELECT s.id FROM {{schema}}.monitor_source s
                WHERE s.event = e.id AND s.name > e.after ORDER BY s.name LIMIT p_limit - cardinality(ids));
        END IF;
    END LOOP;
END $$;

-- The tables of the ONAP heartbeat service.
CREATE VIEW {{schema}}.vnf_table_1 AS
SELECT e.name::varchar AS event_name, (e.config->>'missed')::integer AS heartbeat_missed_count,
       ceil(e.every / 1000000.0)::integer AS heartbeat_interval,
       coalesce(e.config->'control_loop'->>'name', '')::varchar AS closed_control_loop_name,
       coalesce(e.config->'control_loop'->>'policy_version', '')::varchar AS policy_version,
       coalesce(e.config->'control_loop'->>'policy_name', '')::varchar AS policy_name,
       coalesce(e.config->'control_loop'->>'policy_scope', '')::varchar AS policy_scope,
       coalesce(e.config->'control_loop'->>'target_type', '')::varchar AS target_type,
       coalesce(e.config->'control_loop'->>'target', '')::varchar AS target,
       coalesce(e.config->'control_loop'->>'version', '')::varchar AS version,
       (SELECT coalesce(sum(c.n), 0) FROM {{schema}}.monitor_count c WHERE c.event = e.id AND c.state <> 'alarm')::integer AS source_name_count,
       CASE WHEN e.removed THEN 0 ELSE 1 END AS validity_flag
  FROM {{schema}}.monitor_event e;

CREATE VIEW {{schema}}.vnf_table_2 AS
SELECT e.name::varchar AS event_name, s.number AS source_name_key,
       (CASE WHEN b.sent <> 0 THEN b.sent ELSE b.at END / 1000)::bigint AS last_epo_time,
       s.name::varchar AS source_name, CASE WHEN s.alarm <> '' THEN 1 ELSE 0 END AS cl_flag
  FROM {{schema}}.monitor_source s
  JOIN {{schema}}.monitor_event e ON e.id = s.event
  JOIN {{schema}}.monitor_beat b ON b.id = s.id;

CREATE VIEW {{schema}}.hb_common AS
SELECT m.process AS process_id, (m.host || '-' || m.service)::varchar AS source_name,
       least(floor(extract(epoch FROM m.seen)), 2147483647)::integer AS last_accessed_time,
       (SELECT CASE WHEN s.configured IS NULL THEN 'RECONFIGURATION' ELSE 'RUNNING' END FROM {{schema}}.monitor_setting s)::varchar AS current_state
  FROM {{schema}}.monitor_member m WHERE m.active ORDER BY m.seen DESC LIMIT 1;

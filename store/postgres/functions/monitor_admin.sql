-- Operators' actions, and the instances that take part.

-- Applies an operator's action: the answer is 'done', or names what does not exist.
CREATE FUNCTION {{rules}}.monitor_apply_action(p_latest bigint, p_verb text, p_event text, p_source text, p_alarm text, p_for bigint,
    p_who text, p_note text, p_reason text, p_lock_timeout_ms bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    c record;
    e {{schema}}.monitor_event;
    v_subject text := p_source;
BEGIN
    PERFORM {{rules}}.monitor_configure_statement(p_lock_timeout_ms);
    SELECT * INTO c FROM {{rules}}.monitor_now(p_latest);
    CASE
    WHEN p_verb = 'acknowledge' THEN
        UPDATE {{schema}}.monitor_alarm a SET acknowledged = p_who WHERE a.id = p_alarm;
        v_subject := p_alarm;
        IF NOT FOUND THEN RETURN 'alarm'; END IF;
    WHEN p_verb = 'drop-sink' THEN
        PERFORM FROM {{schema}}.monitor_setting s FOR NO KEY UPDATE; -- before the sink, as where one is registered
        DELETE FROM {{schema}}.monitor_sink k WHERE k.name = p_source;
        IF NOT FOUND THEN RETURN 'sink'; END IF;
        PERFORM {{rules}}.monitor_bump_generation();
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
        ELSIF p_source <> '' AND p_verb = 'remove' THEN
            v_subject := {{rules}}.monitor_remove_source(e.id, p_source);
            IF v_subject IS NOT NULL THEN RETURN v_subject; END IF;
            v_subject := p_event || '/' || p_source;
        ELSIF p_source <> '' THEN
            IF NOT {{rules}}.monitor_apply_to_source(c.moment, e.id, p_source, p_verb, p_for, p_note) THEN RETURN 'source'; END IF;
            v_subject := p_event || '/' || p_source;
        ELSE
            v_subject := p_event;
            IF p_verb = 'remove' THEN
                UPDATE {{schema}}.monitor_event x SET removed = true, rev = x.rev + 1, respread = NULL WHERE x.id = e.id;
                PERFORM {{rules}}.monitor_bump_generation();
            ELSIF e.paused <> (p_verb = 'pause') THEN
                UPDATE {{schema}}.monitor_event x
                   SET paused = p_verb = 'pause', base = CASE WHEN p_verb = 'pause' THEN x.base ELSE c.moment END, rev = x.rev + 1, respread = ''
                 WHERE x.id = e.id;
                PERFORM {{rules}}.monitor_bump_generation();
            END IF;
        END IF;
    END CASE;
    PERFORM {{rules}}.monitor_record_history(c.wall, ARRAY[v_subject], ARRAY[p_reason], ARRAY[0::bigint]);
    RETURN 'done';
END $$;

-- Pauses, resumes or retires one source, and reports whether there is one.
CREATE FUNCTION {{rules}}.monitor_apply_to_source(t bigint, p_event bigint, p_name text, p_verb text, p_for bigint, p_note text) RETURNS boolean LANGUAGE plpgsql AS $$
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
        RETURN true;
    END IF;
    v_state := CASE p_verb WHEN 'pause' THEN 'paused' WHEN 'retire' THEN s.state ELSE CASE WHEN s.alarm <> '' THEN 'down' ELSE 'up' END END;
    UPDATE {{schema}}.monitor_source x
       SET rev = x.rev + 1, note = CASE WHEN p_verb = 'resume' THEN '' ELSE p_note END, state = v_state, asked = x.asked OR p_verb = 'retire',
           until = CASE WHEN p_verb = 'retire' THEN x.until ELSE v_until END, base = CASE WHEN p_verb = 'resume' THEN t ELSE x.base END
     WHERE x.id = s.id;
    -- What is to be retired stays due, or nobody would.
    UPDATE {{schema}}.monitor_due d
       SET due = CASE WHEN p_verb <> 'pause' OR s.asked THEN t WHEN v_until > 0 THEN v_until ELSE 9223372036854775807 END WHERE d.id = s.id;
    IF v_state <> s.state THEN
        INSERT INTO {{schema}}.monitor_count (event, state, seen, n) VALUES (s.event, s.state, v_seen, -1), (s.event, v_state, v_seen, 1);
    END IF;
    RETURN true;
END $$;

-- Deletes one source; null, or why not: 'source' when there is none, 'open' when an alarm of it stands.
CREATE FUNCTION {{rules}}.monitor_remove_source(p_event bigint, p_name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    s {{schema}}.monitor_source;
    v_seen boolean;
BEGIN
    SELECT b.at <> 0 INTO v_seen FROM {{schema}}.monitor_beat b
     WHERE b.id = (SELECT x.id FROM {{schema}}.monitor_source x WHERE x.event = p_event AND x.name = p_name) FOR NO KEY UPDATE;
    SELECT x.* INTO s FROM {{schema}}.monitor_source x WHERE x.event = p_event AND x.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'source';
    ELSIF s.alarm <> '' THEN
        RETURN 'open';
    END IF;
    DELETE FROM {{schema}}.monitor_beat b WHERE b.id = s.id;
    DELETE FROM {{schema}}.monitor_source x WHERE x.id = s.id;
    DELETE FROM {{schema}}.monitor_due d WHERE d.id = s.id;
    INSERT INTO {{schema}}.monitor_count (event, state, seen, n) VALUES (s.event, s.state, v_seen, -1);
    RETURN NULL;
END $$;

-- Makes an instance known whose session lives, and its sinks with their queues. False: it does not live. Null: some of what an
-- interrupted removal left of such a queue was deleted, and nothing else is done yet.
CREATE FUNCTION {{rules}}.monitor_register_member(p_session text, p_instance text, p_name text, p_address text, p_process integer, p_host text, p_service text,
    p_active boolean, p_partitions integer, p_sinks text[], p_purged bigint, p_lock_timeout_ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    v_queue text;
BEGIN
    PERFORM {{rules}}.monitor_configure_statement(p_lock_timeout_ms);
    t := {{schema}}.clock();
    IF NOT {{rules}}.is_alive(p_session, t) THEN
        RETURN false;
    END IF;
    -- Before monitor_setting is locked: a purge waits for whoever enqueues there.
    FOR v_queue IN SELECT DISTINCT 'alarms.' || x.name FROM unnest(p_sinks) x (name)
        WHERE NOT EXISTS (SELECT FROM {{schema}}.queue q WHERE q.name = 'alarms.' || x.name) ORDER BY 1
    LOOP
        IF NOT {{rules}}.purge_queue(v_queue, p_purged, p_lock_timeout_ms) THEN
            RETURN NULL;
        END IF;
    END LOOP;
    IF EXISTS (SELECT FROM unnest(p_sinks) x (name) LEFT JOIN {{schema}}.monitor_sink k ON k.name = x.name WHERE k.name IS NULL) THEN
        PERFORM FROM {{schema}}.monitor_setting s FOR NO KEY UPDATE;
        INSERT INTO {{schema}}.queue (name, made) SELECT DISTINCT 'alarms.' || x.name, t FROM unnest(p_sinks) x (name) ORDER BY 1 ON CONFLICT DO NOTHING;
        INSERT INTO {{schema}}.monitor_sink (name, made) SELECT DISTINCT x.name, t FROM unnest(p_sinks) x (name) ORDER BY 1 ON CONFLICT DO NOTHING;
        IF FOUND THEN
            PERFORM {{rules}}.monitor_bump_generation();
        END IF;
    END IF;
    INSERT INTO {{schema}}.monitor_member AS m VALUES (p_session, p_instance, p_name, p_address, p_process, p_host, p_service, p_active, p_partitions, p_sinks, t)
    ON CONFLICT (session) DO UPDATE
       SET process = p_process, host = p_host, service = p_service, active = p_active, partitions = p_partitions, sinks = p_sinks, seen = t;
    -- Of those that are over, the last one that was active is still shown by hb_common.
    DELETE FROM {{schema}}.monitor_member m USING (
        SELECT o.session FROM {{schema}}.monitor_member o
         WHERE o.seen < t - interval '1 hour' AND NOT {{rules}}.is_alive(o.session, t)
           AND (NOT o.active OR EXISTS (SELECT FROM {{schema}}.monitor_member n WHERE n.active AND n.seen > o.seen)) FOR UPDATE SKIP LOCKED) gone
     WHERE m.session = gone.session;
    RETURN true;
END $$;

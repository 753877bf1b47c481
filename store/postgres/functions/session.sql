-- Sessions: their start and end.

-- Starts a session, and returns whether it could: its id was not used before.
CREATE FUNCTION {{rules}}.start_session(p_id text, p_instance text, p_name text, p_address text,
    p_interval_ns bigint, p_timeout_ns bigint, p_lock_timeout_ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    v_old text[];
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    t := {{schema}}.clock();
    INSERT INTO {{schema}}.session (id, instance_id, name, address, interval_ns, timeout_ns, started, deadline, rules)
    VALUES (p_id, p_instance, p_name, p_address, p_interval_ns, p_timeout_ns, t, t + p_timeout_ns / 1000 * interval '1 microsecond', {{hash}})
    ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    -- Delete sessions that ended a day ago and hold nothing. Ids are random: each start adds one row
    -- and looks at a hundred, 50 neighbours on each side, so that no index is needed on a column that renewals change.
    SELECT array_agg(id) INTO v_old FROM (
        SELECT s.id, s.deadline FROM (
            (SELECT id FROM {{schema}}.session WHERE id > p_id ORDER BY id LIMIT 50)
            UNION ALL
            (SELECT id FROM {{schema}}.session WHERE id < p_id ORDER BY id DESC LIMIT 50)
        ) near JOIN {{schema}}.session s USING (id)
        WHERE s.deadline < t - interval '24 hours'
          AND NOT EXISTS (SELECT FROM {{schema}}.lease l WHERE l.session = s.id AND l.session <> '')
        FOR UPDATE OF s SKIP LOCKED
    ) gone;
    IF v_old IS NOT NULL THEN
        DELETE FROM {{schema}}.waiter WHERE session = ANY (v_old);
        DELETE FROM {{schema}}.session WHERE id = ANY (v_old);
    END IF;
    RETURN true;
END $$;

-- Ends a session, which frees all that it holds, and releases at most p_most of
-- its leases; returns how many. It is called until it returns less: each call is
-- short, and none of the leases is anybody's meanwhile.
CREATE FUNCTION {{rules}}.end_session(p_id text, p_reason text, p_most bigint, p_lock_timeout_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    v_freed bigint;
    v_spaces text[];
    v_keys text[];
    v_terms bigint[];
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    PERFORM FROM {{schema}}.session WHERE id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    t := {{schema}}.clock();
    UPDATE {{schema}}.session SET ended = true, deadline = least(t, deadline) WHERE id = p_id AND NOT ended;
    DELETE FROM {{schema}}.waiter WHERE session = p_id;
    WITH held AS (
        SELECT space, key, since FROM {{schema}}.lease WHERE session = p_id AND session <> ''
         ORDER BY space, key LIMIT p_most FOR NO KEY UPDATE
    ), freed AS (
        UPDATE {{schema}}.lease l
           SET session = '', since = t, successor = '', reserved = NULL, asked = false, asked_for = ''
          FROM held WHERE l.space = held.space AND l.key = held.key
        RETURNING l.space, l.key, {{rules}}.label(holder_name, holder_id) AS holder, l.term, {{rules}}.nanoseconds(t - held.since) AS held_ns
    ), recorded AS (
        INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
        SELECT t, space, key, holder, '', term, p_reason, held_ns FROM freed ORDER BY space, key
        RETURNING part, subject, term
    )
    SELECT count(*), array_agg(part), array_agg(subject), array_agg(term) INTO v_freed, v_spaces, v_keys, v_terms FROM recorded;
    IF v_freed > 100 THEN -- one notification that says "anything may have changed"
        PERFORM pg_notify({{channel}}, '');
    ELSE
        PERFORM {{rules}}.notify_change(x.space, x.key, x.term, true, '') FROM unnest(v_spaces, v_keys, v_terms) x (space, key, term);
    END IF;
    RETURN v_freed;
END $$;

CREATE FUNCTION {{rules}}.is_alive(p_session text, t timestamptz) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM {{schema}}.session s WHERE s.id = p_session AND NOT s.ended AND s.deadline > t);
END $$;

-- The waiting lists of leases, and what operators ask of a lease.

-- Puts a session on a lease's waiting list, if it lives, and shows it the lease.
CREATE FUNCTION {{rules}}.join_waiting_list(p_space text, p_key text, p_session text, p_lock_timeout_ms bigint,
    OUT lives boolean, OUT lease {{rules}}.shown_lease) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    lives := EXISTS (SELECT FROM {{schema}}.session WHERE id = p_session AND NOT ended AND deadline > {{schema}}.clock());
    -- Who waits already only reads: it does so often.
    IF lives AND NOT EXISTS (SELECT FROM {{schema}}.waiter w WHERE w.space = p_space AND w.key = p_key AND w.session = p_session) THEN
        INSERT INTO {{schema}}.waiter (space, key, session) VALUES (p_space, p_key, p_session) ON CONFLICT DO NOTHING;
    END IF;
    SELECT x.* INTO lease FROM {{rules}}.show_lease(p_space, p_key, p_session) x;
END $$;

CREATE FUNCTION {{rules}}.request_release(p_space text, p_key text, p_successor text, p_reason text, p_lock_timeout_ms bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    l {{schema}}.lease;
    t timestamptz;
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    SELECT * INTO l FROM {{schema}}.lease WHERE space = p_space AND key = p_key AND session <> '' FOR NO KEY UPDATE;
    t := {{schema}}.clock();
    PERFORM FROM {{schema}}.session WHERE id = l.session AND NOT ended AND deadline > t;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE {{schema}}.lease SET asked = true, asked_for = p_successor WHERE space = p_space AND key = p_key;
    INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
    VALUES (t, p_space, p_key, {{rules}}.label(l.holder_name, l.holder_id), {{rules}}.label(l.holder_name, l.holder_id),
            l.term, p_reason, {{rules}}.nanoseconds(t - l.since));
    PERFORM {{rules}}.notify_change(p_space, p_key, l.term, false, '');
    RETURN true;
END $$;

-- Deletes a lease. The verdict is 'forgotten', 'held' or 'never'.
CREATE FUNCTION {{rules}}.forget_lease(p_space text, p_key text, p_seen_term bigint, p_seen_session text, p_seen_seq bigint,
    p_reason text, p_lock_timeout_ms bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    l {{schema}}.lease;
    old {{schema}}.session;
    t timestamptz;
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    SELECT s.* INTO old FROM {{schema}}.session s WHERE s.id = p_seen_session AND p_seen_session <> '' FOR UPDATE;
    SELECT x.* INTO l FROM {{schema}}.lease x WHERE x.space = p_space AND x.key = p_key FOR UPDATE;
    t := {{schema}}.clock();
    IF l.term IS NULL THEN
        RETURN 'never';
    END IF;
    IF l.term <> p_seen_term OR l.session <> p_seen_session OR coalesce(old.seq, 0) <> p_seen_seq
        OR NOT old.ended AND old.deadline > t OR {{rules}}.count_waiting(p_space, p_key, '', t) > 0 THEN
        RETURN 'held';
    END IF;
    UPDATE {{schema}}.session SET ended = true WHERE id = old.id AND NOT ended;
    DELETE FROM {{schema}}.lease WHERE space = p_space AND key = p_key;
    DELETE FROM {{schema}}.lease_state WHERE space = p_space AND key = p_key;
    INSERT INTO {{schema}}.lease AS f (space, key, term, session, holder_id, holder_name, holder_address, since)
    VALUES ('', '', l.term, '', '', '', '', t)
    ON CONFLICT (space, key) DO UPDATE SET term = greatest(f.term, l.term);
    INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
    VALUES (t, p_space, p_key, '', '', l.term, p_reason, 0);
    PERFORM {{rules}}.notify_change(p_space, p_key, l.term, true, '');
    RETURN 'forgotten';
END $$;

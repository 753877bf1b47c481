-- Renewals of sessions: of one, and of many at once.

-- Renews a session that lives. Once refused, always refused: it is ended then. changes differs when a release is asked of a lease
-- that it holds, or one of those is released; waits are the leases that it waits for. What happens to other leases costs a renewal nothing.
CREATE FUNCTION {{rules}}.renew_session(p_id text, p_lock_timeout_ms bigint, OUT seq bigint, OUT changes bigint, OUT waits json) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    n record;
    t timestamptz := {{schema}}.clock();
    v_lock_timeout interval := p_lock_timeout_ms * interval '1 millisecond';
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    -- One that has more left than this waits for locks is renewed without being locked first, which would cost as much again. The
    -- clock was read before, so it must not have waited longer: then it is tried again, and locked.
    UPDATE {{schema}}.session s SET seq = s.seq + 1, deadline = t + s.timeout_ns / 1000 * interval '1 microsecond'
     WHERE s.id = p_id AND s.deadline > t + v_lock_timeout AND NOT s.ended RETURNING s.seq INTO seq;
    IF seq IS NOT NULL AND {{schema}}.clock() > t + v_lock_timeout THEN
        RAISE serialization_failure USING MESSAGE = 'the renewal waited too long';
    END IF;
    IF seq IS NULL THEN
        SELECT s.deadline, s.timeout_ns, s.ended INTO n FROM {{schema}}.session s WHERE s.id = p_id FOR NO KEY UPDATE;
        t := {{schema}}.clock();
        -- Compared with the clock after the lock: this may have waited past the deadline.
        IF n.deadline > t AND NOT n.ended THEN
            UPDATE {{schema}}.session s SET seq = s.seq + 1, deadline = t + n.timeout_ns / 1000 * interval '1 microsecond'
             WHERE s.id = p_id RETURNING s.seq INTO seq;
        ELSIF NOT n.ended THEN
            PERFORM FROM {{schema}}.session s WHERE s.id = p_id FOR UPDATE;
            UPDATE {{schema}}.session s SET ended = true WHERE s.id = p_id;
        END IF;
    END IF;
    IF seq IS NULL THEN
        RETURN;
    END IF;
    changes := 0;
    -- A renewal waits for nobody: what cannot be read, because someone alters a table, the next one shows.
    BEGIN
        LOCK TABLE {{schema}}.lease, {{schema}}.waiter IN ACCESS SHARE MODE NOWAIT;
        SELECT coalesce(sum(l.term), 0) INTO changes FROM {{schema}}.lease l WHERE l.session = p_id AND l.asked;
        IF EXISTS (SELECT FROM {{schema}}.waiter w WHERE w.session = p_id) THEN -- most wait for nothing
            SELECT json_agg(x) INTO waits FROM {{schema}}.waiter w, LATERAL {{rules}}.show_lease(w.space, w.key, p_id) x WHERE w.session = p_id;
        END IF;
    EXCEPTION WHEN lock_not_available THEN
    END;
END $$;

-- Renews, of the sessions with these ids, those that live and that nobody has locked, and returns what renew_session would. The
-- others it leaves out: renew_session decides on each. It waits for no row, so that one session does not hold up many.
CREATE FUNCTION {{rules}}.renew_sessions(p_ids text[], p_lock_timeout_ms bigint)
RETURNS TABLE (id text, seq bigint, changes bigint, waits json) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_ids text[];
    v_seqs bigint[];
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    SELECT array_agg(x.id) INTO v_ids FROM (
        SELECT s.id FROM {{schema}}.session s WHERE s.id = ANY (p_ids) FOR NO KEY UPDATE SKIP LOCKED
    ) x;
    t := {{schema}}.clock();
    WITH renewed AS (
        UPDATE {{schema}}.session s SET seq = s.seq + 1, deadline = t + s.timeout_ns / 1000 * interval '1 microsecond'
         WHERE s.id = ANY (v_ids) AND s.deadline > t AND NOT s.ended RETURNING s.id, s.seq
    )
    SELECT array_agg(r.id), array_agg(r.seq) INTO v_ids, v_seqs FROM renewed r;
    BEGIN -- as in renew_session
        LOCK TABLE {{schema}}.lease, {{schema}}.waiter IN ACCESS SHARE MODE NOWAIT;
        RETURN QUERY SELECT r.id, r.seq,
            (SELECT coalesce(sum(l.term), 0)::bigint FROM {{schema}}.lease l WHERE l.session = r.id AND l.asked),
            (SELECT json_agg(x) FROM {{schema}}.waiter w, LATERAL {{rules}}.show_lease(w.space, w.key, r.id) x WHERE w.session = r.id)
            FROM unnest(v_ids, v_seqs) r (id, seq);
        RETURN;
    EXCEPTION WHEN lock_not_available THEN
    END;
    RETURN QUERY SELECT r.id, r.seq, 0::bigint, NULL::json FROM unnest(v_ids, v_seqs) r (id, seq);
END $$;

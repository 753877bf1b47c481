-- Deletes a few batches that are over for long, key after key, going on where it
-- ended. Nobody is waited for: what is locked is left for the next round.
CREATE FUNCTION {{rules}}.prune(p_queue text, p_keep bigint, p_limit bigint, p_lock_timeout_ms bigint, OUT deleted bigint, OUT through boolean) LANGUAGE plpgsql AS $$
DECLARE
    v_before timestamptz;
    v_next text;
    v_visited int := 0;
    k record;
BEGIN
    PERFORM {{rules}}.configure_key_statement(p_lock_timeout_ms);
    PERFORM {{rules}}.require_queue(p_queue);
    deleted := 0;
    through := false;
    SELECT q.prune_key INTO v_next FROM {{schema}}.queue q WHERE q.name = p_queue FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_before := {{schema}}.clock() - {{rules}}.microseconds(p_keep);
    FOR k IN SELECT e.key FROM {{schema}}.tail e WHERE e.queue = p_queue AND e.key >= v_next ORDER BY e.key LIMIT 2001 LOOP
        v_visited := v_visited + 1;
        EXIT WHEN deleted >= p_limit OR v_visited > 2000;
        v_next := k.key; -- once more the next time: it may have more than were allowed
        deleted := deleted + {{rules}}.prune_key(p_queue, k.key, v_before, p_limit - deleted);
    END LOOP;
    through := v_visited <= 2000 AND deleted < p_limit;
    UPDATE {{schema}}.queue q SET prune_key = CASE WHEN through THEN '' ELSE v_next END
     WHERE q.name = p_queue AND q.prune_key <> CASE WHEN through THEN '' ELSE v_next END;
END $$;

CREATE FUNCTION {{rules}}.prune_key(p_queue text, p_key text, p_before timestamptz, p_limit bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_tids tid[] := '{}';
    v_last bigint;
    v_deleted bigint;
    v_dead bigint;
    v_term bigint;
    b record;
    e {{schema}}.tail;
BEGIN
    -- Batches are over in their order, but for a few: what follows one that stays can wait.
    FOR b IN SELECT x.ctid AS tid, x.id, x.seq, x.over, x.ended,
            EXISTS (SELECT FROM {{schema}}.scheduled s WHERE s.id = x.id AND s.queue = x.queue OFFSET 0) AS scheduled FROM {{schema}}.batch x
        WHERE x.queue = p_queue AND x.key = p_key AND x.seq > 0 ORDER BY x.seq LIMIT p_limit
    LOOP
        EXIT WHEN NOT b.over OR b.ended >= p_before;
        IF b.scheduled THEN
            -- One of this id that is scheduled gives way to this one, and would find nothing to give way to. If it is locked,
            -- it is being enqueued or cancelled: that looks for this one.
            DELETE FROM {{schema}}.scheduled s USING (
                SELECT x.n FROM {{schema}}.scheduled x WHERE x.id = b.id AND x.queue = p_queue FOR UPDATE SKIP LOCKED) gone
             WHERE s.n = gone.n;
            EXIT WHEN EXISTS (SELECT FROM {{schema}}.scheduled s WHERE s.id = b.id AND s.queue = p_queue);
        END IF;
        v_tids := v_tids || b.tid;
        v_last := b.seq;
    END LOOP;
    IF v_tids = '{}' THEN
        RETURN 0;
    END IF;
    SELECT x.* INTO e FROM {{schema}}.tail x WHERE x.queue = p_queue AND x.key = p_key FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    -- Who retries a dead letter locks it before the tail: it is not waited for, and what it has changed meanwhile stays.
    SELECT array_agg(l.tid), count(*) FILTER (WHERE l.state IN ('invalid', 'failed')) INTO v_tids, v_dead
      FROM unnest(v_tids) k (tid), LATERAL (SELECT x.ctid AS tid, x.state FROM {{schema}}.batch x
        WHERE x.ctid = k.tid AND x.queue = p_queue AND x.key = p_key AND x.over AND x.ended < p_before FOR UPDATE SKIP LOCKED) l;
    IF v_tids IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM {{rules}}.scan_by_ctid_only(true);
    DELETE FROM {{schema}}.batch x WHERE x.ctid = ANY (v_tids);
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    PERFORM {{rules}}.scan_by_ctid_only(false);
    IF v_dead > 0 THEN
        -- Dead letters never count as done.
        UPDATE {{schema}}.tail x SET moved = moved + v_dead WHERE x.queue = p_queue AND x.key = p_key;
    END IF;
    IF e.last < v_last THEN
        -- Numbers do not start again when the batches that had them are gone.
        UPDATE {{schema}}.tail x SET last = v_last WHERE x.queue = p_queue AND x.key = p_key;
    END IF;
    IF NOT EXISTS (SELECT FROM {{schema}}.batch x WHERE x.queue = p_queue AND x.key = p_key AND x.seq > 0) THEN
        -- Nothing is left of the key but its tail, which keeps its term too.
        DELETE FROM {{schema}}.claim c USING (
            SELECT x.space, x.key FROM {{schema}}.claim x WHERE x.space = 'queue/' || p_queue AND x.key = p_key
               AND x.session = '' AND x.ready_at IS NULL AND x.blocked IS NULL FOR UPDATE SKIP LOCKED) gone
         WHERE c.space = gone.space AND c.key = gone.key RETURNING c.term INTO v_term;
        IF FOUND THEN
            UPDATE {{schema}}.tail x SET term = v_term WHERE x.queue = p_queue AND x.key = p_key;
        END IF;
    END IF;
    RETURN v_deleted;
END $$;

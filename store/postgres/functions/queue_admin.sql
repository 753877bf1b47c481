-- What operators do with queues and messages.

-- Applies an operator's action: the answer is 'done', 'no queue', 'no batch', 'uncertain' (see dispatch.ErrUncertain), or the
-- state in which that cannot be done.
CREATE FUNCTION {{rules}}.apply_action(p_queue text, p_id text, p_action text, p_who text, p_lock_timeout_ms bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    b {{schema}}.batch;
    v_said text;
BEGIN
    PERFORM {{rules}}.configure_key_statement(p_lock_timeout_ms);
    v_said := {{rules}}.act_on_scheduled(p_queue, p_id, p_action, p_who);
    IF v_said IS NOT NULL THEN
        RETURN v_said;
    END IF;
    LOOP -- until the batch is found over, or not, under the lock that this takes
        SELECT x.* INTO b FROM {{schema}}.batch x WHERE x.id = p_id AND x.queue = p_queue;
        IF NOT FOUND THEN
            RETURN CASE WHEN EXISTS (SELECT FROM {{schema}}.queue q WHERE q.name = p_queue) THEN 'no batch' ELSE 'no queue' END;
        ELSIF b.over AND (p_action NOT IN ('retry', 'retry-unknown') OR b.state = 'committed') THEN
            RETURN b.state;
        ELSIF b.over THEN
            v_said := {{rules}}.retry_dead_lettered(b, p_action, p_who);
        ELSE
            v_said := {{rules}}.apply_to_unfinished(b, p_action, p_who);
        END IF;
        IF v_said IS NOT NULL THEN
            RETURN v_said;
        END IF;
    END LOOP;
END $$;

-- Applies an action to a message that is not over, under the lock of its key's claim.
-- Null: it is over by now.
CREATE FUNCTION {{rules}}.apply_to_unfinished(b {{schema}}.batch, p_action text, p_who text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    c {{schema}}.claim;
    t timestamptz;
    v_was text;
    v_head boolean;
    v_state text;
    v_stuck boolean;
    v_idle boolean := false;
BEGIN
    SELECT x.* INTO c FROM {{schema}}.claim x WHERE x.space = 'queue/' || b.queue AND x.key = b.key FOR NO KEY UPDATE;
    SELECT x.* INTO b FROM {{schema}}.batch x WHERE x.id = b.id AND x.queue = b.queue AND NOT x.over;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    t := {{schema}}.clock();
    v_was := {{rules}}.shown_state(b.state, b.hold, b.term, c.term, c.session);
    v_head := b.seq = (SELECT h.seq FROM {{rules}}.head(b.queue, b.key, c.done) h);
    v_stuck := v_head AND c.blocked IS NOT NULL AND v_was IN ('pending', 'valid');
    CASE
    WHEN b.hold IS NOT NULL AND b.term = c.term AND c.session <> '' THEN
        RETURN v_was; -- left to who sends it, or asks for it
    WHEN p_action = 'retry' AND (v_was = 'unknown' OR v_stuck) THEN
        RETURN 'uncertain';
    WHEN p_action IN ('retry', 'retry-unknown') AND (v_head AND c.blocked IS NOT NULL OR v_was IN ('delayed', 'unknown')) THEN
        v_state := 'queued';
    WHEN p_action = 'skip' AND (v_head AND c.blocked IS NOT NULL OR v_was IN ('delayed', 'unknown')) THEN
        v_state := CASE WHEN b.state = 'invalid' THEN 'invalid' ELSE 'failed' END;
    WHEN p_action = 'cancel' AND (v_was = 'queued' AND b.begun IS NULL OR v_stuck) THEN
        v_state := 'cancelled';
    ELSE
        RETURN v_was;
    END CASE;
    PERFORM {{rules}}.record_action(b, t, p_action, p_who, v_was);
    UPDATE {{schema}}.batch x
       SET state = v_state, hold = NULL,
           over = v_state <> 'queued', ended = CASE WHEN v_state <> 'queued' THEN t END, aside = CASE WHEN v_state <> 'queued' THEN true END,
           attempts = CASE WHEN v_state = 'queued' THEN 0 ELSE b.attempts END, code = CASE WHEN v_state = 'queued' THEN 0 ELSE b.code END,
           detail = CASE WHEN v_state = 'queued' THEN '' ELSE b.detail END, link = CASE WHEN v_state = 'queued' THEN '' ELSE b.link END,
           trail = {{rules}}.append_to_trail(b, {{rules}}.trail_entry(t, v_state, b.term, CASE WHEN v_state = 'queued' THEN 0 ELSE b.attempts END,
                CASE WHEN v_state = 'queued' THEN 0 ELSE b.code END, p_action || ' by ' || p_who, p_action))
     WHERE x.id = b.id AND x.queue = b.queue;
    IF v_head THEN
        IF v_stuck THEN
            c.session := ''; -- whoever polls the target for it is told at the next result
        END IF;
        -- The key goes on at once with what is next, if that is there.
        IF c.session = '' AND v_state <> 'queued' AND NOT EXISTS (SELECT FROM {{rules}}.head(b.queue, b.key, b.seq)) THEN
            SELECT cardinality(i.idle) > 0 INTO v_idle FROM {{rules}}.mark_idle(b.queue, ARRAY[b.key]) i;
        END IF;
        UPDATE {{schema}}.claim x
           SET blocked = NULL, interrupted = false, session = c.session, since = CASE WHEN v_stuck THEN t ELSE x.since END, done = CASE WHEN v_state = 'queued' THEN x.done ELSE b.seq END,
               ready_at = CASE WHEN v_idle THEN NULL WHEN c.ready_at <= t THEN c.ready_at ELSE t END
         WHERE x.space = c.space AND x.key = c.key;
        IF c.session = '' AND NOT v_idle AND (v_stuck OR coalesce(c.ready_at > t, true)) THEN
            PERFORM {{rules}}.wake_members(c.space, 1);
        END IF;
    END IF;
    RETURN 'done';
END $$;

-- Retries a dead-lettered message, which goes to the end of its key. Null: it is not over any more.
CREATE FUNCTION {{rules}}.retry_dead_lettered(b {{schema}}.batch, p_action text, p_who text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    v_tid tid;
BEGIN
    SELECT x.* INTO b FROM {{schema}}.batch x WHERE x.id = b.id AND x.queue = b.queue AND x.over FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    ELSIF p_action = 'retry' AND b.trail -> -1 ->> 'action' IN ('skip', 'cancel') AND b.trail -> -2 ->> 'state' IN ('submitting', 'pending', 'valid', 'unknown') THEN
        RETURN 'uncertain'; -- as dispatch.WasSkippedUnknown says
    END IF;
    t := {{schema}}.clock();
    PERFORM {{rules}}.record_action(b, t, p_action, p_who, b.state);
    -- Its age counts from now on. When it was queued first, its trail says.
    IF b.trail -> 0 ->> 'state' <> 'queued' OR b.trail -> 0 ->> 'action' IS NOT NULL THEN
        b.trail := jsonb_build_array({{rules}}.trail_entry(b.enqueued, 'queued', 0, 0, 0, '')) || b.trail;
    END IF;
    UPDATE {{schema}}.batch x
       SET state = 'queued', enqueued = t, over = false, aside = NULL, attempts = 0, code = 0, detail = '', link = '', ended = NULL, hold = NULL,
           trail = {{rules}}.append_to_trail(b, {{rules}}.trail_entry(t, 'queued', b.term, 0, 0, p_action || ' by ' || p_who, p_action))
     WHERE x.id = b.id AND x.queue = b.queue RETURNING x.ctid INTO v_tid;
    IF {{rules}}.append_to_key(b.queue, b.key, ARRAY[v_tid]) THEN
        PERFORM {{rules}}.wake_members('queue/' || b.queue, 1);
    END IF;
    UPDATE {{schema}}.tail e SET moved = moved + 1 WHERE e.queue = b.queue AND e.key = b.key;
    RETURN 'done';
END $$;

-- Writes an action to the history, as dispatch.ActionReason says, and how long the message had been in its state.
CREATE FUNCTION {{rules}}.record_action(b {{schema}}.batch, t timestamptz, p_action text, p_who text, p_was text, p_since timestamptz DEFAULT NULL)
RETURNS void LANGUAGE sql VOLATILE AS $$
    INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
    VALUES (t, 'batch', b.queue || '/' || b.key, '', '', b.term,
            {{rules}}.shorten_reason(format('%s by %s: %s, %s', p_action, p_who, p_was, coalesce(nullif(b.detail, ''), b.id))),
            {{rules}}.nanoseconds(greatest(t - coalesce(p_since, (b.trail -> -1 ->> 'at')::timestamptz, b.ended, b.begun, b.enqueued), '0')))
$$;

-- The state that operators see, where the claim has what is under way. One of unknown outcome stays so in the step that asks for it.
CREATE FUNCTION {{rules}}.shown_state(p_state text, p_hold timestamptz, p_term bigint, p_claim_term bigint, p_session text)
RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN p_state <> 'unknown' AND p_hold IS NOT NULL AND p_term = p_claim_term AND p_session <> '' THEN 'submitting'
                WHEN p_state = 'submitting' THEN 'unknown'
                ELSE p_state END
$$;

-- Deletes a queue, unless an instance has joined it or it has another number of messages than p_messages: of those that
-- wait, are scheduled, in flight or are dead letters. The verdict is 'removed', 'no queue', 'sink' or 'refused'. What was in it, but
-- for the tails of its keys, is deleted by purge_queue.
CREATE FUNCTION {{rules}}.remove_queue(p_queue text, p_messages bigint, p_reason text, p_lock_timeout_ms bigint,
    OUT verdict text, OUT messages bigint, OUT joined bigint) LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    PERFORM pg_advisory_xact_lock(hashtext('understudy ' || {{channel}}), hashtext('removal of queue/' || p_queue));
    PERFORM FROM {{schema}}.queue q WHERE q.name = p_queue FOR UPDATE;
    IF NOT FOUND THEN
        verdict := 'no queue';
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM {{schema}}.monitor_sink k WHERE 'alarms.' || k.name = p_queue) THEN
        verdict := 'sink';
        RETURN;
    END IF;
    t := {{schema}}.clock();
    SELECT count(*) INTO joined FROM {{schema}}.member m WHERE m.space = 'queue/' || p_queue AND m.joined AND {{rules}}.is_alive(m.session, t);
    IF joined > 0 THEN
        messages := 0; -- not counted: who enqueues would wait meanwhile
        verdict := 'refused';
        RETURN;
    END IF;
    -- Who enqueues to a known key locks its tail, and looks for nothing else. What is being committed is counted; who comes later
    -- finds neither the tail nor the queue.
    PERFORM FROM {{schema}}.tail e WHERE e.queue = p_queue ORDER BY e.key FOR UPDATE;
    t := {{schema}}.clock();
    SELECT coalesce(sum(w.n), 0) + (SELECT count(*) FROM {{schema}}.scheduled s WHERE s.queue = p_queue) + (
            SELECT count(*) FROM {{schema}}.batch x WHERE x.queue = p_queue AND x.aside AND x.over AND x.state IN ('invalid', 'failed'))
      INTO messages
      FROM {{schema}}.tail e LEFT JOIN {{schema}}.claim c ON c.space = 'queue/' || e.queue AND c.key = e.key,
           LATERAL (SELECT count(*) AS n FROM {{schema}}.batch b
             WHERE b.queue = e.queue AND b.key = e.key AND b.seq > coalesce(c.done, e.last) AND NOT b.over) w
     WHERE e.queue = p_queue;
    IF messages <> p_messages THEN
        verdict := 'refused';
        RETURN;
    END IF;
    DELETE FROM {{schema}}.tail e WHERE e.queue = p_queue;
    DELETE FROM {{schema}}.queue q WHERE q.name = p_queue;
    INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
    VALUES (t, 'batch', p_queue, '', '', 0, p_reason, 0);
    verdict := 'removed';
END $$;

-- Deletes up to p_limit rows of what was in a queue that is gone, and reports whether nothing is left.
CREATE FUNCTION {{rules}}.purge_queue(p_queue text, p_limit bigint, p_lock_timeout_ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_deleted bigint;
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    PERFORM pg_advisory_xact_lock(hashtext('understudy ' || {{channel}}), hashtext('removal of queue/' || p_queue));
    IF EXISTS (SELECT FROM {{schema}}.queue q WHERE q.name = p_queue) THEN
        RETURN true; -- somebody has made it again
    END IF;
    DELETE FROM {{schema}}.batch b USING (SELECT x.id FROM {{schema}}.batch x WHERE x.queue = p_queue AND x.seq IS NOT NULL LIMIT p_limit) gone
     WHERE b.id = gone.id AND b.queue = p_queue;
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    IF v_deleted = 0 THEN
        DELETE FROM {{schema}}.scheduled s USING (SELECT x.n FROM {{schema}}.scheduled x WHERE x.queue = p_queue LIMIT p_limit) gone WHERE s.n = gone.n;
        GET DIAGNOSTICS v_deleted = ROW_COUNT;
    END IF;
    IF v_deleted = 0 THEN
        DELETE FROM {{schema}}.claim c USING (SELECT x.key FROM {{schema}}.claim x WHERE x.space = 'queue/' || p_queue LIMIT p_limit) gone
         WHERE c.space = 'queue/' || p_queue AND c.key = gone.key;
        GET DIAGNOSTICS v_deleted = ROW_COUNT;
    END IF;
    IF v_deleted = 0 THEN
        DELETE FROM {{schema}}.tail e USING (SELECT x.key FROM {{schema}}.tail x WHERE x.queue = p_queue LIMIT p_limit) gone
         WHERE e.queue = p_queue AND e.key = gone.key;
        GET DIAGNOSTICS v_deleted = ROW_COUNT;
    END IF;
    IF v_deleted = 0 THEN
        DELETE FROM {{schema}}.member m WHERE m.space = 'queue/' || p_queue;
    END IF;
    RETURN v_deleted = 0;
END $$;

-- Scheduled messages: they are in no key until their time.

-- Puts messages into their keys that are due, those first whose time came first; the trigger number_batches gives them
-- their numbers, here and not at the commit, where nobody could leave out a key. One caller at a time: the next one would commit
-- what comes later before what comes sooner. A transaction that has enqueued the id of one of them, or has locked the tail of its
-- key, is not waited for: it may stay open for long.
CREATE FUNCTION {{rules}}.enqueue_due(p_queue text, p_limit bigint, p_lock_timeout_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    v_ns bigint[];
    v_joined bigint;
BEGIN
    PERFORM {{rules}}.configure_key_statement(p_lock_timeout_ms);
    PERFORM {{rules}}.require_queue(p_queue);
    t := {{schema}}.clock();
    IF NOT EXISTS (SELECT FROM {{schema}}.scheduled s WHERE s.queue = p_queue AND s.not_before <= t)
        OR NOT pg_try_advisory_xact_lock(hashtext('understudy ' || {{channel}}), hashtext('scheduled of queue/' || p_queue))
    THEN
        RETURN 0;
    END IF;
    -- The first whatever its size, and others as long as they are no more than a message can be.
    v_ns := ARRAY(SELECT d.n FROM (
        SELECT f.n, f.i, sum(f.size) OVER (ORDER BY f.i) AS bytes FROM (
            SELECT s.n, octet_length(s.payload) AS size, row_number() OVER (ORDER BY s.not_before, s.n) AS i FROM {{schema}}.scheduled s
             WHERE s.queue = p_queue AND s.not_before <= t ORDER BY s.not_before, s.n LIMIT p_limit) f) d
        WHERE d.i = 1 OR d.bytes <= 16777216 ORDER BY d.i);
    PERFORM set_config('lock_timeout', '20', true); -- of most, the commit is under way
    BEGIN
        v_joined := {{rules}}.move_to_keys(v_ns, NULL, NULL);
        SET CONSTRAINTS {{schema}}.number_batches IMMEDIATE;
    EXCEPTION WHEN lock_not_available THEN
        v_joined := {{rules}}.enqueue_due_singly(p_queue, t, p_limit);
    END;
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    RETURN v_joined;
END $$;

-- Does the same one by one, each in a subtransaction. A message that another transaction holds up is left for the next call, and so
-- are the later ones of its key. It fails if that leaves nothing: whoever waits for these messages is to hear why.
CREATE FUNCTION {{rules}}.enqueue_due_singly(p_queue text, t timestamptz, p_limit bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_joined bigint := 0;
    v_bytes bigint := 0;
    v_left text[] := '{}'; -- keys
    v_patient boolean := false;
    d record;
BEGIN
    PERFORM set_config('lock_timeout', '5', true);
    -- Those that have joined their keys are locked until the commit, as are the tails of these, and that is not to last.
    WHILE v_joined < p_limit AND {{schema}}.clock() < t + interval '2 seconds' LOOP
        SELECT s.n, s.key, octet_length(s.payload) AS size INTO d FROM {{schema}}.scheduled s
         WHERE s.queue = p_queue AND s.not_before <= t AND s.key <> ALL (v_left) ORDER BY s.not_before, s.n LIMIT 1;
        IF NOT FOUND AND v_joined = 0 AND NOT v_patient AND v_left <> '{}' THEN
            -- Where many enqueue to a key, the wait for its tail is never short. It holds nothing up now: nothing is locked.
            v_patient := true;
            v_left := v_left[4:];
            PERFORM set_config('lock_timeout', '300', true);
            CONTINUE;
        END IF;
        EXIT WHEN NOT FOUND OR v_joined > 0 AND (v_patient OR v_bytes + d.size > 16777216);
        BEGIN
            PERFORM {{rules}}.move_to_keys(ARRAY[d.n], NULL, NULL);
            SET CONSTRAINTS {{schema}}.number_batches IMMEDIATE;
            v_joined := v_joined + 1; -- last: an exception does not take it back
            v_bytes := v_bytes + d.size;
        EXCEPTION WHEN lock_not_available THEN
            v_left := v_left || d.key;
            IF cardinality(v_left) = 20 AND NOT v_patient THEN -- hardly commits under way: one transaction that holds them all, and there may be hundreds
                PERFORM set_config('lock_timeout', '1', true);
            END IF;
        END;
    END LOOP;
    IF v_joined = 0 AND v_left <> '{}' THEN
        RAISE EXCEPTION 'scheduled messages are due that other transactions hold up, which have enqueued their ids or to their keys and not committed, the first of key %', quote_literal(v_left[1])
            USING ERRCODE = 'lock_not_available';
    END IF;
    RETURN v_joined;
END $$;

-- Puts scheduled messages at the ends of their keys, in the order in which they are given and in a given state, and
-- returns how many it was. One that is gone meanwhile, an operator has cancelled; one whose id has been enqueued without a
-- time meanwhile gives way to that.
CREATE FUNCTION {{rules}}.move_to_keys(p_ns bigint[], p_ended timestamptz, p_trail jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_joined bigint := 0;
    v_n bigint;
BEGIN
    FOREACH v_n IN ARRAY p_ns LOOP
        WITH gone AS (DELETE FROM {{schema}}.scheduled s WHERE s.n = v_n RETURNING s.*)
        INSERT INTO {{schema}}.batch (queue, key, id, content_type, payload, headers, enqueued, state, over, aside, ended, trail)
        SELECT g.queue, g.key, g.id, g.content_type, g.payload, g.headers, least(g.not_before, {{schema}}.clock()),
               CASE WHEN p_ended IS NULL THEN 'queued' ELSE 'cancelled' END, p_ended IS NOT NULL, CASE WHEN p_ended IS NOT NULL THEN true END, p_ended, p_trail
          FROM gone g
        ON CONFLICT (id, queue) DO NOTHING;
        v_joined := v_joined + 1; -- as one that is through, whatever became of it
    END LOOP;
    RETURN v_joined;
END $$;

-- Cancels a scheduled message, which gets its place in its key by that. The answer is that of apply_action, or null where
-- no scheduled message has this id.
CREATE FUNCTION {{rules}}.act_on_scheduled(p_queue text, p_id text, p_action text, p_who text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    s {{schema}}.scheduled;
    t timestamptz;
BEGIN
    SELECT x.* INTO s FROM {{schema}}.scheduled x WHERE x.id = p_id AND x.queue = p_queue FOR UPDATE;
    IF NOT FOUND OR EXISTS (SELECT FROM {{schema}}.batch b WHERE b.id = p_id AND b.queue = p_queue) THEN
        RETURN NULL; -- also where it would give way to that one
    ELSIF p_action <> 'cancel' THEN
        RETURN 'scheduled';
    END IF;
    t := {{schema}}.clock();
    PERFORM {{rules}}.move_to_keys(ARRAY[s.n], t, jsonb_build_array({{rules}}.trail_entry(t, 'cancelled', 0, 0, 0, p_action || ' by ' || p_who, p_action)));
    PERFORM {{rules}}.record_action(b, t, p_action, p_who, 'scheduled', s.enqueued) FROM {{schema}}.batch b WHERE b.id = p_id AND b.queue = p_queue;
    RETURN 'done';
END $$;

-- Counts the scheduled messages of a queue, at most p_most, and returns when the first is due.
CREATE FUNCTION {{rules}}.count_scheduled(p_queue text, p_most bigint, OUT n bigint, OUT first timestamptz) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
BEGIN
    SELECT count(*) INTO n FROM (SELECT FROM {{schema}}.scheduled s WHERE s.queue = p_queue LIMIT p_most) x;
    SELECT s.not_before INTO first FROM {{schema}}.scheduled s WHERE s.queue = p_queue ORDER BY s.not_before, s.n LIMIT 1;
END $$;

-- Scheduled messages: they are in no key until their time.

-- Puts messages into their keys that are due, those first whose time came first; the trigger number_batches gives them
-- their numbers at the commit. One caller at a time: the next one would commit what comes later before what comes sooner.
CREATE FUNCTION {{rules}}.enqueue_due(p_queue text, p_limit bigint, p_lock_timeout_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    v_ns bigint[];
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
    RETURN {{rules}}.move_to_keys(v_ns, NULL, NULL);
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

-- Counts the scheduled messages of a queue, at most p_most, and tells when the first is due.
CREATE FUNCTION {{rules}}.count_scheduled(p_queue text, p_most bigint, OUT n bigint, OUT first timestamptz) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
BEGIN
    SELECT count(*) INTO n FROM (SELECT FROM {{schema}}.scheduled s WHERE s.queue = p_queue LIMIT p_most) x;
    SELECT s.not_before INTO first FROM {{schema}}.scheduled s WHERE s.queue = p_queue ORDER BY s.not_before, s.n LIMIT 1;
END $$;

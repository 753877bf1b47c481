-- What entry/enqueue.sql calls: numbering of messages at the commit, and checks.

-- Numbers this message and all that follow it in this transaction, unless an earlier call has done so.
CREATE FUNCTION {{rules}}.number_messages(p_queue text, p_key text, p_id text, p_content_type text, p_payload bytea, p_n bigint)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    k record;
    v_queue text;
    v_ready bigint := 0;
    v_seq bigint;
BEGIN
    PERFORM {{rules}}.check_message(p_key, p_id, p_content_type, p_payload); -- of a plain INSERT, too
    SELECT b.seq INTO v_seq FROM {{schema}}.batch b WHERE b.id = p_id AND b.queue = p_queue;
    IF NOT FOUND OR v_seq IS NOT NULL THEN
        RETURN;
    END IF;
    FOR k IN
        SELECT b.queue, b.key, array_agg(b.ctid ORDER BY b.n) AS tids FROM {{schema}}.batch b
         WHERE b.tx = txid_current() AND b.n >= p_n AND b.seq IS NULL
         GROUP BY b.queue, b.key ORDER BY b.queue, b.key -- the order of the locks, against deadlocks
    LOOP
        IF v_ready > 0 AND v_queue <> k.queue THEN
            PERFORM {{rules}}.wake_members('queue/' || v_queue, v_ready);
            v_ready := 0;
        END IF;
        IF v_queue IS DISTINCT FROM k.queue THEN
            -- Before the first tail: a removal, too, has this lock before it waits for tails.
            PERFORM pg_advisory_xact_lock_shared(hashtext('understudy ' || {{channel}}), hashtext('removal of queue/' || k.queue));
        END IF;
        v_queue := k.queue;
        v_ready := v_ready + {{rules}}.append_to_key(k.queue, k.key, k.tids)::int;
    END LOOP;
    IF v_ready > 0 THEN
        PERFORM {{rules}}.wake_members('queue/' || v_queue, v_ready);
    END IF;
END $$;

-- Puts messages at the end of their key, in this order, and returns whether the key became ready by that and a member may
-- have to be woken for it. The trigger number_batches does the same for one message, with fewer statements: the two must
-- take the same locks in the same order.
CREATE FUNCTION {{rules}}.append_to_key(p_queue text, p_key text, p_tids tid[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_last bigint; -- a number that was given, and all before it
    v_term bigint;
    v_number bigint;
    v_busy boolean; -- somebody will see to the key
    v_current boolean := current_setting('transaction_isolation') = 'read committed';
BEGIN
    SELECT e.last, e.term INTO v_last, v_term FROM {{schema}}.tail e WHERE e.queue = p_queue AND e.key = p_key FOR NO KEY UPDATE;
    IF v_last IS NULL THEN
        -- A removal waits for this transaction, or this one for it: a queue that is gone gets no more keys.
        IF pg_advisory_xact_lock_shared(hashtext('understudy ' || {{channel}}), hashtext('removal of queue/' || p_queue)) IS NOT NULL THEN
            INSERT INTO {{schema}}.tail (queue, key) SELECT q.name, p_key FROM {{schema}}.queue q WHERE q.name = p_queue
            ON CONFLICT DO NOTHING RETURNING last, term INTO v_last, v_term;
        END IF;
        IF v_last IS NULL THEN
            PERFORM {{rules}}.require_queue(p_queue);
            SELECT e.last, e.term INTO v_last, v_term FROM {{schema}}.tail e WHERE e.queue = p_queue AND e.key = p_key FOR NO KEY UPDATE;
        END IF;
    END IF;
    -- In a statement of its own, which sees what the last holder of the lock did. With a snapshot of before the lock, this may
    -- be a number that was given meanwhile: the unique index refuses it then, which is a serialization failure and no error of
    -- the caller's.
    v_number := coalesce((SELECT x.seq FROM {{schema}}.batch x
        WHERE x.queue = p_queue AND x.key = p_key AND x.seq > v_last ORDER BY x.seq DESC LIMIT 1), v_last);
    IF v_current THEN
        PERFORM {{rules}}.assign_numbers(p_tids, v_number);
    ELSE
        BEGIN
            PERFORM {{rules}}.assign_numbers(p_tids, v_number);
        EXCEPTION WHEN unique_violation THEN
            RAISE EXCEPTION 'understudy: another transaction has enqueued to this key since this one began' USING
                ERRCODE = 'serialization_failure', HINT = 'Try the transaction again.';
        END;
    END IF;
    -- Nothing can mark the key as idle while its tail is locked.
    SELECT c.session <> '' OR c.ready_at IS NOT NULL OR c.blocked IS NOT NULL INTO v_busy FROM {{schema}}.claim c
     WHERE c.space = 'queue/' || p_queue AND c.key = p_key;
    IF v_busy THEN
        RETURN false;
    END IF;
    RETURN {{rules}}.make_key_ready(p_queue, p_key, v_term, v_last);
END $$;

-- Numbers the batches with these ctids. The settings leave the planner no other way than by them.
CREATE FUNCTION {{rules}}.assign_numbers(p_tids tid[], p_last bigint) RETURNS void LANGUAGE plpgsql
SET enable_indexscan = off SET enable_indexonlyscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    UPDATE {{schema}}.batch b SET seq = p_last + x.i FROM unnest(p_tids) WITH ORDINALITY x (tid, i) WHERE b.ctid = x.tid;
END $$;

-- Makes an idle key ready and reports whether a member may have to be woken for it.
CREATE FUNCTION {{rules}}.make_key_ready(p_queue text, p_key text, p_term bigint, p_last bigint) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_space text := 'queue/' || p_queue;
    v_asleep boolean;
BEGIN
    -- The lock of wake_members, before the statement that looks who sleeps.
    IF pg_advisory_xact_lock_shared(hashtext('understudy ' || {{channel}}), hashtext(v_space)) IS NOT NULL THEN
        INSERT INTO {{schema}}.claim AS c (space, key, term, since, ready_at, done)
        VALUES (v_space, p_key, p_term, {{schema}}.clock(), {{schema}}.clock(), p_last)
        ON CONFLICT (space, key) DO UPDATE SET ready_at = coalesce(c.ready_at, excluded.ready_at)
        RETURNING EXISTS (SELECT FROM {{schema}}.member m WHERE m.space = v_space AND m.asleep) INTO v_asleep;
    END IF;
    RETURN v_asleep OR current_setting('transaction_isolation') <> 'read committed'; -- an older snapshot does not show who has fallen asleep since
END $$;

-- Wakes a member, for callers that set no search_path.
CREATE FUNCTION {{rules}}.wake_one(p_queue text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {{rules}}.wake_members('queue/' || p_queue, 1);
END $$;

-- Reports whether a message is valid, for most of them, at the cost of an expression: it is written into the statement that calls it.
CREATE FUNCTION {{rules}}.is_plainly_valid(p_key text, p_id text, p_content_type text, p_payload bytea) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT p_key OPERATOR(pg_catalog.||) E'\n' OPERATOR(pg_catalog.||) p_id OPERATOR(pg_catalog.||) E'\n' OPERATOR(pg_catalog.||) p_content_type
            OPERATOR(pg_catalog.~) '^[!-~](?:[ -~]*[!-~])?\n[!-~](?:[ -~]*[!-~])?\n[!-~](?:[ -~]*[!-~])?$'
       AND pg_catalog.octet_length(p_key) OPERATOR(pg_catalog.<=) 200 AND pg_catalog.octet_length(p_id) OPERATOR(pg_catalog.<=) 200
       AND pg_catalog.octet_length(p_content_type) OPERATOR(pg_catalog.<=) 200 AND pg_catalog.octet_length(p_payload) OPERATOR(pg_catalog.<=) 16777216
$$;

-- Refuses a message in words.
CREATE FUNCTION {{rules}}.check_message(p_key text, p_id text, p_content_type text, p_payload bytea) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_wrong text;
BEGIN
    v_wrong := CASE
        WHEN p_key IS NULL OR octet_length(p_key) NOT BETWEEN 1 AND 200 OR p_key ~ '^\s|[[:cntrl:]]|\s$' THEN 'the key'
        WHEN p_id IS NULL OR octet_length(p_id) NOT BETWEEN 1 AND 200 OR p_id ~ '^\s|[[:cntrl:]]|\s$' THEN 'the message id'
        WHEN p_content_type IS NULL OR octet_length(p_content_type) NOT BETWEEN 1 AND 200 OR p_content_type ~ '^\s|[[:cntrl:]]|\s$' THEN 'the content type' END;
    IF v_wrong IS NULL AND octet_length(p_payload) <= 16777216 THEN
        RETURN;
    END IF;
    RAISE EXCEPTION 'understudy: %', CASE
        WHEN v_wrong IS NOT NULL THEN v_wrong || ' must be text of 1 to 200 bytes without control characters or blanks at its ends'
        WHEN p_payload IS NULL THEN 'the payload is null; an empty one is ''''' ELSE 'the payload has more than 16 MiB' END
        USING ERRCODE = CASE WHEN p_key IS NULL OR p_id IS NULL OR p_content_type IS NULL OR p_payload IS NULL THEN '23502' ELSE '23514' END;
END $$;

CREATE FUNCTION {{rules}}.check_headers(p_headers jsonb) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_headers IS NULL THEN
        RETURN;
    ELSIF jsonb_typeof(p_headers) <> 'object' OR octet_length(p_headers::text) > 16384
        OR EXISTS (SELECT FROM jsonb_each(p_headers) h WHERE jsonb_typeof(h.value) <> 'string') THEN
        RAISE EXCEPTION 'understudy: the headers must be a JSON object of strings, of at most 16 KiB' USING ERRCODE = 'check_violation';
    END IF;
END $$;

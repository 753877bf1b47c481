-- Entry points of queues. Applications call enqueue, enqueue_at and enqueue_all by these names, and the trigger
-- number_batches names its function, so that there is one of each beside the sets of all versions. It
-- belongs to the version that was installed last, and numbers what the other one enqueues too: it must
-- stay compatible with the version before, in signature and in what it writes. An argument that is added, even
-- with a DEFAULT, does not replace a function: it makes an overload beside it, and old calls become ambiguous.

-- Runs at the commit of the user's transaction, once for each of its messages; the first time it numbers all of them. At the
-- commit, and not before: so a lock on a key is held for as long as the commit takes, and the order of the numbers is that
-- of the commits. It has the rights of the schema's owner. To set a search_path would cost as much as a statement, so each
-- operator, function and type is named with its schema here, as in enqueue, and what is called sets its own.
-- After RETURNING, NEW would be the written row from PostgreSQL 18 on, and not the message.
--
-- What stands here is for the one message of a transaction, which most have: two statements if the key is new or somebody
-- sees to it already. All else is in {{rules}}.number_messages.
CREATE OR REPLACE FUNCTION {{schema}}.number_batches() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off AS $$
DECLARE
    v_last bigint;
    v_term bigint;
    v_busy boolean;   -- somebody sees to the key
    v_asleep boolean; -- somebody has to be woken for it
BEGIN
    IF NEW.seq IS NULL
        AND NEW.n OPERATOR(pg_catalog.=) pg_catalog.currval('{{schema}}.batch_n') -- so none comes after it
        AND {{rules}}.is_plainly_valid(NEW.key, NEW.id, NEW.content_type, NEW.payload)
        AND pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.=) 'read committed' THEN
        -- Enqueuers of one key wait here for the commit of the one before.
        SELECT e.last, e.term INTO v_last, v_term FROM {{schema}}.tail e
         WHERE e.queue OPERATOR(pg_catalog.=) NEW.queue AND e.key OPERATOR(pg_catalog.=) NEW.key FOR NO KEY UPDATE;
        IF FOUND THEN
            -- In a statement of its own, which sees what the last holder of the lock did. Nothing can mark the key as idle while
            -- its tail is locked.
            UPDATE {{schema}}.batch b SET seq = 1 OPERATOR(pg_catalog.+) coalesce((SELECT x.seq FROM {{schema}}.batch x
                WHERE x.queue OPERATOR(pg_catalog.=) NEW.queue AND x.key OPERATOR(pg_catalog.=) NEW.key AND x.seq OPERATOR(pg_catalog.>) v_last
                ORDER BY x.seq DESC LIMIT 1), v_last)
             WHERE b.ctid OPERATOR(pg_catalog.=) NEW.ctid
            RETURNING coalesce((SELECT c.session OPERATOR(pg_catalog.<>) '' OR c.ready_at IS NOT NULL OR c.blocked IS NOT NULL FROM {{schema}}.claim c
                WHERE c.space OPERATOR(pg_catalog.=) ('queue/' OPERATOR(pg_catalog.||) b.queue) AND c.key OPERATOR(pg_catalog.=) b.key), false) INTO v_busy;
            IF v_busy THEN
                RETURN NULL;
            ELSIF NOT v_busy THEN
                v_asleep := {{rules}}.make_key_ready(NEW.queue, NEW.key, v_term, v_last);
            END IF;
        -- The locks of remove_queue and of wake_members, before the statement that looks who sleeps.
        ELSIF pg_catalog.pg_advisory_xact_lock_shared(pg_catalog.hashtext('understudy ' OPERATOR(pg_catalog.||) {{channel}}),
                pg_catalog.hashtext('removal of queue/' OPERATOR(pg_catalog.||) NEW.queue)) IS NOT NULL
            AND pg_catalog.pg_advisory_xact_lock_shared(pg_catalog.hashtext('understudy ' OPERATOR(pg_catalog.||) {{channel}}),
                pg_catalog.hashtext('queue/' OPERATOR(pg_catalog.||) NEW.queue)) IS NOT NULL THEN
            -- A key that is new has no number yet, and nobody else can give one before this commit.
            WITH made AS (
                INSERT INTO {{schema}}.tail (queue, key)
                SELECT q.name, NEW.key FROM {{schema}}.queue q WHERE q.name OPERATOR(pg_catalog.=) NEW.queue
                ON CONFLICT DO NOTHING RETURNING tail.key
            ), numbered AS (
                UPDATE {{schema}}.batch b SET seq = 1 FROM made WHERE b.ctid OPERATOR(pg_catalog.=) NEW.ctid RETURNING b.key
            )
            INSERT INTO {{schema}}.claim AS c (space, key, since, ready_at)
            SELECT 'queue/' OPERATOR(pg_catalog.||) NEW.queue, n.key, {{schema}}.clock(), {{schema}}.clock() FROM numbered n
            ON CONFLICT (space, key) DO UPDATE SET ready_at = coalesce(c.ready_at, excluded.ready_at)
            RETURNING EXISTS (SELECT FROM {{schema}}.member m
                WHERE m.space OPERATOR(pg_catalog.=) c.space AND m.asleep) INTO v_asleep;
        END IF;
        IF NOT v_asleep THEN
            RETURN NULL;
        ELSIF v_asleep THEN
            PERFORM {{rules}}.wake_one(NEW.queue);
            RETURN NULL;
        END IF; -- else nothing is at that place any more, or somebody else has made the key
    END IF;
    IF NEW.seq IS NULL THEN
        PERFORM {{rules}}.number_messages(NEW.queue, NEW.key, NEW.id, NEW.content_type, NEW.payload, NEW.n);
    END IF;
    RETURN NULL;
END $$;

-- Enqueues messages in the caller's transaction and returns which are new. Those with
-- an id that the queue has already are left out.
CREATE OR REPLACE FUNCTION {{schema}}.enqueue_all(queues text[], keys text[], ids text[], content_types text[], payloads bytea[])
RETURNS boolean[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN {{schema}}.enqueue_all(queues, keys, ids, content_types, payloads, NULL);
END $$;

-- Enqueues one message in the caller's transaction and returns its id, or null if the
-- queue has a message of this id already.
CREATE OR REPLACE FUNCTION {{schema}}.enqueue(queue text, key text, payload bytea, id text DEFAULT NULL,
    content_type text DEFAULT 'application/octet-stream') RETURNS text LANGUAGE plpgsql
SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    v_id pg_catalog.text;
BEGIN
    INSERT INTO {{schema}}.batch (queue, key, id, content_type, payload)
    SELECT q.name, enqueue.key, coalesce(enqueue.id, {{schema}}.new_id()), enqueue.content_type, enqueue.payload FROM {{schema}}.queue q
     WHERE q.name OPERATOR(pg_catalog.=) enqueue.queue AND {{rules}}.is_plainly_valid(enqueue.key, coalesce(enqueue.id, 'new'), enqueue.content_type, enqueue.payload)
    ON CONFLICT (id, queue) DO NOTHING RETURNING batch.id INTO v_id;
    IF v_id IS NULL THEN
        RETURN {{schema}}.enqueue(enqueue.queue, enqueue.key, enqueue.payload, enqueue.id, enqueue.content_type, NULL);
    END IF;
    RETURN v_id;
END $$;

-- The same with headers, which are null or an object of strings. All arguments are there, so that no call is ambiguous.
CREATE OR REPLACE FUNCTION {{schema}}.enqueue_all(queues text[], keys text[], ids text[], content_types text[], payloads bytea[], headers jsonb[])
RETURNS boolean[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_queue text;
    v_added boolean[] := array_fill(false, ARRAY[coalesce(cardinality(ids), 0)]);
    v_row record;
BEGIN
    FOR v_queue IN SELECT DISTINCT q FROM unnest(queues) q LOOP
        PERFORM {{rules}}.require_queue(v_queue);
    END LOOP;
    PERFORM {{rules}}.check_message(k, i, c, p) FROM unnest(keys, ids, content_types, payloads) u (k, i, c, p);
    PERFORM {{rules}}.check_headers(h) FROM unnest(headers) h;
    FOR v_row IN
        WITH ins AS (
            INSERT INTO {{schema}}.batch (queue, key, id, content_type, payload, headers)
            SELECT * FROM unnest(queues, keys, ids, content_types, payloads, headers)
            ON CONFLICT (id, queue) DO NOTHING RETURNING batch.id, batch.queue
        )
        SELECT min(u.i) AS i FROM ins, unnest(queues, ids) WITH ORDINALITY u (queue, id, i)
         WHERE u.id = ins.id AND u.queue = ins.queue GROUP BY ins.id, ins.queue
    LOOP
        v_added[v_row.i] := true;
    END LOOP;
    RETURN v_added;
END $$;

CREATE OR REPLACE FUNCTION {{schema}}.enqueue(queue text, key text, payload bytea, id text, content_type text, headers jsonb) RETURNS text LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id text;
BEGIN
    PERFORM {{rules}}.require_queue(enqueue.queue);
    PERFORM {{rules}}.check_message(enqueue.key, coalesce(enqueue.id, 'new'), enqueue.content_type, enqueue.payload);
    PERFORM {{rules}}.check_headers(enqueue.headers);
    INSERT INTO {{schema}}.batch (queue, key, id, content_type, payload, headers)
    VALUES (enqueue.queue, enqueue.key, coalesce(enqueue.id, {{schema}}.new_id()), enqueue.content_type, enqueue.payload, enqueue.headers)
    ON CONFLICT (id, queue) DO NOTHING RETURNING batch.id INTO v_id;
    RETURN v_id;
END $$;

-- Enqueues one message that is not to be sent before a time, by the clock of this server: until then it is in no key. The
-- rest is as for enqueue, which it is where that time has come.
CREATE OR REPLACE FUNCTION {{schema}}.enqueue_at(queue text, key text, payload bytea, not_before timestamptz, id text DEFAULT NULL,
    content_type text DEFAULT 'application/octet-stream', headers jsonb DEFAULT NULL) RETURNS text LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_id text := coalesce(enqueue_at.id, {{schema}}.new_id());
BEGIN
    IF enqueue_at.not_before <= {{schema}}.clock() AND EXISTS (SELECT FROM {{schema}}.scheduled s WHERE s.id = v_id AND s.queue = enqueue_at.queue) THEN
        RETURN NULL; -- the same call again
    ELSIF enqueue_at.not_before IS NULL OR enqueue_at.not_before <= {{schema}}.clock() THEN
        RETURN {{schema}}.enqueue(enqueue_at.queue, enqueue_at.key, enqueue_at.payload, enqueue_at.id, enqueue_at.content_type, enqueue_at.headers);
    ELSIF enqueue_at.not_before >= '10000-01-01 00:00:00+00' THEN
        RAISE EXCEPTION 'understudy: not before %: the last year is 9999', enqueue_at.not_before USING ERRCODE = 'check_violation';
    END IF;
    -- A removal waits for this transaction, or this one for it: a queue that is gone gets no more messages.
    PERFORM pg_advisory_xact_lock_shared(hashtext('understudy ' || {{channel}}), hashtext('removal of queue/' || enqueue_at.queue));
    PERFORM {{rules}}.require_queue(enqueue_at.queue);
    PERFORM {{rules}}.check_message(enqueue_at.key, v_id, enqueue_at.content_type, enqueue_at.payload);
    PERFORM {{rules}}.check_headers(enqueue_at.headers);
    -- Who enqueues the same id without a time, at this moment or later, does not look here, which would cost everyone. The
    -- two meet when this one is due, and it gives way.
    IF EXISTS (SELECT FROM {{schema}}.batch b WHERE b.id = v_id AND b.queue = enqueue_at.queue) THEN
        RETURN NULL;
    END IF;
    INSERT INTO {{schema}}.scheduled (queue, key, id, content_type, payload, headers, not_before)
    VALUES (enqueue_at.queue, enqueue_at.key, v_id, enqueue_at.content_type, enqueue_at.payload, enqueue_at.headers, enqueue_at.not_before)
    ON CONFLICT (id, queue) DO NOTHING RETURNING scheduled.id INTO v_id;
    RETURN v_id;
END $$;

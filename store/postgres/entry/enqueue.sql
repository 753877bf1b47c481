-- Entry points of queues. Applications call enqueue and enqueue_all by these names, and the trigger
-- number_batches names its function, so that there is one of each beside the sets of all versions. It
-- belongs to the version that was installed last, and numbers what the other one enqueues too: it must
-- stay compatible with the version before, in signature and in what it writes. An argument that is added, even
-- with a DEFAULT, does not replace a function: it makes an overload beside it, and old calls become ambiguous.

-- Runs at the commit of the user's transaction, once for each of its batches; the first time it
-- numbers all of them. At the commit, and not before: so a lock on a key is held for as long as the
-- commit takes, and the order of the numbers is that of the commits. It has the rights of the
-- schema's owner.
CREATE OR REPLACE FUNCTION {{schema}}.number_batches() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    k record;
    v_queue text;
    v_ready bigint := 0;
    v_seq bigint;
    v_one boolean; -- null: nothing is at that place, because it has its number or was changed
BEGIN
    IF NEW.seq IS NOT NULL THEN
        RETURN NULL;
    ELSIF {{rules}}.check_message(NEW.key, NEW.id, NEW.content_type, NEW.payload) -- of a plain INSERT, too
        AND NEW.n = currval('{{schema}}.batch_n') AND current_setting('transaction_isolation') = 'read committed' THEN
        -- No message of this transaction comes after it. So most transactions, which enqueue one, pay for no more than this.
        v_one := {{rules}}.append_to_key(NEW.queue, NEW.key, ARRAY[NEW.ctid]);
        IF v_one THEN
            PERFORM {{rules}}.wake_members('queue/' || NEW.queue, 1);
        END IF;
        IF v_one IS NOT NULL THEN
            RETURN NULL;
        END IF;
    END IF;
    SELECT b.seq INTO v_seq FROM {{schema}}.batch b WHERE b.id = NEW.id AND b.queue = NEW.queue;
    IF NOT FOUND OR v_seq IS NOT NULL THEN
        RETURN NULL; -- an earlier call has numbered it
    END IF;
    FOR k IN
        SELECT b.queue, b.key, array_agg(b.ctid ORDER BY b.n) AS tids FROM {{schema}}.batch b
         WHERE b.tx = txid_current() AND b.n >= NEW.n AND b.seq IS NULL
         GROUP BY b.queue, b.key ORDER BY b.queue, b.key -- the order of the locks, against deadlocks
    LOOP
        IF v_ready > 0 AND v_queue <> k.queue THEN
            PERFORM {{rules}}.wake_members('queue/' || v_queue, v_ready);
            v_ready := 0;
        END IF;
        v_queue := k.queue;
        v_ready := v_ready + {{rules}}.append_to_key(k.queue, k.key, k.tids)::int;
    END LOOP;
    IF v_ready > 0 THEN
        PERFORM {{rules}}.wake_members('queue/' || v_queue, v_ready);
    END IF;
    RETURN NULL;
END $$;

-- Enqueues batches in the caller's transaction and tells which are new. Those with
-- an id that the queue has already are left out.
CREATE OR REPLACE FUNCTION {{schema}}.enqueue_all(queues text[], keys text[], ids text[], content_types text[], payloads bytea[])
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
    FOR v_row IN
        WITH ins AS (
            INSERT INTO {{schema}}.batch (queue, key, id, content_type, payload)
            SELECT * FROM unnest(queues, keys, ids, content_types, payloads)
            ON CONFLICT (id, queue) DO NOTHING RETURNING batch.id, batch.queue
        )
        SELECT min(u.i) AS i FROM ins, unnest(queues, ids) WITH ORDINALITY u (queue, id, i)
         WHERE u.id = ins.id AND u.queue = ins.queue GROUP BY ins.id, ins.queue
    LOOP
        v_added[v_row.i] := true;
    END LOOP;
    RETURN v_added;
END $$;

-- Enqueues one batch in the caller's transaction and returns its id, or null if the
-- queue has a batch of this id already.
CREATE OR REPLACE FUNCTION {{schema}}.enqueue(queue text, key text, payload bytea, id text DEFAULT NULL,
    content_type text DEFAULT 'application/octet-stream') RETURNS text LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id text;
BEGIN
    IF {{rules}}.check_message(enqueue.key, coalesce(enqueue.id, 'new'), enqueue.content_type, enqueue.payload) THEN
        INSERT INTO {{schema}}.batch (queue, key, id, content_type, payload)
        SELECT q.name, enqueue.key, coalesce(enqueue.id, {{schema}}.new_id()), enqueue.content_type, enqueue.payload FROM {{schema}}.queue q
         WHERE q.name = enqueue.queue ON CONFLICT (id, queue) DO NOTHING RETURNING batch.id INTO v_id;
    END IF;
    IF v_id IS NULL THEN
        PERFORM {{rules}}.require_queue(enqueue.queue);
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

-- Enqueues one batch that is not to be sent before a time, by the clock of this server: until then it is in no key. The
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

-- Queues of batches, in order per key.
--
-- The claim row of a key is only locked while batches are delivered: what changes
-- with each of them is written in the row of the batch, so that no row is written
-- again and again. Its "done" follows from time to time. The tail row of a key
-- belongs to those who enqueue, who lock it, and changes only when the key becomes
-- idle: which a transaction with an older snapshot meets as a serialization failure.
--
-- Locks are taken in this order, and what comes before is never waited for:
-- Deliverers: claims in the order of their keys, the batches of these, tails (never
-- waited for). Enqueuers: tails in order, then the claims of idle keys, which no
-- deliverer holds. A person: the claim and then the batch; for a batch that is
-- over, which deliverers do not touch, the batch and then as an enqueuer.

CREATE TABLE {{schema}}.queue (
    name      text COLLATE "C" PRIMARY KEY CHECK (name ~ '^[a-z][a-z0-9._-]{0,31}$'),
    made      timestamptz NOT NULL,
    prune_key text COLLATE "C" NOT NULL DEFAULT '' -- the key at which pruning goes on
) WITH (fillfactor = 50);

CREATE TABLE {{schema}}.tail (
    queue text COLLATE "C" NOT NULL,
    key   text COLLATE "C" NOT NULL,
    last  bigint NOT NULL DEFAULT 0,       -- a number that was given, and all before it
    moved bigint NOT NULL DEFAULT 0,       -- how many numbers were given to batches that had one
    term  bigint NOT NULL DEFAULT 0,       -- of a claim that was pruned
    PRIMARY KEY (queue, key)
) WITH (fillfactor = 70);

CREATE FUNCTION {{schema}}.new_id() RETURNS text LANGUAGE sql VOLATILE
AS $$ SELECT md5(concat_ws(' ', random(), random(), random(), clock_timestamp(), pg_backend_pid())) $$;

CREATE SEQUENCE {{schema}}.batch_n;
CREATE TABLE {{schema}}.batch (
    seq          bigint,                                                -- its place in its key, from the commit on
    n            bigint NOT NULL DEFAULT nextval('{{schema}}.batch_n'), -- its place in its transaction
    tx           bigint NOT NULL DEFAULT txid_current(),
    term         bigint NOT NULL DEFAULT 0,
    enqueued     timestamptz NOT NULL DEFAULT {{schema}}.clock(),
    begun        timestamptz,
    ended        timestamptz,
    hold         timestamptz,                       -- in a step under this term: until when others keep off
    attempts     integer NOT NULL DEFAULT 0,
    code         integer NOT NULL DEFAULT 0,
    over         boolean NOT NULL DEFAULT false,    -- needs nothing more, and the next one may go
    aside        boolean,                           -- invalid, failed or cancelled
    queue        text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 200 AND key !~ '^\s|[[:cntrl:]]|\s$'),
    id           text COLLATE "C" NOT NULL DEFAULT {{schema}}.new_id() CHECK (octet_length(id) BETWEEN 1 AND 200 AND id !~ '^\s|[[:cntrl:]]|\s$'),
    state        text NOT NULL DEFAULT 'queued',
    content_type text NOT NULL DEFAULT 'application/octet-stream'
                 CHECK (octet_length(content_type) BETWEEN 1 AND 200 AND content_type !~ '^\s|[[:cntrl:]]|\s$'),
    detail       text NOT NULL DEFAULT '',
    link         text NOT NULL DEFAULT '',
    payload      bytea NOT NULL DEFAULT '' CHECK (octet_length(payload) <= 16777216),
    trail        jsonb,                             -- null: all that happened is in the columns
    PRIMARY KEY (id, queue)
) WITH (fillfactor = 34); -- room for what becomes of each batch on its own page, even if nothing can be cleared away
CREATE UNIQUE INDEX batch_order ON {{schema}}.batch (queue, key, seq) WHERE seq IS NOT NULL;
CREATE INDEX batch_unnumbered ON {{schema}}.batch (tx, n) WHERE seq IS NULL;
CREATE INDEX batch_aside ON {{schema}}.batch (queue, key, seq) WHERE aside;

CREATE FUNCTION {{schema}}.queue_of(p_space text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN starts_with(p_space, 'queue/') THEN substr(p_space, 7) END $$;

-- What is first in the order of a key and not over.
CREATE TYPE {{schema}}.head AS (tid tid, seq bigint, state text, term bigint, hold timestamptz, size integer);
CREATE FUNCTION {{schema}}.head(p_queue text, p_key text, p_after bigint) RETURNS SETOF {{schema}}.head LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT b.ctid, b.seq, b.state, b.term, b.hold, octet_length(b.payload) FROM {{schema}}.batch b
     WHERE b.queue = p_queue AND b.key = p_key AND b.seq > p_after AND NOT b.over ORDER BY b.seq LIMIT 1
$$;

CREATE OR REPLACE FUNCTION {{schema}}.step_end(c {{schema}}.claim) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE
        WHEN c.in_step THEN c.hold_until
        WHEN starts_with(c.space, 'queue/') AND c.session <> '' THEN (
            SELECT h.hold FROM {{schema}}.head({{schema}}.queue_of(c.space), c.key, c.done) h WHERE h.term = c.term)
        END;
END $$;

CREATE FUNCTION {{schema}}.refuse_queue(p_queue text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM {{schema}}.queue q WHERE q.name = p_queue) THEN
        RAISE EXCEPTION 'understudy: there is no queue %', coalesce(quote_literal(p_queue), 'null') USING
            ERRCODE = 'US002', HINT = 'Queues are made first, by whoever delivers them or by "understudy batch make".';
    END IF;
END $$;

-- Numbers the batches at these places. Nothing but the places is to be gone by.
CREATE FUNCTION {{schema}}.give_numbers(p_tids tid[], p_last bigint) RETURNS void LANGUAGE plpgsql
SET enable_indexscan = off SET enable_indexonlyscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_material = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    UPDATE {{schema}}.batch b SET seq = p_last + x.i FROM unnest(p_tids) WITH ORDINALITY x (tid, i) WHERE b.ctid = x.tid;
END $$;

-- Puts batches at the end of their key, in this order, and tells whether the key
-- became ready by that. Whoever enqueues to a key waits here for the commit of the one
-- before: so the order of the numbers is that of the commits.
CREATE FUNCTION {{schema}}.append(p_queue text, p_key text, p_tids tid[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    k {{schema}}.tail;
    c {{schema}}.claim;
    v_last bigint;
BEGIN
    SELECT * INTO k FROM {{schema}}.tail WHERE queue = p_queue AND key = p_key FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM {{schema}}.refuse_queue(p_queue);
        INSERT INTO {{schema}}.tail (queue, key) VALUES (p_queue, p_key) ON CONFLICT DO NOTHING;
        SELECT * INTO k FROM {{schema}}.tail WHERE queue = p_queue AND key = p_key FOR NO KEY UPDATE;
    END IF;
    SELECT b.seq INTO v_last FROM {{schema}}.batch b
     WHERE b.queue = p_queue AND b.key = p_key AND b.seq > k.last ORDER BY b.seq DESC LIMIT 1;
    v_last := coalesce(v_last, k.last);
    IF current_setting('transaction_isolation') = 'read committed' AND cardinality(p_tids) = 1 THEN
        UPDATE {{schema}}.batch b SET seq = v_last + 1 WHERE b.ctid = p_tids[1];
    ELSIF current_setting('transaction_isolation') = 'read committed' THEN
        PERFORM {{schema}}.give_numbers(p_tids, v_last);
    ELSE
        BEGIN
            PERFORM {{schema}}.give_numbers(p_tids, v_last);
        EXCEPTION WHEN unique_violation THEN
            RAISE EXCEPTION 'understudy: another transaction has enqueued to this key since this one began' USING
                ERRCODE = 'serialization_failure', HINT = 'Try the transaction again.';
        END;
    END IF;
    -- Nobody marks the key as idle while its tail is locked.
    SELECT * INTO c FROM {{schema}}.claim WHERE space = 'queue/' || p_queue AND key = p_key;
    IF c.session <> '' OR c.ready_at IS NOT NULL OR c.blocked IS NOT NULL THEN
        RETURN false;
    END IF;
    INSERT INTO {{schema}}.claim AS x (space, key, term, since, ready_at, done)
    VALUES ('queue/' || p_queue, p_key, k.term, {{schema}}.clock(), {{schema}}.clock(), k.last)
    ON CONFLICT (space, key) DO UPDATE SET ready_at = coalesce(x.ready_at, excluded.ready_at);
    RETURN true;
END $$;

-- Runs at the commit of the user's transaction, once for each of its batches; the
-- first time it numbers all of them. It has the rights of the schema's owner.
CREATE FUNCTION {{schema}}.number_batches() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    k record;
    v_queue text;
    v_ready bigint := 0;
    v_seq bigint;
BEGIN
    SELECT b.seq INTO v_seq FROM {{schema}}.batch b WHERE b.id = NEW.id AND b.queue = NEW.queue;
    IF NOT FOUND OR v_seq IS NOT NULL THEN
        RETURN NULL;
    END IF;
    FOR k IN
        SELECT b.queue, b.key, array_agg(b.ctid ORDER BY b.n) AS tids FROM {{schema}}.batch b
         WHERE b.tx = txid_current() AND b.n >= NEW.n AND b.seq IS NULL
         GROUP BY b.queue, b.key ORDER BY b.queue, b.key
    LOOP
        IF v_ready > 0 AND v_queue <> k.queue THEN
            PERFORM {{schema}}.wake('queue/' || v_queue, v_ready);
            v_ready := 0;
        END IF;
        v_queue := k.queue;
        v_ready := v_ready + {{schema}}.append(k.queue, k.key, k.tids)::int;
    END LOOP;
    IF v_ready > 0 THEN
        PERFORM {{schema}}.wake('queue/' || v_queue, v_ready);
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER number_batches AFTER INSERT ON {{schema}}.batch
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {{schema}}.number_batches();

-- Enqueues batches in the caller's transaction and tells which are new. Those with
-- an id that the queue has already are left out.
CREATE FUNCTION {{schema}}.enqueue_all(queues text[], keys text[], ids text[], content_types text[], payloads bytea[])
RETURNS boolean[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_queue text;
    v_added boolean[] := array_fill(false, ARRAY[coalesce(cardinality(ids), 0)]);
    v_row record;
BEGIN
    FOR v_queue IN SELECT DISTINCT q FROM unnest(queues) q LOOP
        PERFORM {{schema}}.refuse_queue(v_queue);
    END LOOP;
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
CREATE FUNCTION {{schema}}.enqueue(queue text, key text, payload bytea, id text DEFAULT NULL,
    content_type text DEFAULT 'application/octet-stream') RETURNS text LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_id text;
BEGIN
    PERFORM {{schema}}.refuse_queue(enqueue.queue);
    INSERT INTO {{schema}}.batch (queue, key, id, content_type, payload)
    VALUES (enqueue.queue, enqueue.key, coalesce(enqueue.id, {{schema}}.new_id()), enqueue.content_type, enqueue.payload)
    ON CONFLICT (id, queue) DO NOTHING RETURNING batch.id INTO v_id;
    RETURN v_id;
END $$;

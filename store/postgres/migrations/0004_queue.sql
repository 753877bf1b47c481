-- Queues of batches, in order per key.

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

-- The default of a column, and so here, and the same for all versions.
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

-- Only the name: entry/enqueue.sql has the body.
CREATE FUNCTION {{schema}}.number_batches() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'understudy: the entry points are missing: run "understudy store migrate"'; END $$;
CREATE CONSTRAINT TRIGGER number_batches AFTER INSERT ON {{schema}}.batch
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {{schema}}.number_batches();

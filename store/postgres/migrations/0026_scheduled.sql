-- readers: 11
-- Messages that are not to be sent before a time. They are in a table of their own until then, which no program knows that
-- does not wait for that time, and whose size is nobody's cost who delivers.
CREATE TABLE {{schema}}.scheduled (
    n            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- its place among them
    enqueued     timestamptz NOT NULL DEFAULT {{schema}}.clock(),
    not_before   timestamptz NOT NULL,
    queue        text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    content_type text NOT NULL,
    headers      jsonb,
    payload      bytea NOT NULL,
    UNIQUE (id, queue)
);
CREATE INDEX scheduled_due ON {{schema}}.scheduled (queue, not_before, n);
CREATE INDEX scheduled_key ON {{schema}}.scheduled (queue, key, n);

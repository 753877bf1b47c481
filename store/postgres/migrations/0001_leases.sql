-- Sessions, leases, waiting lists and the history. {{schema}} is the schema's quoted
-- name. Migrations hold tables; what reads and writes them is in functions/.

CREATE TABLE {{schema}}.session (
    id          text COLLATE "C" PRIMARY KEY CHECK (id <> ''),
    instance_id text NOT NULL,
    name        text NOT NULL,
    address     text NOT NULL,
    interval_ns bigint NOT NULL,
    timeout_ns  bigint NOT NULL,
    started     timestamptz NOT NULL,
    seq         bigint NOT NULL DEFAULT 1,
    deadline    timestamptz NOT NULL,
    ended       boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50); -- room on each page, and no index on what a renewal changes

CREATE TABLE {{schema}}.lease (
    space          text COLLATE "C" NOT NULL,
    key            text COLLATE "C" NOT NULL,
    term           bigint NOT NULL,
    session        text COLLATE "C" NOT NULL, -- '' when the lease is free
    holder_id      text NOT NULL,
    holder_name    text NOT NULL,
    holder_address text NOT NULL,
    since          timestamptz NOT NULL,
    held_ns        bigint NOT NULL DEFAULT 0, -- not used any more
    successor      text NOT NULL DEFAULT '',
    reserved       timestamptz,               -- until when it is kept for the successor
    asked          boolean NOT NULL DEFAULT false,
    asked_for      text NOT NULL DEFAULT '',
    PRIMARY KEY (space, key)
) WITH (fillfactor = 80);
CREATE INDEX lease_session ON {{schema}}.lease (session) WHERE session <> '';

CREATE SEQUENCE {{schema}}.waiter_place;
CREATE TABLE {{schema}}.waiter (
    space   text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    place   bigint NOT NULL DEFAULT nextval('{{schema}}.waiter_place'),
    PRIMARY KEY (space, key, session)
);
CREATE INDEX waiter_session ON {{schema}}.waiter (session);

CREATE SEQUENCE {{schema}}.event_id;
CREATE TABLE {{schema}}.event (
    id          bigint PRIMARY KEY DEFAULT nextval('{{schema}}.event_id'),
    at          timestamptz NOT NULL,
    part        text NOT NULL,
    subject     text NOT NULL,
    from_label  text NOT NULL,
    to_label    text NOT NULL,
    term        bigint NOT NULL,
    reason      text NOT NULL,
    duration_ns bigint NOT NULL
);
CREATE INDEX event_subject ON {{schema}}.event (part, subject, id);

-- The one clock, for all versions that run side by side: column defaults call it, so that it
-- is here and never changes. Tests put another in its place.
CREATE FUNCTION {{schema}}.clock() RETURNS timestamptz LANGUAGE sql VOLATILE
AS $$ SELECT clock_timestamp() $$;

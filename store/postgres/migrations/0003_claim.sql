-- Claims on keys of work.

CREATE TABLE {{schema}}.claim (
    space       text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    term        bigint NOT NULL DEFAULT 0,
    session     text COLLATE "C" NOT NULL DEFAULT '', -- '' when the key is free
    since       timestamptz NOT NULL,
    ready_at    timestamptz,                          -- null: idle
    offered_at  timestamptz,                          -- when it was offered to be ready, since the step began
    in_step     boolean NOT NULL DEFAULT false,       -- the keys of queues have theirs in the batch
    hold_until  timestamptz,
    interrupted boolean NOT NULL DEFAULT false,
    done        bigint NOT NULL DEFAULT 0,            -- of a queue: no batch up to here is left to do
    blocked     text,                                 -- of a queue: why the key waits for a person
    PRIMARY KEY (space, key)
) WITH (fillfactor = 70);
CREATE INDEX claim_free ON {{schema}}.claim (space, ready_at) WHERE session = '' AND ready_at IS NOT NULL;
CREATE INDEX claim_held ON {{schema}}.claim (session, space, key) WHERE session <> '';
CREATE INDEX claim_blocked ON {{schema}}.claim (space, key) WHERE blocked IS NOT NULL;

-- Who works on the keys of a space. A session that took keys without having joined
-- is there too, so that its keys are found when it lapses.
CREATE TABLE {{schema}}.member (
    space   text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    joined  boolean NOT NULL,
    asleep  boolean NOT NULL DEFAULT false,
    PRIMARY KEY (space, session)
) WITH (fillfactor = 50);

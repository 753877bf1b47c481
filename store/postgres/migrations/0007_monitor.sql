-- The monitor: events, sources, their beats and alarms. A time is a bigint of microseconds on
-- the monitor's own clock, where it is no timestamptz.

CREATE TABLE {{schema}}.monitor_setting (
    one        boolean PRIMARY KEY DEFAULT true CHECK (one),
    generation bigint NOT NULL DEFAULT 1,
    shift      bigint NOT NULL DEFAULT 0,
    configured timestamptz,
    origin     text NOT NULL DEFAULT '',
    error      text NOT NULL DEFAULT ''
);
INSERT INTO {{schema}}.monitor_setting DEFAULT VALUES;

CREATE TABLE {{schema}}.monitor_event (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text COLLATE "C" NOT NULL UNIQUE,
    config       jsonb NOT NULL,
    rev          bigint NOT NULL DEFAULT 1,
    base         bigint NOT NULL DEFAULT 0,
    removed      boolean NOT NULL DEFAULT false,
    paused       boolean NOT NULL,               -- by the configuration or a person, whoever was the last
    schedule     text NOT NULL,
    max_run      bigint NOT NULL,
    fixed        boolean NOT NULL,
    sender_clock boolean NOT NULL,
    every        bigint NOT NULL,                -- the interval, 0 with a schedule
    patience     bigint NOT NULL,                -- the limit
    flaps        integer NOT NULL,
    flap_window  bigint NOT NULL,
    numbered     integer NOT NULL DEFAULT 0,     -- the number that its latest source got
    respread     text COLLATE "C"                -- the source up to which all were looked at again
) WITH (fillfactor = 70);
CREATE INDEX monitor_event_todo ON {{schema}}.monitor_event (id) WHERE removed OR respread IS NOT NULL;

CREATE TABLE {{schema}}.monitor_path (
    id      smallint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name    text COLLATE "C" NOT NULL UNIQUE,
    proof   bigint NOT NULL,
    trust   bigint NOT NULL,
    gap     bigint NOT NULL,
    blind   bigint NOT NULL DEFAULT 0,
    resumed bigint NOT NULL DEFAULT 0,
    anew    boolean NOT NULL DEFAULT false -- it was blind up to its next proof, whatever its gap
) WITH (fillfactor = 10);

CREATE TABLE {{schema}}.monitor_source (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event    bigint NOT NULL,
    name     text COLLATE "C" NOT NULL,
    number   integer NOT NULL,           -- within its event, from 1
    rev      bigint NOT NULL DEFAULT 1,
    known    bigint NOT NULL,            -- since when
    base     bigint NOT NULL,
    until    bigint NOT NULL DEFAULT 0,
    ended    bigint NOT NULL DEFAULT 0,
    onset    bigint NOT NULL DEFAULT 0,
    well     bigint NOT NULL DEFAULT 0,
    declared boolean NOT NULL,
    asked    boolean NOT NULL DEFAULT false,
    state    text COLLATE "C" NOT NULL DEFAULT 'up',
    alarm    text COLLATE "C" NOT NULL DEFAULT '',
    reason   text NOT NULL DEFAULT '',
    note     text NOT NULL DEFAULT '',
    labels   jsonb NOT NULL DEFAULT '{}',
    UNIQUE (event, name)
) WITH (fillfactor = 90);
CREATE INDEX monitor_source_state ON {{schema}}.monitor_source (event, state, name);
CREATE INDEX monitor_source_old ON {{schema}}.monitor_source (ended) WHERE state = 'retired' AND NOT declared;
CREATE UNIQUE INDEX monitor_source_number ON {{schema}}.monitor_source (event, number);
CREATE INDEX monitor_source_label ON {{schema}}.monitor_source USING gin (labels jsonb_path_ops);

CREATE TABLE {{schema}}.monitor_beat (
    id      bigint PRIMARY KEY,
    at      bigint NOT NULL DEFAULT 0,
    blind   bigint NOT NULL DEFAULT 0,   -- of its path by then
    sent    bigint NOT NULL DEFAULT 0,   -- by the sender's clock, microseconds since 1970
    seq     bigint NOT NULL DEFAULT 0,
    beats   bigint NOT NULL DEFAULT 0,   -- with "run" added it is the version of the row: each change of it gives another sum
    recent  bigint NOT NULL DEFAULT 0,   -- a bit for each slot of time in which it beat, the lowest is that of "at"
    width   bigint NOT NULL,             -- of a slot
    run     bigint NOT NULL DEFAULT 0,
    code    integer NOT NULL DEFAULT 0,
    path    smallint NOT NULL DEFAULT 0,
    did     smallint NOT NULL DEFAULT 0, -- what its latest beat did: 1 made it due, 2 was its first
    watched boolean NOT NULL DEFAULT false,
    failing boolean NOT NULL DEFAULT false,
    -- Room that the first beat gives up. A page is cleaned whenever it has less room than
    -- the fillfactor left it: so it has, from then on, enough for many beats before that.
    room    text NOT NULL DEFAULT repeat('.', 90)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.5);

CREATE TABLE {{schema}}.monitor_due (
    id      bigint PRIMARY KEY,
    due     bigint NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX monitor_due_order ON {{schema}}.monitor_due ((id & 63), due);

CREATE TABLE {{schema}}.monitor_alarm (
    id           text COLLATE "C" PRIMARY KEY,
    event        text COLLATE "C" NOT NULL,
    source       text COLLATE "C" NOT NULL,              -- '' for that of a group
    grp          text COLLATE "C" NOT NULL DEFAULT '',
    group_alarm  text COLLATE "C" NOT NULL DEFAULT '',   -- with which it was reported
    held         boolean NOT NULL DEFAULT false,
    members      integer NOT NULL DEFAULT 0,
    labels       jsonb NOT NULL DEFAULT '{}',
    reason       text NOT NULL,
    started      timestamptz NOT NULL,
    raised       timestamptz NOT NULL,
    ended        timestamptz,
    finish       text NOT NULL DEFAULT '',
    acknowledged text NOT NULL DEFAULT ''
) WITH (fillfactor = 80);
CREATE INDEX monitor_alarm_raised ON {{schema}}.monitor_alarm (raised, id);
CREATE INDEX monitor_alarm_standing ON {{schema}}.monitor_alarm (raised, id) WHERE ended IS NULL;
CREATE INDEX monitor_alarm_event ON {{schema}}.monitor_alarm (event, raised, id);
CREATE INDEX monitor_alarm_source ON {{schema}}.monitor_alarm (event, source, raised, id);
CREATE INDEX monitor_alarm_ended ON {{schema}}.monitor_alarm (ended) WHERE ended IS NOT NULL;
CREATE INDEX monitor_alarm_held ON {{schema}}.monitor_alarm (grp, id) WHERE held;
CREATE INDEX monitor_alarm_group ON {{schema}}.monitor_alarm (group_alarm) WHERE group_alarm <> '' AND ended IS NULL;
CREATE UNIQUE INDEX monitor_alarm_of_group ON {{schema}}.monitor_alarm (grp) WHERE source = '' AND ended IS NULL;

-- How many sources are in which state, and alarms stand (state 'alarm'), as changes to
-- be summed up: so that nobody waits for anybody to count. Sweeping makes few of many.
CREATE TABLE {{schema}}.monitor_count (
    event bigint NOT NULL,
    state text NOT NULL,
    seen  boolean NOT NULL,
    n     bigint NOT NULL
);
CREATE INDEX monitor_count_event ON {{schema}}.monitor_count (event);

CREATE TABLE {{schema}}.monitor_sink (
    name text COLLATE "C" PRIMARY KEY,
    made timestamptz NOT NULL
);

CREATE TABLE {{schema}}.monitor_member (
    session     text COLLATE "C" PRIMARY KEY,
    instance_id text NOT NULL,
    name        text NOT NULL,
    address     text NOT NULL,
    process     integer NOT NULL,
    host        text NOT NULL,
    service     text NOT NULL,
    active      boolean NOT NULL,
    partitions  integer NOT NULL,
    sinks       text[] NOT NULL,
    seen        timestamptz NOT NULL
) WITH (fillfactor = 50);

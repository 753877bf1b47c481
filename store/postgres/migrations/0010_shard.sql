-- Shards: what is decided about each (a row), what its nodes' agents report (records), the
-- failover locks, and the commands that wait for nodes. JSON is kept as text: only
-- the program looks into it.

CREATE TABLE {{schema}}.shard_row (
    name       text COLLATE "C" PRIMARY KEY,
    rev        bigint NOT NULL,
    primary_id text COLLATE "C" NOT NULL,
    doc        text NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE {{schema}}.shard_node (
    id         text COLLATE "C" PRIMARY KEY,
    shard      text COLLATE "C" NOT NULL,
    address    text COLLATE "C" NOT NULL,
    instance   bytea NOT NULL,
    timeout_us bigint NOT NULL,
    updated    timestamptz NOT NULL,
    -- What the record says but for its numbers that move all the time, as the program sums
    -- it up, and whether the last report said the same.
    gist       bytea NOT NULL,
    again      boolean NOT NULL DEFAULT false,
    doc        text NOT NULL
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000); -- room on each page, and no index on what a heartbeat changes
CREATE INDEX shard_node_shard ON {{schema}}.shard_node (shard, id);
CREATE INDEX shard_node_address ON {{schema}}.shard_node (address);

CREATE TABLE {{schema}}.shard_lock (
    primary_id text COLLATE "C" PRIMARY KEY,
    shard      text COLLATE "C" NOT NULL,
    value      text COLLATE "C" NOT NULL,
    expires    timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE {{schema}}.shard_command (
    node    text COLLATE "C" NOT NULL,
    n       bigint GENERATED ALWAYS AS IDENTITY,
    id      text COLLATE "C" NOT NULL,
    expires timestamptz NOT NULL,
    doc     text NOT NULL,
    PRIMARY KEY (node, n),
    UNIQUE (node, id)
);

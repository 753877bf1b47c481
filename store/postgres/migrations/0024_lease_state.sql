-- readers: 11
-- What the holders of a lease keep beside it for those that follow, and the term under which it was written. A table of
-- its own, so that renewals, guards and takeovers never meet its writes.
CREATE TABLE {{schema}}.lease_state (
    space text COLLATE "C" NOT NULL,
    key   text COLLATE "C" NOT NULL,
    term  bigint NOT NULL,
    data  bytea NOT NULL CHECK (octet_length(data) <= 65536),
    PRIMARY KEY (space, key)
);

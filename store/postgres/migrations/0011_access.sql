-- Tokens of the API. A token's secret is not here: sum is its SHA-256. There are a thousand at most, and all
-- are read at once; whoever changes one takes the lock "access" first, and so nobody changes another meanwhile.

CREATE TABLE {{schema}}.token (
    id         text COLLATE "C" PRIMARY KEY,
    name       text NOT NULL,
    scopes     text[] NOT NULL,
    sum        bytea NOT NULL CHECK (length(sum) = 32),
    created    timestamptz NOT NULL,
    made_by    text NOT NULL,
    expires    timestamptz,
    revoked    timestamptz,
    revoked_by text NOT NULL
);

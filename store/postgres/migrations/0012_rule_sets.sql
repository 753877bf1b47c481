-- readers: 11
-- Functions belong to the program now, and each version creates its own set of them. What is
-- here tells which sets there are and who uses them. Programs of version 11 go on with the
-- functions of their migrations, which are the set whose hash is ''.

-- Steps whose number is not in "migration": programs that do not know them may go on. The
-- greatest number in "migration" is what a program must know.
CREATE TABLE {{schema}}.schema_step (
    version bigint PRIMARY KEY,
    applied timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE {{schema}}.rule_set (
    hash      text COLLATE "C" PRIMARY KEY,
    installed timestamptz NOT NULL DEFAULT clock_timestamp(),
    used      timestamptz NOT NULL DEFAULT clock_timestamp(), -- when a program with it last opened the store, or a session of one was alive
    entry     boolean NOT NULL DEFAULT false                  -- the functions that users call by name, triggers and views use this set
);

-- The rule set of the program that started the session.
ALTER TABLE {{schema}}.session ADD COLUMN rules text COLLATE "C" NOT NULL DEFAULT '';

INSERT INTO {{schema}}.rule_set (hash) SELECT '' WHERE EXISTS (
    SELECT FROM pg_proc WHERE pronamespace = '{{schema}}'::regnamespace AND proname = 'shard_unlock');

-- Where version 11 has not been, its functions are not, and a program of version 11 cannot work.
INSERT INTO {{schema}}.migration (version) SELECT 12 WHERE NOT EXISTS (SELECT FROM {{schema}}.rule_set);

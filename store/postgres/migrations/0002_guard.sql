-- The guard of a user's own transaction.

-- Its rows are deleted in the transaction that inserts them: they only carry a
-- term to the trigger.
CREATE UNLOGGED TABLE {{schema}}.guard (
    space text COLLATE "C" NOT NULL,
    key   text COLLATE "C" NOT NULL,
    term  bigint NOT NULL
);

-- Only the name: entry/guard.sql has the body.
CREATE FUNCTION {{schema}}.check_term() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'understudy: the entry points are missing: run "understudy store migrate"'; END $$;
CREATE CONSTRAINT TRIGGER check_term AFTER INSERT ON {{schema}}.guard
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {{schema}}.check_term();

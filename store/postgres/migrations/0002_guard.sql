-- The guard of a user's own transaction, and the table of heartbeats as people
-- know it from elsewhere.

-- Its rows are deleted in the transaction that inserts them: they only carry a
-- term to the trigger.
CREATE UNLOGGED TABLE {{schema}}.guard (
    space text COLLATE "C" NOT NULL,
    key   text COLLATE "C" NOT NULL,
    term  bigint NOT NULL
);

CREATE FUNCTION {{schema}}.refuse_term(p_space text, p_key text, p_term bigint, l {{schema}}.lease) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'understudy: term % of %/% is not current', p_term, p_space, p_key USING
        ERRCODE = 'US001',
        DETAIL = CASE
            WHEN l.term IS NULL THEN 'The lease was never held.'
            WHEN l.session = '' THEN format('The lease is free; its last term was %s.', l.term)
            ELSE format('The lease is held under term %s.', l.term) END,
        HINT = 'Another instance may do this work now: stop, and do not try again under this term.';
END $$;

-- Runs at the commit of the user's transaction. The lock keeps the lease as it is
-- until that commit is done; nothing else is locked, and nothing before. It has
-- the rights of the schema's owner, so that the user needs none on the tables.
CREATE FUNCTION {{schema}}.check_term() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    l {{schema}}.lease;
BEGIN
    SELECT * INTO l FROM {{schema}}.lease WHERE space = NEW.space AND key = NEW.key FOR SHARE;
    IF NOT FOUND OR l.term <> NEW.term OR l.session = '' THEN
        PERFORM {{schema}}.refuse_term(NEW.space, NEW.key, NEW.term, l);
    END IF;
    RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER check_term AFTER INSERT ON {{schema}}.guard
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {{schema}}.check_term();

-- Lets the present transaction commit only if the lease is held under this term
-- at that moment.
CREATE FUNCTION {{schema}}.require_term(p_space text, p_key text, p_term bigint) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    l {{schema}}.lease;
    v_row tid;
BEGIN
    -- What is over already need not wait for the commit to hear it.
    SELECT * INTO l FROM {{schema}}.lease WHERE space = p_space AND key = p_key;
    IF NOT FOUND OR p_term IS NULL OR l.term <> p_term OR l.session = '' THEN
        PERFORM {{schema}}.refuse_term(p_space, p_key, p_term, l);
    END IF;
    -- The trigger still runs for a row that is gone by then.
    INSERT INTO {{schema}}.guard VALUES (p_space, p_key, p_term) RETURNING ctid INTO v_row;
    DELETE FROM {{schema}}.guard WHERE ctid = v_row;
END $$;

-- One row for each role: who is primary and when its session was last renewed.
-- A vacant role has an empty uuid and uname, and the time at which its last
-- primary was last seen.
CREATE VIEW {{schema}}.heartbeats AS
SELECT CASE WHEN live THEN holder_id ELSE '' END AS uuid,
       key AS utype,
       CASE WHEN live THEN holder_name ELSE '' END AS uname,
       seen AS "timestamp"
  FROM (
    SELECT l.key, l.holder_id, l.holder_name,
           coalesce(s.deadline > {{schema}}.clock() AND NOT s.ended, false) AS live,
           coalesce(s.deadline - s.timeout_ns / 1000 * interval '1 microsecond', l.since) AS seen
      FROM {{schema}}.lease l LEFT JOIN {{schema}}.session s ON s.id = l.session
     WHERE l.space = 'role'
  ) role;

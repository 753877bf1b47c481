-- Entry points of the guard. Applications call require_term by this name, and the trigger check_term
-- names its function, so that there is one of each beside the sets of all versions. It belongs to
-- the version that was installed last, and serves the other one too: signature, SQLSTATE and the
-- columns of "guard" must stay compatible with the version before.

-- Runs at the commit of the user's transaction. The lock keeps the lease as it is
-- until that commit is done; nothing else is locked, and nothing before: FOR SHARE blocks a
-- takeover, which writes the row, but no other guarded transaction. It has the rights of the
-- schema's owner, so that the user needs none on the tables.
CREATE OR REPLACE FUNCTION {{schema}}.check_term() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    l {{schema}}.lease;
BEGIN
    SELECT * INTO l FROM {{schema}}.lease WHERE space = NEW.space AND key = NEW.key FOR SHARE;
    IF NOT FOUND OR l.term <> NEW.term OR l.session = '' THEN
        PERFORM {{rules}}.refuse_term(NEW.space, NEW.key, NEW.term, l);
    END IF;
    RETURN NULL;
END $$;

-- Lets the present transaction commit only if the lease is held under this term
-- at that moment.
CREATE OR REPLACE FUNCTION {{schema}}.require_term(p_space text, p_key text, p_term bigint) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    l {{schema}}.lease;
    v_row tid;
BEGIN
    -- A term that has ended already is refused at once, and not at the commit.
    SELECT * INTO l FROM {{schema}}.lease WHERE space = p_space AND key = p_key;
    IF NOT FOUND OR p_term IS NULL OR l.term <> p_term OR l.session = '' THEN
        PERFORM {{rules}}.refuse_term(p_space, p_key, p_term, l);
    END IF;
    -- Insert, then delete: the deferred trigger still runs for a row that is gone by then, and the
    -- table stays empty.
    INSERT INTO {{schema}}.guard VALUES (p_space, p_key, p_term) RETURNING ctid INTO v_row;
    DELETE FROM {{schema}}.guard WHERE ctid = v_row;
END $$;

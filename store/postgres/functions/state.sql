-- Writes the state of a lease that is held under this term, and reports whether it is. The lock keeps the lease as it is until
-- this commits: a takeover, which writes the row, comes after it, and so finds what was written.
CREATE FUNCTION {{rules}}.write_state(p_space text, p_key text, p_term bigint, p_data bytea, p_lock_timeout_ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    PERFORM FROM {{schema}}.lease WHERE space = p_space AND key = p_key AND term = p_term AND session <> '' FOR SHARE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO {{schema}}.lease_state AS s (space, key, term, data) VALUES (p_space, p_key, p_term, p_data)
    ON CONFLICT (space, key) DO UPDATE SET term = excluded.term, data = excluded.data;
    RETURN true;
END $$;

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

-- 122 random bits. Before version 13 a server has no such function without an extension; its random() is
-- seeded for each connection.
CREATE FUNCTION {{rules}}.random_id() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    v text;
BEGIN
    IF current_setting('server_version_num')::integer >= 130000 THEN
        EXECUTE 'SELECT pg_catalog.gen_random_uuid()::text' INTO v;
    ELSE
        v := md5(random()::text || clock_timestamp()::text || pg_backend_pid() || random()::text);
    END IF;
    RETURN upper(replace(v, '-', ''));
END $$;

-- The entry points of leases lock rows until the end of the caller's transaction, and others cannot take over meanwhile: the server
-- ends the connection of one that leaves it open for five seconds.
CREATE FUNCTION {{rules}}.bound_transaction() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT setting::bigint NOT BETWEEN 1 AND 5000 FROM pg_catalog.pg_settings WHERE name = 'idle_in_transaction_session_timeout') THEN
        PERFORM set_config('idle_in_transaction_session_timeout', '5000', true);
    END IF;
END $$;

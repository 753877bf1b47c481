-- Entry points of leases, for programs in any language that have no more than their driver. There is one of each
-- beside the sets of all versions; it belongs to the version that was installed last, and serves those that were
-- written for the version before: signatures, columns of results and words stay. So does what "attempt" holds.

-- Tries once to become primary of a role. term is null while another holds it: sleep wait_ms and call again
-- with the attempt that was returned, until it is not. Each call keeps the session of the caller alive.
--
-- A takeover goes by the caller's own clock, as in the program (lease/takeoverpolicy.go): the caller sleeps what it
-- is told, and attempt adds that up for as long as the holder's session has not moved. A whole T of that is due
-- since it was first seen so. A step of the server's clock thus makes no second holder.
CREATE OR REPLACE FUNCTION {{schema}}.acquire(role text, name text, INOUT attempt text DEFAULT NULL, timeout interval DEFAULT '5 seconds',
    address text DEFAULT '', OUT term bigint, OUT state bytea, OUT session text, OUT wait_ms integer) LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    a jsonb := coalesce(nullif(attempt, ''), '{}');
    every integer := extract(epoch FROM timeout) * 200; -- ms
    l {{rules}}.shown_lease;
    v_verdict text;
    v_term bigint;
    seen text;
    due bigint;
BEGIN
    PERFORM {{rules}}.bound_transaction(least(5000, every * 5));
    IF role IS NULL OR octet_length(role) NOT BETWEEN 1 AND 190 OR role ~ '[#[:cntrl:]]' OR btrim(role) <> role THEN
        RAISE EXCEPTION 'understudy: % is not a valid role', coalesce(quote_literal(role), 'null') USING ERRCODE = '22023',
            HINT = 'Use 1 to 190 bytes of printable text without # and without blanks at its ends.';
    ELSIF name IS NULL OR octet_length(name) NOT BETWEEN 1 AND 190 OR name ~ '[[:cntrl:]]' OR btrim(name) <> name
        OR octet_length(address) > 190 OR address ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'understudy: the name or address is not valid' USING ERRCODE = '22023',
            HINT = 'A name is 1 to 190 bytes of printable text without blanks at its ends, unique among your instances.';
    ELSIF timeout IS NULL OR timeout NOT BETWEEN interval '50 ms' AND interval '24 hours' THEN
        RAISE EXCEPTION 'understudy: a timeout of %', timeout USING ERRCODE = '22023', HINT = 'Use 50 milliseconds to 24 hours.';
    ELSIF current_setting('transaction_isolation') <> 'read committed' THEN
        -- One snapshot for all of it would be from before the wait for a state that is being written.
        RAISE EXCEPTION 'understudy: acquire needs the isolation level READ COMMITTED, not %', upper(current_setting('transaction_isolation')) USING ERRCODE = '25000',
            HINT = 'Call it in autocommit mode, with default_transaction_isolation as it is by default.';
    END IF;

    session := a->>'session';
    IF session IS NULL OR (SELECT r.seq FROM {{rules}}.renew_session(session, 5000) r) IS NULL THEN
        session := {{rules}}.random_id();
        PERFORM {{rules}}.start_session(session, {{rules}}.random_id(), name, address, every * 1000000::bigint, every * 5000000::bigint, 5000);
    END IF;
    SELECT * INTO l FROM {{rules}}.show_lease('role', role, '');
    seen := md5(l.term || ' ' || l.session || ' ' || l.seq || ' ' || l.successor);
    due := CASE WHEN a->>'seen' = seen THEN (a->>'due')::bigint - (a->>'wait')::bigint
                WHEN l.session = '' THEN every * 5
                ELSE greatest(l.timeout_nanos / 1000000, every * 5) END;
    IF l.session = '' OR l.session = session OR due <= 0 THEN
        SELECT x.verdict, (x.lease).term INTO v_verdict, v_term
          FROM {{rules}}.acquire('role', role, session, l.term, l.session, l.seq, due <= 0, 1, 5000) x;
    END IF;
    IF v_verdict = 'taken' THEN
        term := v_term;
        state := (SELECT s.data FROM {{schema}}.lease_state s WHERE s.space = 'role' AND s.key = role);
        attempt := NULL;
        wait_ms := 0;
        RETURN;
    END IF;
    INSERT INTO {{schema}}.waiter (space, key, session) VALUES ('role', role, session) ON CONFLICT DO NOTHING;
    wait_ms := greatest(10, least(due, every));
    attempt := jsonb_build_object('session', session, 'seen', seen, 'due', due, 'wait', wait_ms)::text;
    session := NULL;
END $$;

-- Keeps a session alive: 'ok'; 'resign' when the holder was asked to release its role; 'lost' when the session has ended.
CREATE OR REPLACE FUNCTION {{schema}}.renew(session text) RETURNS text LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    PERFORM {{rules}}.bound_transaction(least(5000, (SELECT s.timeout_ns / 1000000 FROM {{schema}}.session s WHERE s.id = session)));
    IF (SELECT r.seq FROM {{rules}}.renew_session(session, 5000) r) IS NULL THEN
        RETURN 'lost';
    END IF;
    RETURN CASE WHEN EXISTS (SELECT FROM {{schema}}.lease l WHERE l.session = renew.session AND l.session <> '' AND l.asked) THEN 'resign' ELSE 'ok' END;
END $$;

-- Ends a session, which releases its role: the next standby starts at once.
CREATE OR REPLACE FUNCTION {{schema}}.release(session text) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {{rules}}.bound_transaction(least(5000, (SELECT s.timeout_ns / 1000000 FROM {{schema}}.session s WHERE s.id = session)));
    PERFORM {{rules}}.end_session(session, 'released', 1000, 5000);
END $$;

-- What the holders of a role keep for those that follow, up to 64 KiB; null if nothing was written.
CREATE OR REPLACE FUNCTION {{schema}}.state(role text) RETURNS bytea LANGUAGE sql STABLE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT s.data FROM {{schema}}.lease_state s WHERE s.space = 'role' AND s.key = $1 $$;

-- Replaces it. A term that is not current is SQLSTATE US001.
CREATE OR REPLACE FUNCTION {{schema}}.state(role text, term bigint, data bytea) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    l {{schema}}.lease;
BEGIN
    PERFORM {{rules}}.bound_transaction(least(5000, (SELECT s.timeout_ns / 1000000 FROM {{schema}}.lease x JOIN {{schema}}.session s ON s.id = x.session
        WHERE x.space = 'role' AND x.key = role)));
    IF data IS NULL OR octet_length(data) > 65536 THEN
        RAISE EXCEPTION 'understudy: a state of % bytes', coalesce(octet_length(data)::text, 'null') USING ERRCODE = '22023', HINT = 'Up to 65536 are possible.';
    END IF;
    IF NOT {{rules}}.write_state('role', role, term, data, 5000) THEN
        SELECT x.* INTO l FROM {{schema}}.lease x WHERE x.space = 'role' AND x.key = role;
        PERFORM {{rules}}.refuse_term('role', role, term, l);
    END IF;
END $$;

-- Who may call enqueue need not be one who may hold roles, or end a session.
REVOKE ALL ON FUNCTION {{schema}}.acquire(text, text, text, interval, text), {{schema}}.renew(text), {{schema}}.release(text),
    {{schema}}.state(text), {{schema}}.state(text, bigint, bytea) FROM PUBLIC;

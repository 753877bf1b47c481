-- What the functions of all files use. {{schema}} is the schema's quoted name, {{channel}} the same name as a string, {{rules}}
-- the prefix of this set of functions, and {{hash}} its hash. Which function is which method's: the package's documentation.
--
-- Every function keeps these rules. The monitor's have others for time and order (monitor.sql): they decide by a compare-and-set.
--   * Time is {{schema}}.clock(), which is clock_timestamp() and never now(), read after the locks
--     are taken (renew_session says why it may read it before). now() is the start of the
--     transaction: before every lock that it waited for, so that a session that was renewed
--     meanwhile would look lapsed, or a lapsed one alive.
--   * Lock order, against deadlocks: sessions before leases, two sessions in the order of their
--     ids, many leases in the order of their keys.
--   * What ends a session locks its row FOR UPDATE. A renewal takes the weaker lock of an ordinary
--     update. What needs a session to stay alive takes FOR KEY SHARE, which blocks only its end.
--   * What goes by what the caller saw is a compare-and-set: the row is locked, compared with that, and only then
--     written. (Renewals, the end of a session and the request for a release go by a row as it is.)
-- A row is found by its key, and then has to be the session's: "p_session <> ''" and not "session <> ''" there, or a plan that was
-- made while the table was small may go through all rows of the session, by the index that has this condition.
-- Two functions do not lock before they decide: a request for a lease that is held, which a plain read can refuse (acquire, its first pass),
-- and a renewal that is far from its deadline (renew_session).

-- Settings for this statement alone: those that count while it runs. (statement_timeout would count from the next one.) It
-- waits for locks no longer than its caller does: who has given up must not be served later. And it goes by the indexes: the plans of
-- functions are kept, also when a table of a few rows has grown to many. It returns text, which nobody reads: the server puts a
-- function in SQL in line only if that returns something, and otherwise needs 0.1 ms more.
CREATE FUNCTION {{rules}}.configure_statement(p_lock_timeout_ms bigint) RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT set_config('lock_timeout', greatest(p_lock_timeout_ms, 1)::text, true) || set_config('enable_seqscan', 'off', true)
$$;

-- The settings of configure_statement, for functions that work on lists of keys. Their plans are
-- kept, and were perhaps made when the tables were empty; so they leave no choice. Rows
-- are looked up one by one, in a LATERAL subquery that locks or ends in OFFSET 0, and
-- are then changed by their ctid, with scan_by_ctid_only switched on for that statement.
CREATE FUNCTION {{rules}}.configure_key_statement(p_lock_timeout_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'understudy: this needs the isolation level READ COMMITTED' USING ERRCODE = 'US003';
    END IF;
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms),
            set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
            set_config('enable_material', 'off', true), set_config('enable_bitmapscan', 'off', true),
            set_config('enable_sort', 'off', true), set_config('jit', 'off', true),
            set_config('plan_cache_mode', 'force_generic_plan', true);
END $$;

CREATE FUNCTION {{rules}}.scan_by_ctid_only(p_on boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('enable_indexscan', CASE WHEN p_on THEN 'off' ELSE 'on' END, true),
            set_config('enable_indexonlyscan', CASE WHEN p_on THEN 'off' ELSE 'on' END, true);
END $$;

CREATE FUNCTION {{rules}}.notify_change(p_space text, p_key text, p_term bigint, p_free boolean, p_successor text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_change text := json_build_object('space', p_space, 'key', p_key, 'term', p_term, 'free', p_free, 'successor', p_successor)::text;
BEGIN
    -- The lease of a job changes hands at each run, and is of interest only to who waits for it (a term of 0 is no lease's: it is a
    -- claim that wakes). A commit that notifies waits for all others that do, and wakes every process of the server that listens.
    IF p_space IS NULL OR p_space = 'job' AND p_term > 0 AND NOT EXISTS (SELECT FROM {{schema}}.waiter WHERE space = p_space AND key = p_key) THEN
        RETURN;
    END IF;
    -- What does not fit says "anything may have changed".
    PERFORM pg_notify({{channel}}, CASE WHEN octet_length(v_change) < 7900 THEN v_change ELSE '' END);
END $$;

CREATE FUNCTION {{rules}}.label(name text, id text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT name || '/' || left(id, 8) $$;

-- Cuts a text for the history.
CREATE FUNCTION {{rules}}.shorten_reason(p_text text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    v_text text := left(regexp_replace(p_text, '[[:cntrl:]]', ' ', 'g'), 200);
BEGIN
    WHILE octet_length(v_text) > 200 LOOP
        v_text := left(v_text, -1);
    END LOOP;
    RETURN v_text;
END $$;

CREATE FUNCTION {{rules}}.nanoseconds(i interval) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT (extract(epoch FROM i) * 1000000)::bigint * 1000 $$;

CREATE FUNCTION {{rules}}.microseconds(n bigint) RETURNS interval LANGUAGE sql IMMUTABLE
AS $$ SELECT n * interval '1 microsecond' $$;

CREATE FUNCTION {{rules}}.milliseconds(t timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT floor(extract(epoch FROM t) * 1000)::bigint $$;

-- 122 random bits.
CREATE FUNCTION {{rules}}.random_id() RETURNS text LANGUAGE sql VOLATILE
AS $$ SELECT upper(replace(pg_catalog.gen_random_uuid()::text, '-', '')) $$;

-- A transaction of more than one statement (of jobs, tokens, atReadCommitted, or a caller of the entry points of leases) keeps its locks while its
-- client is at work, and others cannot take over meanwhile. If the client stops there, or is cut off, the server ends its connection
-- after so long, and with it the transaction.
CREATE FUNCTION {{rules}}.bound_transaction(p_most_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_most_ms bigint := greatest(p_most_ms, 1);
    v_set interval := current_setting('idle_in_transaction_session_timeout')::interval; -- pg_settings would take 2 ms to say so
BEGIN
    IF v_set = '0' OR v_set > v_most_ms * interval '1 millisecond' THEN
        PERFORM set_config('idle_in_transaction_session_timeout', v_most_ms::text, true);
    END IF;
END $$;

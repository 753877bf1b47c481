-- Sessions, leases, waiting lists and the history: one function for each operation that changes
-- them. {{schema}} is the schema's quoted name, {{channel}} the same name as a string, {{rules}}
-- the prefix of this set of functions, and {{hash}} its hash.
--
-- Every function keeps these rules:
--   * Time is {{schema}}.clock(), which is clock_timestamp() and never now(), read after the locks
--     are taken. now() is the start of the transaction: before every lock that it waited for, so
--     that a session that was renewed meanwhile would look lapsed, or a lapsed one alive.
--   * Lock order, against deadlocks: sessions before leases, two sessions in the order of their
--     ids, many leases in the order of their keys.
--   * What ends a session locks its row FOR UPDATE. A renewal takes the weaker lock of an ordinary
--     update. What needs a session to stay alive takes FOR KEY SHARE, which blocks only its end.
--   * Every change is a compare-and-set: the row is locked, compared with what the caller saw, and
--     only then written.
--   * A refusal that a plain read can give takes no lock.

CREATE FUNCTION {{rules}}.nanoseconds(i interval) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT (extract(epoch FROM i) * 1000000)::bigint * 1000 $$;

CREATE FUNCTION {{rules}}.label(name text, id text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT name || '/' || left(id, 8) $$;

-- Settings for this statement alone. It waits for locks no longer than its caller
-- does: who has given up must not be served later. And it goes by the indexes: the
-- plans of functions are kept, also when a table of a few rows has grown to many.
CREATE FUNCTION {{rules}}.configure_statement(p_lock_timeout_ms bigint) RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT set_config('lock_timeout', greatest(p_lock_timeout_ms, 1)::text, true) || set_config('enable_seqscan', 'off', true)
$$;

CREATE FUNCTION {{rules}}.notify_change(p_space text, p_key text, p_term bigint, p_free boolean, p_successor text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_change text := json_build_object('space', p_space, 'key', p_key, 'term', p_term, 'free', p_free, 'successor', p_successor)::text;
BEGIN
    -- The lease of a job changes hands at each run. Only who waits for it wants to know, and that it is free: a commit that notifies
    -- waits for all others that do, and wakes every process of the server that listens.
    IF p_space IS NULL OR p_space = 'job' AND p_term > 0 AND NOT EXISTS (SELECT FROM {{schema}}.waiter WHERE space = p_space AND key = p_key) THEN
        RETURN;
    END IF;
    -- What does not fit says "anything may have changed".
    PERFORM pg_notify({{channel}}, CASE WHEN octet_length(v_change) < 7900 THEN v_change ELSE '' END);
END $$;

-- A lease as it is read, with its holder's session; one row, also for a lease that was never held. In time
-- differences "at" is the clock.
CREATE TYPE {{rules}}.shown_lease AS (
    space text, key text, term bigint, session text, holder_id text, holder_name text, holder_address text,
    interval_nanos bigint, timeout_nanos bigint, seq bigint, deadline timestamptz, ended boolean,
    since timestamptz, successor text, reserved timestamptz, asked boolean, asked_for text,
    places integer, waiting bigint, at timestamptz
);
-- How many live sessions wait for a lease; to one that waits, how many before it, 4 at most: few of them matter, and a
-- crowd that counts itself at each renewal is slow. In PL/pgSQL, which keeps its plans: a function in SQL that cannot be
-- inlined is planned at each call.
CREATE FUNCTION {{rules}}.count_waiting(p_space text, p_key text, p_session text, t timestamptz) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_place bigint;
BEGIN
    SELECT place INTO v_place FROM {{schema}}.waiter WHERE space = p_space AND key = p_key AND session = p_session;
    IF v_place IS NULL THEN
        RETURN (SELECT count(*) FROM {{schema}}.waiter w JOIN {{schema}}.session n ON n.id = w.session
                 WHERE w.space = p_space AND w.key = p_key AND NOT n.ended AND n.deadline > t);
    END IF;
    -- Written so that it goes along the index waiter_line, and looks up few sessions, also where the planner knows nothing of the tables.
    RETURN (SELECT count(*) FROM (
                SELECT FROM {{schema}}.waiter w
                 WHERE w.space || '/' || w.key = p_space || '/' || p_key AND w.space = p_space AND w.key = p_key AND w.place < v_place
                   AND (SELECT NOT n.ended AND n.deadline > t FROM {{schema}}.session n WHERE n.id = w.session)
                 ORDER BY w.place DESC LIMIT 4) before);
END $$;
CREATE FUNCTION {{rules}}.show_lease(p_space text, p_key text, p_session text) RETURNS SETOF {{rules}}.shown_lease LANGUAGE sql STABLE AS $$
    SELECT p_space, p_key, coalesce(l.term, 0), coalesce(l.session, ''),
           coalesce(l.holder_id, ''), coalesce(l.holder_name, ''), coalesce(l.holder_address, ''),
           coalesce(s.interval_ns, 0), coalesce(s.timeout_ns, 0), coalesce(s.seq, 0),
           coalesce(s.deadline, c.at), coalesce(s.ended, false),
           coalesce(l.since, c.at), coalesce(l.successor, ''), coalesce(l.reserved, c.at),
           coalesce(l.asked, false), coalesce(l.asked_for, ''), CASE WHEN l.session <> '' THEN l.places ELSE 0 END,
           {{rules}}.count_waiting(p_space, p_key, p_session, c.at),
           c.at
      FROM (SELECT {{schema}}.clock() AS at OFFSET 0) c
      LEFT JOIN {{schema}}.lease l ON l.space = p_space AND l.key = p_key
      LEFT JOIN {{schema}}.session s ON s.id = l.session
$$;

-- Puts a session on a lease's waiting list, if it lives, and shows it the lease.
CREATE FUNCTION {{rules}}.join_waiting_list(p_space text, p_key text, p_session text, p_lock_timeout_ms bigint,
    OUT lives boolean, OUT lease {{rules}}.shown_lease) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    lives := EXISTS (SELECT FROM {{schema}}.session WHERE id = p_session AND NOT ended AND deadline > {{schema}}.clock());
    -- Who waits already only reads: it does so often.
    IF lives AND NOT EXISTS (SELECT FROM {{schema}}.waiter w WHERE w.space = p_space AND w.key = p_key AND w.session = p_session) THEN
        INSERT INTO {{schema}}.waiter (space, key, session) VALUES (p_space, p_key, p_session) ON CONFLICT DO NOTHING;
    END IF;
    SELECT x.* INTO lease FROM {{rules}}.show_lease(p_space, p_key, p_session) x;
END $$;

-- Starts a session and returns its count of changes, 0, or null if the id was used before.
CREATE FUNCTION {{rules}}.start_session(p_id text, p_instance text, p_name text, p_address text,
    p_interval_ns bigint, p_timeout_ns bigint, p_lock_timeout_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    v_old text[];
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    t := {{schema}}.clock();
    INSERT INTO {{schema}}.session (id, instance_id, name, address, interval_ns, timeout_ns, started, deadline, rules)
    VALUES (p_id, p_instance, p_name, p_address, p_interval_ns, p_timeout_ns, t, t + p_timeout_ns / 1000 * interval '1 microsecond', {{hash}})
    ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    -- Delete sessions that ended a day ago and hold nothing. Ids are random: each start looks at 50
    -- neighbours on each side, more than can have been added, so that no index is needed on a
    -- column that renewals change.
    SELECT array_agg(id) INTO v_old FROM (
        SELECT s.id, s.deadline FROM (
            (SELECT id FROM {{schema}}.session WHERE id > p_id ORDER BY id LIMIT 50)
            UNION ALL
            (SELECT id FROM {{schema}}.session WHERE id < p_id ORDER BY id DESC LIMIT 50)
        ) near JOIN {{schema}}.session s USING (id)
        WHERE s.deadline < t - interval '24 hours'
          AND NOT EXISTS (SELECT FROM {{schema}}.lease l WHERE l.session = s.id AND l.session <> '')
        FOR UPDATE OF s SKIP LOCKED
    ) gone;
    IF v_old IS NOT NULL THEN
        DELETE FROM {{schema}}.waiter WHERE session = ANY (v_old);
        DELETE FROM {{schema}}.session WHERE id = ANY (v_old);
    END IF;
    RETURN 0;
END $$;

-- Renews a session that lives. Once refused, always refused: it is ended then. changes is of the leases that it holds and
-- that were asked for, waits are those that it waits for: what others change hands costs it nothing.
CREATE FUNCTION {{rules}}.renew_session(p_id text, p_lock_timeout_ms bigint, OUT seq bigint, OUT changes bigint, OUT waits json) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    n record;
    t timestamptz := {{schema}}.clock();
    v_lock_timeout interval := p_lock_timeout_ms * interval '1 millisecond';
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    -- One that has more left than this waits for locks is renewed without being locked first, which would cost as much again. The
    -- clock was read before, so it must not have waited longer: then it is tried again, and locked.
    UPDATE {{schema}}.session s SET seq = s.seq + 1, deadline = t + s.timeout_ns / 1000 * interval '1 microsecond'
     WHERE s.id = p_id AND s.deadline > t + v_lock_timeout AND NOT s.ended RETURNING s.seq INTO seq;
    IF seq IS NOT NULL AND {{schema}}.clock() > t + v_lock_timeout THEN
        RAISE serialization_failure USING MESSAGE = 'the renewal waited too long';
    END IF;
    IF seq IS NULL THEN
        SELECT s.deadline, s.timeout_ns, s.ended INTO n FROM {{schema}}.session s WHERE s.id = p_id FOR NO KEY UPDATE;
        t := {{schema}}.clock();
        -- Compared with the clock after the lock: this may have waited past the deadline.
        IF n.deadline > t AND NOT n.ended THEN
            UPDATE {{schema}}.session s SET seq = s.seq + 1, deadline = t + n.timeout_ns / 1000 * interval '1 microsecond'
             WHERE s.id = p_id RETURNING s.seq INTO seq;
        ELSIF NOT n.ended THEN
            PERFORM FROM {{schema}}.session s WHERE s.id = p_id FOR UPDATE;
            UPDATE {{schema}}.session s SET ended = true WHERE s.id = p_id;
        END IF;
    END IF;
    IF seq IS NULL THEN
        RETURN;
    END IF;
    changes := 0;
    -- A renewal waits for nobody: what cannot be read, because someone alters a table, the next one shows.
    BEGIN
        LOCK TABLE {{schema}}.lease, {{schema}}.waiter IN ACCESS SHARE MODE NOWAIT;
        SELECT coalesce(sum(l.term), 0) INTO changes FROM {{schema}}.lease l WHERE l.session = p_id AND l.asked;
        IF EXISTS (SELECT FROM {{schema}}.waiter w WHERE w.session = p_id) THEN -- most wait for nothing
            SELECT json_agg(x) INTO waits FROM {{schema}}.waiter w, LATERAL {{rules}}.show_lease(w.space, w.key, p_id) x WHERE w.session = p_id;
        END IF;
    EXCEPTION WHEN lock_not_available THEN
    END;
END $$;

-- Renews, of the sessions with these ids, those that live and that nobody has locked, and returns what renew_session would;
-- that one decides on the others. It waits for no row, so that one session does not hold up many.
CREATE FUNCTION {{rules}}.renew_sessions(p_ids text[], p_lock_timeout_ms bigint)
RETURNS TABLE (id text, seq bigint, changes bigint, waits json) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_ids text[];
    v_seqs bigint[];
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    SELECT array_agg(x.id) INTO v_ids FROM (
        SELECT s.id FROM {{schema}}.session s WHERE s.id = ANY (p_ids) FOR NO KEY UPDATE SKIP LOCKED
    ) x;
    t := {{schema}}.clock();
    WITH renewed AS (
        UPDATE {{schema}}.session s SET seq = s.seq + 1, deadline = t + s.timeout_ns / 1000 * interval '1 microsecond'
         WHERE s.id = ANY (v_ids) AND s.deadline > t AND NOT s.ended RETURNING s.id, s.seq
    )
    SELECT array_agg(r.id), array_agg(r.seq) INTO v_ids, v_seqs FROM renewed r;
    BEGIN -- as in renew_session
        LOCK TABLE {{schema}}.lease, {{schema}}.waiter IN ACCESS SHARE MODE NOWAIT;
        RETURN QUERY SELECT r.id, r.seq,
            (SELECT coalesce(sum(l.term), 0)::bigint FROM {{schema}}.lease l WHERE l.session = r.id AND l.asked),
            (SELECT json_agg(x) FROM {{schema}}.waiter w, LATERAL {{rules}}.show_lease(w.space, w.key, r.id) x WHERE w.session = r.id)
            FROM unnest(v_ids, v_seqs) r (id, seq);
        RETURN;
    EXCEPTION WHEN lock_not_available THEN
    END;
    RETURN QUERY SELECT r.id, r.seq, 0::bigint, NULL::json FROM unnest(v_ids, v_seqs) r (id, seq);
END $$;

-- Ends a session, which frees all that it holds, and releases at most p_most of
-- its leases; returns how many. It is called until it returns less: each call is
-- short, and none of the leases is anybody's meanwhile.
CREATE FUNCTION {{rules}}.end_session(p_id text, p_reason text, p_most bigint, p_lock_timeout_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    v_freed bigint;
    v_spaces text[];
    v_keys text[];
    v_terms bigint[];
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    PERFORM FROM {{schema}}.session WHERE id = p_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    t := {{schema}}.clock();
    UPDATE {{schema}}.session SET ended = true, deadline = least(t, deadline) WHERE id = p_id AND NOT ended;
    DELETE FROM {{schema}}.waiter WHERE session = p_id;
    WITH held AS (
        SELECT space, key FROM {{schema}}.lease WHERE session = p_id AND session <> ''
         ORDER BY space, key LIMIT p_most FOR NO KEY UPDATE
    ), freed AS (
        UPDATE {{schema}}.lease l
           SET session = '', since = t, held_ns = {{rules}}.nanoseconds(t - since), successor = '', reserved = NULL, asked = false, asked_for = ''
          FROM held WHERE l.space = held.space AND l.key = held.key
        RETURNING l.space, l.key, {{rules}}.label(holder_name, holder_id) AS holder, l.term, l.held_ns
    ), recorded AS (
        INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
        SELECT t, space, key, holder, '', term, p_reason, held_ns FROM freed ORDER BY space, key
        RETURNING part, subject, term
    )
    SELECT count(*), array_agg(part), array_agg(subject), array_agg(term) INTO v_freed, v_spaces, v_keys, v_terms FROM recorded;
    IF v_freed > 100 THEN -- one notification that says "anything may have changed"
        PERFORM pg_notify({{channel}}, '');
    ELSE
        PERFORM {{rules}}.notify_change(x.space, x.key, x.term, true, '') FROM unnest(v_spaces, v_keys, v_terms) x (space, key, term);
    END IF;
    RETURN v_freed;
END $$;

-- The rule of who may take a lease: why it can be had, or null. Here 'lapsed' is a reason: the holder's
-- session has lapsed. p_waited is the contender's own count: it has watched the same term, session and seq
-- for a whole T (lease/takeoverpolicy.go).
CREATE FUNCTION {{rules}}.acquisition_reason(l {{schema}}.lease, old {{schema}}.session, me {{schema}}.session,
    p_seen_term bigint, p_seen_session text, p_seen_seq bigint, p_waited boolean, t timestamptz) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    CASE
    WHEN coalesce(l.term, 0) <> p_seen_term OR coalesce(l.session, '') <> p_seen_session THEN
        RETURN NULL;
    WHEN coalesce(l.session, '') = '' THEN
        IF l.successor <> '' AND l.successor IN (me.name, me.instance_id) THEN
            RETURN 'successor';
        END IF;
        RETURN CASE WHEN coalesce(l.successor, '') = '' OR l.reserved <= t OR p_waited THEN 'vacant' END;
    WHEN coalesce(old.seq, 0) <> p_seen_seq THEN
        RETURN NULL;
    WHEN old.id IS NULL THEN
        RETURN CASE WHEN p_waited THEN 'lapsed' END;
    ELSE
        RETURN CASE WHEN old.ended OR old.deadline <= t OR p_waited THEN 'lapsed' END;
    END CASE;
END $$;

-- Takes a lease. The verdict is 'taken', 'held' or 'lapsed'. Here 'lapsed' is a verdict: the contender's own
-- session has lapsed, so that it may take nothing. The lease is the one
-- that the verdict was given on, never one read later.
CREATE FUNCTION {{rules}}.acquire(p_space text, p_key text, p_session text, p_seen_term bigint, p_seen_session text,
    p_seen_seq bigint, p_waited boolean, p_places integer, p_lock_timeout_ms bigint, OUT verdict text, OUT lease {{rules}}.shown_lease) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    l {{schema}}.lease;
    old {{schema}}.session;
    me {{schema}}.session;
    both_rows record;
    t timestamptz;
    v_reason text;
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    -- A connection gets here rarely, and each statement would be planned anew the first five times.
    PERFORM set_config('plan_cache_mode', 'force_generic_plan', true);
    -- The first pass takes no lock: most requests for a lease that was held end there. The
    -- second pass locks and decides.
    FOR pass IN CASE WHEN p_seen_session = '' THEN 2 ELSE 1 END .. 2 LOOP
        IF pass = 1 THEN
            SELECT x AS l, s AS s INTO both_rows FROM {{schema}}.lease x LEFT JOIN {{schema}}.session s ON s.id = x.session
             WHERE x.space = p_space AND x.key = p_key;
            l := both_rows.l;
            old := both_rows.s;
            SELECT s.* INTO me FROM {{schema}}.session s WHERE s.id = p_session;
        ELSE
            -- Two sessions are locked in the order of their ids: two contenders for each other's
            -- leases would otherwise wait for each other.
            IF p_session COLLATE "C" < p_seen_session COLLATE "C" THEN
                PERFORM FROM {{schema}}.session s WHERE s.id = p_session FOR KEY SHARE;
            END IF;
            IF p_seen_session <> '' THEN
                SELECT s.* INTO old FROM {{schema}}.session s WHERE s.id = p_seen_session FOR UPDATE;
            END IF;
            SELECT s.* INTO me FROM {{schema}}.session s WHERE s.id = p_session FOR KEY SHARE;
            SELECT x.* INTO l FROM {{schema}}.lease x WHERE x.space = p_space AND x.key = p_key FOR NO KEY UPDATE;
            IF l.session <> p_seen_session THEN
                SELECT s.* INTO old FROM {{schema}}.session s WHERE s.id = l.session;
            END IF;
        END IF;
        t := {{schema}}.clock();
        IF me.deadline <= t THEN -- unless it was renewed while this waited
            SELECT s.* INTO me FROM {{schema}}.session s WHERE s.id = p_session;
        END IF;
        IF p_space IS NULL THEN
            EXIT; -- a rehearsal
        ELSIF me.id IS NULL OR me.ended OR me.deadline <= t THEN
            verdict := 'lapsed';
        ELSIF l.session = p_session THEN
            verdict := 'taken';
        ELSE
            v_reason := {{rules}}.acquisition_reason(l, old, me, p_seen_term, p_seen_session, p_seen_seq, p_waited, t);
            verdict := CASE WHEN v_reason IS NULL THEN 'held' END;
        END IF;
        EXIT WHEN verdict IS NOT NULL;
    END LOOP;
    IF verdict IS NULL THEN
        l := {{rules}}.assign_lease(p_space, p_key, l, old, me, v_reason, p_places, t);
        old := me;
        verdict := CASE WHEN l.term IS NULL THEN 'held' ELSE 'taken' END;
    END IF;
    IF p_space IS NULL THEN
        RETURN;
    END IF;
    IF l.term IS NULL THEN
        SELECT s.* INTO lease FROM {{rules}}.show_lease(p_space, p_key, p_session) s;
    ELSE
        lease := ROW(p_space, p_key, l.term, l.session, l.holder_id, l.holder_name, l.holder_address,
            coalesce(old.interval_ns, 0), coalesce(old.timeout_ns, 0), coalesce(old.seq, 0), coalesce(old.deadline, t),
            coalesce(old.ended, false), l.since, l.successor, coalesce(l.reserved, t), l.asked, l.asked_for,
            CASE WHEN l.session <> '' THEN l.places ELSE 0 END,
            CASE WHEN verdict = 'taken' THEN 0 ELSE {{rules}}.count_waiting(p_space, p_key, p_session, t) END, t);
    END IF;
END $$;

-- The greatest term of a lease that was deleted: that of the lease without a name, which nobody can hold.
CREATE FUNCTION {{rules}}.forgotten_term() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce((SELECT term FROM {{schema}}.lease WHERE space = '' AND key = ''), 0)
$$;

-- The change that acquire has decided on, under its locks: the lease as it is then,
-- or nulls if another session was the first ever to take it.
CREATE FUNCTION {{rules}}.assign_lease(p_space text, p_key text, l {{schema}}.lease, old {{schema}}.session, me {{schema}}.session,
    p_reason text, p_places integer, t timestamptz) RETURNS {{schema}}.lease LANGUAGE plpgsql AS $$
DECLARE
    -- At least the clock in milliseconds: terms do not fall when a backup is restored.
    v_term bigint := greatest(coalesce(l.term, {{rules}}.forgotten_term()) + 1, floor(extract(epoch FROM t) * 1000)::bigint);
    v_vacant interval := t - coalesce(old.deadline, l.since, t);
    v_taken {{schema}}.lease;
BEGIN
    IF l.term IS NULL AND p_space IS NOT NULL THEN
        INSERT INTO {{schema}}.lease (space, key, term, session, holder_id, holder_name, holder_address, since, places)
        VALUES (p_space, p_key, v_term, me.id, me.instance_id, me.name, me.address, t, p_places)
        ON CONFLICT (space, key) DO NOTHING RETURNING * INTO v_taken;
        IF NOT FOUND THEN
            RETURN v_taken;
        END IF;
    ELSE
        UPDATE {{schema}}.lease
           SET term = v_term, session = me.id, holder_id = me.instance_id, holder_name = me.name, holder_address = me.address,
               since = t, successor = '', reserved = NULL, asked = false, asked_for = '', places = p_places
         WHERE space = p_space AND key = p_key RETURNING * INTO v_taken;
        IF old.id IS NOT NULL THEN
            UPDATE {{schema}}.session SET ended = true WHERE id = old.id AND NOT ended;
        END IF;
    END IF;
    DELETE FROM {{schema}}.waiter WHERE space = p_space AND key = p_key AND session = me.id;
    INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
    SELECT t, p_space, p_key,
           CASE WHEN p_reason = 'lapsed' THEN {{rules}}.label(l.holder_name, l.holder_id) ELSE '' END,
           {{rules}}.label(me.name, me.instance_id), v_term, p_reason, {{rules}}.nanoseconds(greatest(v_vacant, '0'))
     WHERE p_space IS NOT NULL;
    PERFORM {{rules}}.notify_change(p_space, p_key, v_term, false, '');
    RETURN v_taken;
END $$;

CREATE FUNCTION {{rules}}.release(p_space text, p_key text, p_session text, p_term bigint, p_successor text,
    p_reserve_ns bigint, p_reason text, p_lock_timeout_ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    l {{schema}}.lease;
    t timestamptz;
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    PERFORM set_config('plan_cache_mode', 'force_generic_plan', true); -- as in acquire
    SELECT * INTO l FROM {{schema}}.lease
     WHERE space = p_space AND key = p_key AND session = p_session AND session <> '' AND term = p_term FOR NO KEY UPDATE;
    IF NOT FOUND AND p_space IS NOT NULL THEN
        RETURN false;
    END IF;
    -- Not synced: nobody waits for that. A server that crashes now may forget the release, and then the lease is held
    -- until its session ends, as if the release had not arrived. The acquisition that follows syncs it, too.
    PERFORM set_config('synchronous_commit', 'off', true);
    t := {{schema}}.clock();
    UPDATE {{schema}}.lease
       SET session = '', since = t, held_ns = {{rules}}.nanoseconds(t - since), successor = p_successor, reserved = t + p_reserve_ns / 1000 * interval '1 microsecond',
           asked = false, asked_for = ''
     WHERE space = p_space AND key = p_key;
    INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
    SELECT t, p_space, p_key, {{rules}}.label(l.holder_name, l.holder_id), '', l.term, p_reason, {{rules}}.nanoseconds(t - l.since)
     WHERE p_space IS NOT NULL;
    PERFORM {{rules}}.notify_change(p_space, p_key, l.term, true, p_successor);
    RETURN true;
END $$;

-- Makes a connection ready for a hand-over. PL/pgSQL compiles a function, and plans its statements, when a connection first
-- comes to them: the first acquisition and release would take several times as long as later ones. A lease without a
-- space is in no row, and nothing is written for it. A renewal waits for it: so it gives up at a table that somebody
-- has locked, which compiling needs before any of these functions sets its own lock timeout.
CREATE FUNCTION {{rules}}.rehearse() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{rules}}.configure_statement(20);
    PERFORM {{rules}}.acquire(NULL, NULL, NULL, 0, '', 0, false, 0, 20);
    PERFORM {{rules}}.acquisition_reason(NULL, NULL, NULL, 0, '', 0, false, {{schema}}.clock());
    PERFORM {{rules}}.release(NULL, NULL, NULL, 0, '', 0, '', 20);
END $$;

CREATE FUNCTION {{rules}}.request_release(p_space text, p_key text, p_successor text, p_reason text, p_lock_timeout_ms bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    l {{schema}}.lease;
    t timestamptz;
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    SELECT * INTO l FROM {{schema}}.lease WHERE space = p_space AND key = p_key AND session <> '' FOR NO KEY UPDATE;
    t := {{schema}}.clock();
    PERFORM FROM {{schema}}.session WHERE id = l.session AND NOT ended AND deadline > t;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE {{schema}}.lease SET asked = true, asked_for = p_successor WHERE space = p_space AND key = p_key;
    INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
    VALUES (t, p_space, p_key, {{rules}}.label(l.holder_name, l.holder_id), {{rules}}.label(l.holder_name, l.holder_id),
            l.term, p_reason, {{rules}}.nanoseconds(t - l.since));
    PERFORM {{rules}}.notify_change(p_space, p_key, l.term, false, '');
    RETURN true;
END $$;

-- Deletes a lease. The verdict is 'forgotten', 'held' or 'never'.
CREATE FUNCTION {{rules}}.forget_lease(p_space text, p_key text, p_seen_term bigint, p_seen_session text, p_seen_seq bigint,
    p_reason text, p_lock_timeout_ms bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    l {{schema}}.lease;
    old {{schema}}.session;
    t timestamptz;
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    SELECT s.* INTO old FROM {{schema}}.session s WHERE s.id = p_seen_session AND p_seen_session <> '' FOR UPDATE;
    SELECT x.* INTO l FROM {{schema}}.lease x WHERE x.space = p_space AND x.key = p_key FOR UPDATE;
    t := {{schema}}.clock();
    IF l.term IS NULL THEN
        RETURN 'never';
    END IF;
    IF l.term <> p_seen_term OR l.session <> p_seen_session OR coalesce(old.seq, 0) <> p_seen_seq
        OR NOT old.ended AND old.deadline > t OR {{rules}}.count_waiting(p_space, p_key, '', t) > 0 THEN
        RETURN 'held';
    END IF;
    UPDATE {{schema}}.session SET ended = true WHERE id = old.id AND NOT ended;
    DELETE FROM {{schema}}.lease WHERE space = p_space AND key = p_key;
    DELETE FROM {{schema}}.lease_state WHERE space = p_space AND key = p_key;
    INSERT INTO {{schema}}.lease AS f (space, key, term, session, holder_id, holder_name, holder_address, since)
    VALUES ('', '', l.term, '', '', '', '', t)
    ON CONFLICT (space, key) DO UPDATE SET term = greatest(f.term, l.term);
    INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
    VALUES (t, p_space, p_key, '', '', l.term, p_reason, 0);
    PERFORM {{rules}}.notify_change(p_space, p_key, l.term, true, '');
    RETURN 'forgotten';
END $$;

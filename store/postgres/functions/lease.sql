-- Leases. The decision who takes over is in acquire and acquisition_reason.

-- A lease as it is read, with its holder's session; one row, also for a lease that was never held. In time
-- differences "at" is the clock.
CREATE TYPE {{rules}}.shown_lease AS (
    space text, key text, term bigint, session text, holder_id text, holder_name text, holder_address text,
    interval_nanos bigint, timeout_nanos bigint, seq bigint, deadline timestamptz, ended boolean,
    since timestamptz, successor text, reserved timestamptz, asked boolean, asked_for text,
    places integer, waiting bigint, at timestamptz
);

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

-- Takes a lease. The verdict is 'taken', 'held' or 'no_session': the contender's own has lapsed. The lease is the one
-- that the verdict was given on, never one read later; one that was never held is shown as it is now.
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
    -- A connection gets here rarely, and each statement would be planned again the first five times.
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
            verdict := 'no_session';
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
        old := me; -- the holder now, which is shown
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

-- The rule of who may take a lease: why it can be had, or null. p_waited is the contender's own count: it has watched the
-- same term, session and seq for a whole T (lease/takeoverpolicy.go). A deadline that has passed by this clock suffices here, and yet
-- a step of the clock gives nothing away: the contender does not ask before its own has counted what was left.
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

-- The greatest term of a lease that was deleted: that of the lease without a name, which nobody can hold.
CREATE FUNCTION {{rules}}.forgotten_term() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT coalesce((SELECT term FROM {{schema}}.lease WHERE space = '' AND key = ''), 0)
$$;

CREATE FUNCTION {{rules}}.release(p_space text, p_key text, p_session text, p_term bigint, p_successor text,
    p_reserve_ns bigint, p_reason text, p_lock_timeout_ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    l {{schema}}.lease;
    t timestamptz;
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    PERFORM set_config('plan_cache_mode', 'force_generic_plan', true); -- as in acquire
    SELECT * INTO l FROM {{schema}}.lease
     WHERE space = p_space AND key = p_key AND session = p_session AND p_session <> '' AND term = p_term FOR NO KEY UPDATE;
    IF NOT FOUND AND p_space IS NOT NULL THEN
        RETURN false;
    END IF;
    -- Not synced: nobody waits for that. A server that crashes now may forget the release, and then the lease is held
    -- until its session ends, as if the release had not arrived. The acquisition that follows syncs it, too.
    PERFORM set_config('synchronous_commit', 'off', true);
    t := {{schema}}.clock();
    UPDATE {{schema}}.lease
       SET session = '', since = t, successor = p_successor, reserved = t + p_reserve_ns / 1000 * interval '1 microsecond',
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

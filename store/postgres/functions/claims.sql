-- Claims on keys of work. The rules of common.sql hold here too, and:
--
--   * Claims, starts and results of a key meet in its row: each locks it first, and reads what it
--     decides on in a later statement, whose snapshot shows what the lock's last owner did. That
--     needs READ COMMITTED, which configure_key_statement requires.
--   * Many rows are locked in the order of their keys, or not waited for.
--   * Nothing that is indexed changes while a key is held and worked on.

-- Makes the session a member and returns how the keys are divided; null if the session has ended or
-- lapsed.
CREATE FUNCTION {{rules}}.join_space(p_space text, p_session text, p_asleep boolean, p_from timestamptz, p_lock_timeout_ms bigint,
    OUT members bigint, OUT mine bigint, OUT held bigint, OUT fewest bigint, OUT free boolean, OUT due boolean) LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    m {{schema}}.member;
    v_dead text[];
BEGIN
    PERFORM {{rules}}.configure_key_statement(p_lock_timeout_ms);
    t := {{schema}}.clock();
    IF NOT {{rules}}.is_alive(p_session, t) THEN
        RETURN;
    END IF;
    SELECT x.* INTO m FROM {{schema}}.member x WHERE x.space = p_space AND x.session = p_session;
    IF NOT FOUND THEN
        INSERT INTO {{schema}}.member (space, session, joined, asleep) VALUES (p_space, p_session, true, p_asleep) ON CONFLICT DO NOTHING;
    ELSIF NOT m.joined OR m.asleep <> p_asleep THEN
        -- One whose row is locked is just being woken, perhaps for long: that it sleeps
        -- is committed, and what wakes it will be.
        PERFORM FROM {{schema}}.member x WHERE x.space = p_space AND x.session = p_session FOR NO KEY UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE {{schema}}.member x SET joined = true, asleep = p_asleep WHERE x.space = p_space AND x.session = p_session;
        END IF;
    END IF;
    -- In two statements: the second sees what these had claimed by the time they were locked, and keep_member waits for the lock.
    v_dead := ARRAY(SELECT y.session FROM {{schema}}.member y
         WHERE y.space = p_space AND NOT {{rules}}.is_alive(y.session, t)
           AND NOT EXISTS (SELECT FROM {{schema}}.claim c WHERE c.session = y.session AND c.session <> '' AND c.space = p_space)
           FOR UPDATE SKIP LOCKED);
    IF v_dead <> '{}' THEN
        DELETE FROM {{schema}}.member x WHERE x.space = p_space AND x.session = ANY (v_dead)
           AND NOT EXISTS (SELECT FROM {{schema}}.claim c WHERE c.session = x.session AND c.session <> '' AND c.space = p_space);
    END IF;
    free := {{rules}}.has_free_key(p_space, p_from, t);
    due := EXISTS (SELECT FROM {{schema}}.scheduled s WHERE s.queue = {{rules}}.queue_of(p_space) AND s.not_before <= t);
    SELECT count(*), coalesce(sum(x.n) FILTER (WHERE x.session = p_session), 0), coalesce(sum(x.n), 0), coalesce(min(x.n), 0)
      INTO members, mine, held, fewest
      FROM (SELECT y.session, (SELECT count(*) FROM {{schema}}.claim c
                                WHERE c.session = y.session AND c.session <> '' AND c.space = p_space) AS n
              FROM {{schema}}.member y WHERE y.space = p_space AND y.joined AND {{rules}}.is_alive(y.session, t) OFFSET 0) x;
END $$;

-- When the step on a key ends at the latest; null if there is none. Only after that is a key of a lapsed session taken.
CREATE FUNCTION {{rules}}.step_ends_at(c {{schema}}.claim) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN CASE
        WHEN c.in_step THEN c.hold_until
        WHEN starts_with(c.space, 'queue/') AND c.session <> '' THEN (
            SELECT h.hold FROM {{rules}}.head({{rules}}.queue_of(c.space), c.key, c.done) h WHERE h.term = c.term)
        END;
END $$;

CREATE FUNCTION {{rules}}.queue_of(p_space text) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN starts_with(p_space, 'queue/') THEN substr(p_space, 7) END $$;

-- Claims up to p_most keys: first those of lapsed sessions, then those that have been free for p_linger, the longest ready first,
-- then up to p_fresh of the others, in the same order. (If p_fresh covers p_most, or p_linger is 0, all free keys are one group.)
-- A key that has just become free is so left for a moment to members that have fewer.
--
-- The last row has no key: it has the clock, or none if the session has ended or lapsed. Free keys that are ready since before
-- p_from are left out: what was claimed and done stays in the index for as long as any transaction might see it, and is not
-- searched each time.
CREATE FUNCTION {{rules}}.claim_keys(p_space text, p_session text, p_most bigint, p_fresh bigint, p_linger bigint, p_from timestamptz, p_lock_timeout_ms bigint)
RETURNS TABLE (key text, term bigint, interrupted boolean, at timestamptz) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    me {{schema}}.session;
    v_old text;
    v_taken bigint;
    v_from timestamptz := '-infinity';
    v_tids tid[];
    v_found bigint := 0;
BEGIN
    PERFORM {{rules}}.configure_key_statement(p_lock_timeout_ms);
    SELECT s.* INTO me FROM {{schema}}.session s WHERE s.id = p_session;
    t := {{schema}}.clock();
    IF me.id IS NULL OR me.ended OR me.deadline <= t THEN
        RETURN QUERY SELECT NULL::text, 0::bigint, false, NULL::timestamptz;
        RETURN;
    END IF;
    IF p_from <= t THEN
        v_from := p_from;
    END IF;
    FOREACH v_old IN ARRAY ARRAY(SELECT m.session FROM {{schema}}.member m
        WHERE m.space = p_space AND m.session <> p_session AND NOT {{rules}}.is_alive(m.session, t))
    LOOP
        EXIT WHEN v_found >= p_most;
        RETURN QUERY SELECT x.key, x.term, x.interrupted, NULL::timestamptz FROM {{rules}}.claim_lapsed_keys(p_space, v_old, me, p_most - v_found) x;
        GET DIAGNOSTICS v_taken = ROW_COUNT;
        v_found := v_found + v_taken;
    END LOOP;
    IF p_fresh >= p_most OR p_linger <= 0 THEN
        v_tids := ARRAY(SELECT c.ctid FROM {{schema}}.claim c
            WHERE c.space = p_space AND c.session = '' AND c.ready_at IS NOT NULL AND c.ready_at >= v_from AND c.ready_at <= t
            ORDER BY c.ready_at LIMIT p_most - v_found FOR NO KEY UPDATE SKIP LOCKED);
    ELSE
        v_tids := ARRAY(SELECT c.ctid FROM {{schema}}.claim c
            WHERE c.space = p_space AND c.session = '' AND c.ready_at IS NOT NULL AND c.ready_at >= v_from AND c.ready_at <= t - {{rules}}.microseconds(p_linger)
              AND c.since <= t - {{rules}}.microseconds(p_linger)
            ORDER BY c.ready_at LIMIT p_most - v_found FOR NO KEY UPDATE SKIP LOCKED);
        v_tids := v_tids || ARRAY(SELECT c.ctid FROM {{schema}}.claim c
            WHERE c.space = p_space AND c.session = '' AND c.ready_at IS NOT NULL AND c.ready_at >= v_from AND c.ready_at <= t
              AND greatest(c.ready_at, c.since) > t - {{rules}}.microseconds(p_linger)
            ORDER BY c.ready_at LIMIT least(p_fresh, p_most - v_found - cardinality(v_tids)) FOR NO KEY UPDATE SKIP LOCKED);
    END IF;
    PERFORM {{rules}}.scan_by_ctid_only(true);
    RETURN QUERY UPDATE {{schema}}.claim c
       SET term = greatest(c.term + 1, {{rules}}.milliseconds(t)), session = p_session, since = t
      FROM unnest(v_tids) x (tid) WHERE c.ctid = x.tid
    RETURNING c.key, c.term, c.interrupted, NULL::timestamptz;
    PERFORM {{rules}}.scan_by_ctid_only(false);
    IF v_tids <> '{}' OR v_found > 0 THEN
        PERFORM {{rules}}.keep_member(p_space, p_session);
    END IF;
    RETURN QUERY SELECT NULL::text, 0::bigint, false, t;
END $$;

-- Keeps the row by which the claims of a session are found when it lapses: until they are committed, join_space sees that it holds
-- nothing, and would delete the row once it has lapsed. Who waits here has locked claims; who has locked a member waits for none.
CREATE FUNCTION {{rules}}.keep_member(p_space text, p_session text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    LOOP -- once, unless the row is made or deleted at this moment
        PERFORM FROM {{schema}}.member m WHERE m.space = p_space AND m.session = p_session FOR KEY SHARE;
        EXIT WHEN FOUND;
        INSERT INTO {{schema}}.member (space, session, joined) VALUES (p_space, p_session, false) ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;
    END LOOP;
END $$;

-- Claims keys of one lapsed session.
CREATE FUNCTION {{rules}}.claim_lapsed_keys(p_space text, p_old text, me {{schema}}.session, p_most bigint)
RETURNS TABLE (key text, term bigint, interrupted boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    old {{schema}}.session;
    v_tids tid[];
    v_keys text[];
    v_terms bigint[];
    v_interrupted boolean[];
BEGIN
    -- A renewal under way is not waited for; after this lock, there is none.
    SELECT s.* INTO old FROM {{schema}}.session s WHERE s.id = p_old FOR SHARE SKIP LOCKED;
    t := {{schema}}.clock();
    IF old.id IS NULL AND EXISTS (SELECT FROM {{schema}}.session s WHERE s.id = p_old) OR NOT old.ended AND old.deadline > t THEN
        RETURN;
    END IF;
    v_tids := ARRAY(SELECT c.ctid FROM {{schema}}.claim c
        WHERE c.session = p_old AND c.session <> '' AND c.space = p_space AND c.ready_at <= t AND coalesce({{rules}}.step_ends_at(c) <= t, true)
        LIMIT p_most FOR NO KEY UPDATE SKIP LOCKED);
    -- Once more, under the locks: a step may have begun meanwhile.
    SELECT array_agg(x.tid), array_agg(x.step_ends_at IS NOT NULL) INTO v_tids, v_interrupted
      FROM unnest(v_tids) k (tid), LATERAL (SELECT c.ctid AS tid, {{rules}}.step_ends_at(c) AS step_ends_at FROM {{schema}}.claim c WHERE c.ctid = k.tid OFFSET 0) x
     WHERE coalesce(x.step_ends_at <= t, true);
    PERFORM {{rules}}.scan_by_ctid_only(true);
    WITH taken AS (
        UPDATE {{schema}}.claim c
           SET term = greatest(c.term + 1, {{rules}}.milliseconds(t)), session = me.id, since = t,
               interrupted = c.interrupted OR x.interrupted, in_step = false, hold_until = NULL
          FROM unnest(v_tids, v_interrupted) x (tid, interrupted) WHERE c.ctid = x.tid
        RETURNING c.key, c.term, c.interrupted
    )
    SELECT array_agg(x.key), array_agg(x.term), array_agg(x.interrupted) INTO v_keys, v_terms, v_interrupted FROM taken x;
    PERFORM {{rules}}.scan_by_ctid_only(false);
    IF v_keys IS NOT NULL THEN
        INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
        SELECT t, 'claim', p_space, coalesce({{rules}}.label(old.name, old.instance_id), ''), {{rules}}.label(me.name, me.instance_id),
               max(x.term), 'lapsed', {{rules}}.nanoseconds(greatest(t - coalesce(old.deadline, t), '0'))
          FROM unnest(v_terms) x (term);
        RETURN QUERY SELECT * FROM unnest(v_keys, v_terms, v_interrupted);
    END IF;
END $$;

-- Starts steps and returns the keys; null if the session does not live.
CREATE FUNCTION {{rules}}.start_steps(p_space text, p_session text, p_hold bigint, p_keys text[], p_terms bigint[], p_lock_timeout_ms bigint)
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    v_tids tid[];
    v_keys text[];
BEGIN
    PERFORM {{rules}}.configure_key_statement(p_lock_timeout_ms);
    SELECT array_agg(l.tid), coalesce(array_agg(k.key), '{}') INTO v_tids, v_keys FROM unnest(p_keys, p_terms) k (key, term), LATERAL (
        SELECT c.ctid AS tid FROM {{schema}}.claim c WHERE c.space = p_space AND c.key = k.key AND c.session = p_session AND p_session <> ''
           AND c.term = k.term AND NOT c.in_step FOR NO KEY UPDATE) l;
    t := {{schema}}.clock();
    IF NOT {{rules}}.is_alive(p_session, t) THEN
        RETURN NULL;
    END IF;
    PERFORM {{rules}}.scan_by_ctid_only(true);
    UPDATE {{schema}}.claim c SET in_step = true, hold_until = t + {{rules}}.microseconds(p_hold), offered_at = NULL FROM unnest(v_tids) x (tid) WHERE c.ctid = x.tid;
    PERFORM {{rules}}.scan_by_ctid_only(false);
    RETURN v_keys;
END $$;

-- Finishes steps and returns the keys for which that was accepted.
CREATE FUNCTION {{rules}}.finish_steps(p_space text, p_session text, p_keys text[], p_terms bigint[], p_in bigint[],
    p_idle boolean[], p_release boolean[], p_lock_timeout_ms bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    v_tids tid[];
    v_keys text[];
    v_given bigint;
BEGIN
    PERFORM {{rules}}.configure_key_statement(p_lock_timeout_ms);
    v_tids := ARRAY(SELECT l.tid FROM unnest(p_keys, p_terms) k (key, term) LEFT JOIN LATERAL (
        SELECT c.ctid AS tid FROM {{schema}}.claim c WHERE c.space = p_space AND c.key = k.key AND c.session = p_session AND p_session <> ''
           AND c.term = k.term FOR NO KEY UPDATE) l ON true);
    t := {{schema}}.clock();
    PERFORM {{rules}}.scan_by_ctid_only(true);
    WITH finished AS (
        -- A held key that is ready stays so as it was: then nothing that is indexed changes.
        UPDATE {{schema}}.claim c
           SET in_step = false, hold_until = NULL, interrupted = false, offered_at = NULL,
               ready_at = least(c.offered_at, CASE WHEN NOT x.idle AND (x.release OR x.in_us > 0 OR c.ready_at IS NULL OR c.ready_at > t) THEN t + {{rules}}.microseconds(x.in_us)
                               WHEN NOT x.idle THEN c.ready_at END),
               session = CASE WHEN x.release THEN '' ELSE c.session END, since = CASE WHEN x.release THEN t ELSE c.since END
          FROM unnest(v_tids, p_in, p_idle, p_release) x (tid, in_us, idle, release) WHERE c.ctid = x.tid
        RETURNING c.key, c.session = '' AND c.ready_at <= t AS given
    )
    SELECT count(*) FILTER (WHERE given), coalesce(array_agg(key), '{}') INTO v_given, v_keys FROM finished;
    PERFORM {{rules}}.scan_by_ctid_only(false);
    IF v_given > 0 THEN
        PERFORM {{rules}}.wake_members(p_space, v_given);
    END IF;
    RETURN v_keys;
END $$;

CREATE FUNCTION {{rules}}.release_keys(p_space text, p_session text, p_keys text[], p_terms bigint[], p_lock_timeout_ms bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    v_tids tid[];
    v_interrupted boolean[];
    v_given bigint;
BEGIN
    PERFORM {{rules}}.configure_key_statement(p_lock_timeout_ms);
    v_tids := ARRAY(SELECT l.tid FROM unnest(p_keys, p_terms) k (key, term), LATERAL (
        SELECT c.ctid AS tid FROM {{schema}}.claim c WHERE c.space = p_space AND c.key = k.key AND c.session = p_session AND p_session <> ''
           AND c.term = k.term FOR NO KEY UPDATE) l);
    t := {{schema}}.clock();
    v_interrupted := ARRAY(SELECT x.in_step FROM unnest(v_tids) k (tid), LATERAL (
        SELECT {{rules}}.step_ends_at(c) IS NOT NULL AS in_step FROM {{schema}}.claim c WHERE c.ctid = k.tid OFFSET 0) x);
    PERFORM {{rules}}.scan_by_ctid_only(true);
    WITH released AS (
        UPDATE {{schema}}.claim c
           SET session = '', since = t, interrupted = c.interrupted OR x.interrupted, in_step = false, hold_until = NULL,
               ready_at = CASE WHEN c.ready_at <= t THEN t ELSE c.ready_at END
          FROM unnest(v_tids, v_interrupted) x (tid, interrupted) WHERE c.ctid = x.tid
        RETURNING c.ready_at <= t AS given
    )
    SELECT count(*) FILTER (WHERE given) INTO v_given FROM released;
    PERFORM {{rules}}.scan_by_ctid_only(false);
    IF v_given > 0 THEN
        PERFORM {{rules}}.wake_members(p_space, v_given);
    END IF;
END $$;

CREATE FUNCTION {{rules}}.offer_keys(p_space text, p_keys text[], p_in bigint, p_lock_timeout_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    v_ready bigint;
BEGIN
    PERFORM {{rules}}.configure_key_statement(p_lock_timeout_ms);
    t := {{schema}}.clock();
    WITH offered AS (
        INSERT INTO {{schema}}.claim AS c (space, key, since, ready_at)
        SELECT p_space, k.key, t, t + {{rules}}.microseconds(p_in) FROM unnest(p_keys) k (key) ORDER BY k.key COLLATE "C"
        ON CONFLICT (space, key) DO UPDATE
           SET ready_at = CASE WHEN c.in_step THEN c.ready_at ELSE excluded.ready_at END,
               offered_at = CASE WHEN c.in_step THEN least(c.offered_at, excluded.ready_at) END
         WHERE c.in_step OR c.ready_at IS NULL AND c.blocked IS NULL OR c.ready_at > excluded.ready_at
        RETURNING c.session
    )
    SELECT count(*) FILTER (WHERE session = '') INTO v_ready FROM offered;
    IF v_ready > 0 AND p_in <= 0 THEN
        PERFORM {{rules}}.wake_members(p_space, v_ready);
    END IF;
END $$;

CREATE FUNCTION {{rules}}.withdraw_keys(p_space text, p_keys text[], p_lock_timeout_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_tids tid[];
BEGIN
    PERFORM {{rules}}.configure_key_statement(p_lock_timeout_ms);
    v_tids := ARRAY(SELECT l.tid FROM unnest(p_keys) k (key), LATERAL (
        SELECT c.ctid AS tid FROM {{schema}}.claim c WHERE c.space = p_space AND c.key = k.key FOR UPDATE) l);
    PERFORM {{rules}}.scan_by_ctid_only(true);
    DELETE FROM {{schema}}.claim c WHERE c.ctid = ANY (v_tids);
    PERFORM {{rules}}.scan_by_ctid_only(false);
END $$;

-- Reports whether a key is ready that may be claimed. As in claim_keys, free ones that
-- are ready since before p_from are not looked for.
CREATE FUNCTION {{rules}}.has_free_key(p_space text, p_from timestamptz, t timestamptz) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (SELECT FROM {{schema}}.claim c
                    WHERE c.space = p_space AND c.session = '' AND c.ready_at IS NOT NULL AND c.ready_at <= t
                      AND c.ready_at >= CASE WHEN p_from <= t THEN p_from ELSE '-infinity' END)
        OR EXISTS (SELECT FROM {{schema}}.member m, LATERAL (
                       SELECT FROM {{schema}}.claim c WHERE c.session = m.session AND c.session <> '' AND c.space = p_space
                          AND c.ready_at <= t AND coalesce({{rules}}.step_ends_at(c) <= t, true) LIMIT 1) c
                    WHERE m.space = p_space AND NOT {{rules}}.is_alive(m.session, t));
END $$;

-- For a member that has recorded that it sleeps: reports whether there is a key for it after
-- all. It does not answer before every transaction that may have missed that has committed;
-- but it waits for no one who takes very long.
CREATE FUNCTION {{rules}}.recheck_free_keys(p_space text, p_from timestamptz, p_lock_timeout_ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{rules}}.configure_key_statement(p_lock_timeout_ms);
    FOR i IN 1 .. 40 LOOP
        IF pg_try_advisory_xact_lock(hashtext('understudy ' || {{channel}}), hashtext(p_space)) THEN
            RETURN {{rules}}.has_free_key(p_space, p_from, {{schema}}.clock());
        ELSIF {{rules}}.has_free_key(p_space, p_from, {{schema}}.clock()) THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.001);
    END LOOP;
    RETURN false;
END $$;

-- Wakes up to p_most sleeping members. The lock, which it shares with all others
-- that wake, is what recheck_free_keys waits for: who fell asleep before it is seen here, and
-- who does so later sees what this transaction commits.
CREATE FUNCTION {{rules}}.wake_members(p_space text, p_most bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_session text;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtext('understudy ' || {{channel}}), hashtext(p_space));
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- Its snapshot does not show who has fallen asleep since.
        PERFORM {{rules}}.notify_change(p_space, '', 0, true, '');
        RETURN;
    END IF;
    FOR v_session IN
        SELECT m.session FROM {{schema}}.member m
         WHERE m.space = p_space AND m.asleep AND {{rules}}.is_alive(m.session, {{schema}}.clock())
         LIMIT p_most FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        UPDATE {{schema}}.member m SET asleep = false WHERE m.space = p_space AND m.session = v_session;
        PERFORM {{rules}}.notify_change(p_space, '', 0, true, v_session);
    END LOOP;
    -- Somebody else may be waking the only one. If that should take long, or come to
    -- nothing, a few of those that follow do it too; all of them would be too many
    -- notifications, each of which holds up all commits.
    IF NOT FOUND AND txid_current() % 16 = 0 AND EXISTS (SELECT FROM {{schema}}.member m
        WHERE m.space = p_space AND m.asleep AND {{rules}}.is_alive(m.session, {{schema}}.clock()))
    THEN
        PERFORM {{rules}}.notify_change(p_space, '', 0, true, '');
    END IF;
END $$;

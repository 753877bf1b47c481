-- What the monitor's functions use, and the rules that they keep besides those of common.sql. An event in the names of tables and
-- columns is a check.
--
-- A moment is a monitor.StoreTime: a bigint of microseconds on the monitor's own clock, which is the clock of the
-- store less a shift, which is moved when that is found to have stepped back.
--
-- A source is three rows, each with one kind of writer: monitor_beat is written by
-- each of its beats and has no index that a beat changes; monitor_due by each evaluation;
-- monitor_source only by a transition. Locks are taken in this order,
-- and many of a kind in that of their ids: the setting, events, beats, sources, alarms,
-- dues, paths. The beat and the source of one id may be locked together.
--
-- A change of what an evaluation goes by changes the beat (its version is "beats" and
-- "run", added up) or "rev", and only then makes the source due.

-- The clocks, read after all that was committed before. Moments never fall below a proof
-- that was recorded, nor below p_latest, the latest that the caller has seen.
CREATE FUNCTION {{rules}}.monitor_now(p_latest bigint, OUT moment bigint, OUT wall timestamptz, OUT shift bigint, OUT generation bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_least bigint;
    v_shift bigint;
BEGIN
    FOR pass IN 1 .. 2 LOOP
        SELECT s.shift, s.generation, greatest(p_latest, (SELECT max(p.proof) FROM {{schema}}.monitor_path p))
          INTO v_shift, generation, v_least FROM {{schema}}.monitor_setting s;
        wall := {{schema}}.clock();
        moment := {{rules}}.monitor_us(wall) - v_shift;
        IF moment >= v_least THEN
            EXIT;
        ELSIF pass = 1 THEN
            PERFORM FROM {{schema}}.monitor_setting s FOR NO KEY UPDATE;
        ELSE
            v_shift := v_shift - (v_least - moment);
            moment := v_least;
            UPDATE {{schema}}.monitor_setting s SET shift = v_shift;
        END IF;
    END LOOP;
    shift := v_shift;
END $$;

CREATE FUNCTION {{rules}}.monitor_us(t timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
AS $$ SELECT (extract(epoch FROM t) * 1000000)::bigint $$;

CREATE FUNCTION {{rules}}.monitor_wall(us bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE
AS $$ SELECT timestamptz '1970-01-01 00:00:00+00' + us * interval '1 microsecond' $$;

-- The settings of configure_statement, for functions that work on lists. Rows are looked up one by one, in the
-- order of the list, which is also that of the locks. Plans are made each time: that costs
-- little beside the lists, and one that was made for an empty table would cost very much later.
CREATE FUNCTION {{rules}}.monitor_configure_statement(p_lock_timeout_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'understudy: this needs the isolation level READ COMMITTED' USING ERRCODE = 'US003';
    END IF;
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms),
            set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
            set_config('enable_bitmapscan', 'off', true), set_config('random_page_cost', '1', true),
            set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_custom_plan', true);
END $$;

-- Makes sources due, in the order of their ids.
CREATE FUNCTION {{rules}}.monitor_make_due(p_ids bigint[], t bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {{schema}}.monitor_due d SET due = least(d.due, t) FROM unnest(p_ids) x (id) WHERE d.id = x.id;
END $$;

CREATE FUNCTION {{rules}}.monitor_bump_generation() RETURNS void LANGUAGE sql VOLATILE AS $$
    UPDATE {{schema}}.monitor_setting s SET generation = s.generation + 1
$$;

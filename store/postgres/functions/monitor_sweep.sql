-- Background work.

-- Does a part of what is left to do, and finds sources of removed events, and learned ones that have been retired for long.
CREATE FUNCTION {{rules}}.monitor_sweep(p_latest bigint, p_keep bigint, p_limit integer, p_lock_timeout_ms bigint,
    OUT moment bigint, OUT wall timestamptz, OUT generation bigint, OUT next bigint, OUT ids bigint[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_more boolean := false;
    v_n bigint;
BEGIN
    PERFORM {{rules}}.monitor_configure_statement(p_lock_timeout_ms);
    SELECT n.moment, n.wall INTO moment, wall FROM {{rules}}.monitor_now(p_latest) n;
    PERFORM {{rules}}.monitor_delete_removed_checks();
    v_more := {{rules}}.monitor_reevaluate_changed(moment, p_limit);
    -- An array: what is joined may be looked for once per row, past those that it has just deleted.
    DELETE FROM {{schema}}.monitor_alarm a WHERE a.id = ANY (ARRAY(
        SELECT x.id FROM {{schema}}.monitor_alarm x WHERE x.ended IS NOT NULL AND x.ended < wall - {{rules}}.microseconds(p_keep)
         ORDER BY x.ended LIMIT p_limit FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS v_n = ROW_COUNT;
    v_more := v_more OR v_n >= p_limit;
    PERFORM {{rules}}.monitor_fold_counts();
    ids := ARRAY(SELECT s.id FROM {{schema}}.monitor_event e, LATERAL (
        SELECT x.id FROM {{schema}}.monitor_source x WHERE x.event = e.id ORDER BY x.name LIMIT p_limit + 1) s WHERE e.removed LIMIT p_limit + 1);
    ids := ids || ARRAY(SELECT s.id FROM {{schema}}.monitor_source s JOIN {{schema}}.monitor_event e ON e.id = s.event AND NOT e.removed
        WHERE s.state = 'retired' AND NOT s.declared AND s.ended < moment - p_keep ORDER BY s.ended LIMIT p_limit + 1 - cardinality(ids));
    v_more := v_more OR cardinality(ids) > p_limit;
    ids := ids[1:p_limit];
    next := CASE WHEN v_more THEN moment - 1 ELSE 9223372036854775807 END;
    SELECT s.generation INTO generation FROM {{schema}}.monitor_setting s;
END $$;

-- Makes sources due whose event was changed, and reports whether there are more.
CREATE FUNCTION {{rules}}.monitor_reevaluate_changed(t bigint, p_limit integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    e {{schema}}.monitor_event;
    v_ids bigint[];
    v_all bigint[] := '{}';
    v_widths bigint[] := '{}';
    v_left integer := p_limit;
BEGIN
    FOR e IN SELECT x.* FROM {{schema}}.monitor_event x WHERE x.respread IS NOT NULL AND NOT x.removed ORDER BY x.id LOOP
        EXIT WHEN v_left <= 0;
        SELECT x.* INTO e FROM {{schema}}.monitor_event x WHERE x.id = e.id AND x.respread IS NOT NULL FOR NO KEY UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        v_ids := ARRAY(SELECT s.id FROM {{schema}}.monitor_source s WHERE s.event = e.id AND s.name > e.respread ORDER BY s.name LIMIT v_left);
        UPDATE {{schema}}.monitor_event x
           SET respread = CASE WHEN cardinality(v_ids) = v_left THEN (SELECT s.name FROM {{schema}}.monitor_source s WHERE s.id = v_ids[v_left]) END
         WHERE x.id = e.id;
        v_left := v_left - cardinality(v_ids);
        v_all := v_all || v_ids;
        v_widths := v_widths || array_fill({{rules}}.monitor_slot_width(e.every), ARRAY[cardinality(v_ids)]);
    END LOOP;
    -- All beats before all dues, each in the order of their ids.
    SELECT array_agg(x.id ORDER BY x.id), array_agg(x.width ORDER BY x.id) INTO v_all, v_widths FROM unnest(v_all, v_widths) x (id, width);
    IF v_all IS NOT NULL THEN
        -- What was noted of slots of another width means nothing any more.
        UPDATE {{schema}}.monitor_beat b SET width = x.width, recent = 0
          FROM unnest(v_all, v_widths) x (id, width) WHERE b.id = x.id AND b.width <> x.width;
        PERFORM {{rules}}.monitor_make_due(v_all, t);
    END IF;
    RETURN v_left <= 0;
END $$;

-- Makes one row of many that count the same.
CREATE FUNCTION {{rules}}.monitor_fold_counts() RETURNS void LANGUAGE sql VOLATILE AS $$
    WITH many AS (
        SELECT c.event, c.state, c.seen FROM {{schema}}.monitor_count c GROUP BY c.event, c.state, c.seen HAVING count(*) > 1 LIMIT 1000
    ), gone AS (
        DELETE FROM {{schema}}.monitor_count c USING many m WHERE c.event = m.event AND c.state = m.state AND c.seen = m.seen
        RETURNING c.event, c.state, c.seen, c.n
    )
    INSERT INTO {{schema}}.monitor_count (event, state, seen, n)
    SELECT event, state, seen, sum(n) FROM gone GROUP BY event, state, seen HAVING sum(n) <> 0
$$;

-- Forgets removed events that have no source any more.
CREATE FUNCTION {{rules}}.monitor_delete_removed_checks() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_id bigint;
BEGIN
    FOR v_id IN SELECT e.id FROM {{schema}}.monitor_event e
        WHERE e.removed AND NOT EXISTS (SELECT FROM {{schema}}.monitor_source s WHERE s.event = e.id) LIMIT 1000
    LOOP
        PERFORM FROM {{schema}}.monitor_setting s FOR NO KEY UPDATE;
        PERFORM FROM {{schema}}.monitor_event e WHERE e.id = v_id AND e.removed FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        DELETE FROM {{schema}}.monitor_event e WHERE e.id = v_id AND NOT EXISTS (SELECT FROM {{schema}}.monitor_source s WHERE s.event = e.id);
        IF FOUND THEN
            DELETE FROM {{schema}}.monitor_count c WHERE c.event = v_id;
            PERFORM {{rules}}.monitor_bump_generation();
        END IF;
    END LOOP;
END $$;

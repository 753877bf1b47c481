-- Finds a page of sources, in the order of event and name.
CREATE FUNCTION {{rules}}.monitor_sources(p_latest bigint, p_event text, p_source text, p_state text, p_labels text, p_after_event text, p_after text,
    p_limit integer, p_lock_timeout_ms bigint, OUT moment bigint, OUT wall timestamptz, OUT ids bigint[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    e record;
BEGIN
    PERFORM {{rules}}.monitor_configure_statement(p_lock_timeout_ms);
    SELECT n.moment, n.wall INTO moment, wall FROM {{rules}}.monitor_now(p_latest) n;
    ids := '{}';
    IF p_labels <> '' THEN
        -- Those that have a label are found by an index, and sorted.
        PERFORM set_config('enable_bitmapscan', 'on', true);
        ids := ARRAY(SELECT s.id FROM {{schema}}.monitor_source s JOIN {{schema}}.monitor_event e ON e.id = s.event
             WHERE s.labels @> p_labels::jsonb AND (p_event = '' OR e.name = p_event) AND (p_source = '' OR s.name = p_source)
               AND (p_state = '' OR s.state = p_state) AND (e.name, s.name) > (p_after_event, p_after)
             ORDER BY e.name, s.name LIMIT p_limit);
        RETURN;
    END IF;
    FOR e IN SELECT x.id, CASE WHEN x.name = p_after_event THEN p_after ELSE '' END AS after FROM {{schema}}.monitor_event x
              WHERE x.name >= p_after_event AND (p_event = '' OR x.name = p_event) ORDER BY x.name
    LOOP
        EXIT WHEN cardinality(ids) >= p_limit;
        IF p_source <> '' THEN
            ids := ids || ARRAY(SELECT s.id FROM {{schema}}.monitor_source s
                WHERE s.event = e.id AND s.name = p_source AND s.name > e.after AND (p_state = '' OR s.state = p_state));
        ELSIF p_state <> '' THEN
            ids := ids || ARRAY(SELECT s.id FROM {{schema}}.monitor_source s
                WHERE s.event = e.id AND s.state = p_state AND s.name > e.after ORDER BY s.name LIMIT p_limit - cardinality(ids));
        ELSE
            ids := ids || ARRAY(SELECT s.id FROM {{schema}}.monitor_source s
                WHERE s.event = e.id AND s.name > e.after ORDER BY s.name LIMIT p_limit - cardinality(ids));
        END IF;
    END LOOP;
END $$;

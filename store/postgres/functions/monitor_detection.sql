-- Sources that are due, with what the rule (monitor/rule.go) needs to know of them.

-- Finds sources that are due, those first that are for longest. Of each partition it
-- reads about as many as are to be expected of it, and all only if that was too few.
CREATE FUNCTION {{rules}}.monitor_due_sources(p_latest bigint, p_parts integer[], p_limit integer, p_lock_timeout_ms bigint,
    OUT moment bigint, OUT wall timestamptz, OUT generation bigint, OUT next bigint, OUT ids bigint[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
    v_dues bigint[];
    v_parts integer[];
    v_cut bigint;
    v_each integer := ceil(p_limit::float8 / greatest(cardinality(p_parts), 1) + 4 * sqrt(p_limit::float8 / greatest(cardinality(p_parts), 1)) + 8);
BEGIN
    PERFORM {{rules}}.monitor_configure_statement(p_lock_timeout_ms);
    SELECT n.moment, n.wall, n.generation INTO moment, wall, generation FROM {{rules}}.monitor_now(p_latest) n;
    LOOP
        SELECT coalesce(array_agg(d.id), '{}'), array_agg(d.due), array_agg(p.p) INTO v_ids, v_dues, v_parts FROM unnest(p_parts) p (p), LATERAL (
            SELECT d.id, d.due FROM {{schema}}.monitor_due d WHERE (d.id & 63) = p.p AND d.due <= moment ORDER BY d.due LIMIT v_each) d;
        SELECT min(x.last) INTO v_cut FROM (
            SELECT max(d.due) AS last FROM unnest(v_dues, v_parts) d (due, p) GROUP BY d.p HAVING count(*) >= v_each) x;
        ids := ARRAY(SELECT d.id FROM unnest(v_ids, v_dues) d (id, due) WHERE v_cut IS NULL OR d.due <= v_cut ORDER BY d.due, d.id LIMIT p_limit);
        EXIT WHEN v_cut IS NULL OR cardinality(ids) >= p_limit OR v_each >= p_limit;
        v_each := p_limit;
    END LOOP;
    IF v_cut IS NOT NULL OR cardinality(v_ids) > cardinality(ids) THEN
        next := moment - 1;
    ELSE
        SELECT coalesce(min(d.due), 9223372036854775807) INTO next FROM unnest(p_parts) p (p), LATERAL (
            SELECT d.due FROM {{schema}}.monitor_due d WHERE (d.id & 63) = p.p AND d.due > moment ORDER BY d.due LIMIT 1) d;
    END IF;
END $$;

-- What the rule needs to know of sources that are due, or to be forgotten.
CREATE FUNCTION {{rules}}.monitor_candidates(p_ids bigint[], p_wall timestamptz)
RETURNS TABLE (id bigint, event bigint, source text, labels text, rev bigint, beat_rev bigint, check_rev bigint,
    state text, alarm text, reason text, onset bigint, onsets bigint, well bigint, base bigint, until bigint, ended bigint, asked boolean,
    beat bigint, blind_then bigint, failing boolean, run bigint, event_base bigint, removed boolean,
    path text, proof bigint, trust bigint, gap bigint, blind bigint, resumed bigint, held boolean, group_alarm text, started timestamptz,
    since boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    l {{schema}}.monitor_path;
BEGIN
    SELECT p.* INTO l FROM {{schema}}.monitor_path p ORDER BY p.proof DESC, p.id LIMIT 1;
    RETURN QUERY SELECT s.id, s.event, s.name, s.labels::text, s.rev, b.beats + b.run, e.rev,
            s.state, s.alarm, s.reason, s.onset,
            -- Alarms have no onset here, only a wall time. After a step back older alarms count for as much longer, so that the
            -- alarm of a source that flaps stands longer. A step ahead moves the monitor's own clock, too.
            CASE WHEN s.alarm = '' OR e.flaps = 0 THEN 0 ELSE (
                SELECT count(*) FROM (SELECT FROM {{schema}}.monitor_alarm o
                 WHERE o.event = e.name AND o.source = s.name AND o.raised >= p_wall - {{rules}}.microseconds(e.flap_window) LIMIT e.flaps) o) END,
            s.well, s.base, s.until, s.ended, s.asked,
            b.at, CASE WHEN p.id IS NULL THEN coalesce(l.blind, 0) ELSE b.blind END, b.failing, b.run, e.base, e.removed,
            coalesce(p.name, l.name, ''), coalesce(p.proof, l.proof, 0), coalesce(p.trust, l.trust, 0), coalesce(p.gap, l.gap, 0),
            coalesce(p.blind, l.blind, 0), coalesce(p.resumed, l.resumed, 0),
            coalesce(a.held, false), coalesce(a.group_alarm, ''), a.started, s.alarm <> '' AND coalesce(b.beats > a.beats, b.at >= s.onset)
       FROM unnest(p_ids) x (id)
       JOIN {{schema}}.monitor_source s ON s.id = x.id
       JOIN {{schema}}.monitor_beat b ON b.id = x.id
       JOIN {{schema}}.monitor_event e ON e.id = s.event
       LEFT JOIN {{schema}}.monitor_path p ON p.id = b.path AND b.at <> 0
       LEFT JOIN {{schema}}.monitor_alarm a ON a.id = s.alarm AND s.alarm <> '';
END $$;

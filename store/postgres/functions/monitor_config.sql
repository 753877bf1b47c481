-- Configuration of the monitor, and declared sources.

-- Whether a source depends on one by its labels before, and not by those after: as Check.MovesFromParent says it.
CREATE FUNCTION {{rules}}.monitor_moves_from_parent(p_config jsonb, p_before jsonb, p_after jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(nullif(p_before->>x.label, ''), x.fallback) <> coalesce(nullif(p_after->>x.label, ''), x.fallback, '')
      FROM (SELECT p_config->>'depends_label' AS label, nullif(p_config->'labels'->>(p_config->>'depends_label'), '') AS fallback
             WHERE p_config ? 'depends_on') x
$$;

-- Applies a configuration; it does nothing, and names a check in "missing", if sources are declared for that and it is not configured.
CREATE FUNCTION {{rules}}.monitor_configure(p_latest bigint, p_config text, p_keep boolean, p_origin text,
    p_events text[], p_names text[], p_labels text[], p_lock_timeout_ms bigint,
    OUT missing text, OUT added text[], OUT changed text[], OUT removed text[], OUT declared bigint, OUT generation bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    c record;
    v_names text[];
BEGIN
    PERFORM {{rules}}.monitor_configure_statement(p_lock_timeout_ms);
    SELECT * INTO c FROM {{rules}}.monitor_now(p_latest);
    PERFORM FROM {{schema}}.monitor_setting s FOR NO KEY UPDATE;
    PERFORM FROM {{schema}}.monitor_event e ORDER BY e.id FOR NO KEY UPDATE;
    v_names := ARRAY(SELECT x.name FROM jsonb_to_recordset(p_config::jsonb) x (name text));
    SELECT d.event INTO missing FROM unnest(p_events) d (event)
     WHERE d.event <> ALL (v_names) AND NOT EXISTS (SELECT FROM {{schema}}.monitor_event e WHERE e.name = d.event AND NOT e.removed) LIMIT 1;
    IF missing IS NOT NULL THEN
        RETURN;
    END IF;
    WITH x AS (
        SELECT o.id, o.removed AS was, o.config <> x.config AS differs, x.*,
               CASE WHEN o.removed OR x.paused <> coalesce((o.config->>'paused')::boolean, false) THEN x.paused ELSE o.paused END AS pause,
               -- Stricter: as Check.IsStricterThan says it. The limit of a schedule is in its missed times, not in patience.
               o.removed OR o.schedule <> x.schedule OR x.patience < o.patience OR x.max_run > 0 AND (o.max_run = 0 OR x.max_run < o.max_run)
                   OR x.schedule <> '' AND (x.config->>'missed')::bigint < (o.config->>'missed')::bigint
                   OR o.config ? 'maintenance' AND (x.config->>'maintenance' IS DISTINCT FROM o.config->>'maintenance'
                       OR (x.config->>'maintenance_for')::bigint < (o.config->>'maintenance_for')::bigint)
                   OR o.config ? 'depends_on' AND (x.config->>'depends_on' IS DISTINCT FROM o.config->>'depends_on'
                       OR x.config->>'depends_label' IS DISTINCT FROM o.config->>'depends_label'
                       OR nullif(o.config->'labels'->>(o.config->>'depends_label'), '') <> coalesce(x.config->'labels'->>(o.config->>'depends_label'), '')) AS stricter
          FROM jsonb_to_recordset(p_config::jsonb) x (name text, config jsonb, paused boolean, schedule text, max_run bigint, fixed boolean,
                   sender_clock boolean, every bigint, patience bigint, flaps integer, flap_window bigint)
          JOIN {{schema}}.monitor_event o ON o.name = x.name
    ), put AS (
        UPDATE {{schema}}.monitor_event e
           SET config = x.config, rev = e.rev + 1, removed = false, paused = x.pause, schedule = x.schedule, max_run = x.max_run, fixed = x.fixed,
               sender_clock = x.sender_clock, every = x.every, patience = x.patience, flaps = x.flaps, flap_window = x.flap_window,
               base = CASE WHEN x.stricter OR e.paused AND NOT x.pause THEN c.moment ELSE e.base END, respread = ''
          FROM x WHERE e.id = x.id AND (x.was OR x.differs)
        RETURNING e.name, x.was
    ), fresh AS (
        INSERT INTO {{schema}}.monitor_event (name, config, base, paused, schedule, max_run, fixed, sender_clock, every, patience, flaps, flap_window)
        SELECT x.name, x.config, c.moment, x.paused, x.schedule, x.max_run, x.fixed, x.sender_clock, x.every, x.patience, x.flaps, x.flap_window
          FROM jsonb_to_recordset(p_config::jsonb) x (name text, config jsonb, paused boolean, schedule text, max_run bigint, fixed boolean,
                   sender_clock boolean, every bigint, patience bigint, flaps integer, flap_window bigint)
         WHERE NOT EXISTS (SELECT FROM {{schema}}.monitor_event o WHERE o.name = x.name) ORDER BY x.name COLLATE "C"
        RETURNING name
    ), gone AS (
        UPDATE {{schema}}.monitor_event e SET removed = true, rev = e.rev + 1, respread = NULL
         WHERE NOT p_keep AND NOT e.removed AND e.name <> ALL (v_names)
        RETURNING e.name
    )
    SELECT ARRAY(SELECT n.name FROM (SELECT name FROM fresh UNION ALL SELECT name FROM put WHERE was) n ORDER BY n.name COLLATE "C"),
           ARRAY(SELECT name FROM put WHERE NOT was ORDER BY name COLLATE "C"), ARRAY(SELECT name FROM gone ORDER BY name COLLATE "C")
      INTO added, changed, removed;
    SELECT count(*) FILTER (WHERE d.fresh) INTO declared FROM {{rules}}.monitor_declare_sources(p_latest, p_events, p_names, p_labels, p_lock_timeout_ms) d;
    UPDATE {{schema}}.monitor_setting s
       SET configured = c.wall, origin = p_origin, error = '', generation = s.generation + (added || changed || removed <> '{}')::int
    RETURNING s.generation INTO generation;
END $$;

-- Declares sources, and returns in "fresh" the places in the list of those that are new; it does nothing, and names a check in
-- "missing", if that is not configured.
CREATE FUNCTION {{rules}}.monitor_declare(p_latest bigint, p_events text[], p_names text[], p_labels text[], p_lock_timeout_ms bigint,
    OUT missing text, OUT fresh bigint[]) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{rules}}.monitor_configure_statement(p_lock_timeout_ms);
    PERFORM FROM {{schema}}.monitor_event e WHERE e.name = ANY (p_events) ORDER BY e.id FOR NO KEY UPDATE;
    SELECT d.event INTO missing FROM unnest(p_events) d (event)
     WHERE NOT EXISTS (SELECT FROM {{schema}}.monitor_event e WHERE e.name = d.event AND NOT e.removed) LIMIT 1;
    IF missing IS NULL THEN
        fresh := ARRAY(SELECT d.i FROM {{rules}}.monitor_declare_sources(p_latest, p_events, p_names, p_labels, p_lock_timeout_ms) d WHERE d.fresh);
    END IF;
END $$;

-- Makes sources known before their first heartbeat, and gives them their labels; returns which are new.
CREATE FUNCTION {{rules}}.monitor_declare_sources(p_latest bigint, p_events text[], p_names text[], p_labels text[], p_lock_timeout_ms bigint)
RETURNS TABLE (i bigint, fresh boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_known record;
BEGIN
    SELECT array_agg(k.i ORDER BY k.i) AS i, array_agg(k.id ORDER BY k.i) AS id, array_agg(k.fresh ORDER BY k.i) AS fresh INTO v_known
      FROM {{rules}}.monitor_resolve_sources(p_latest, p_events, p_names, p_labels, NULL, p_lock_timeout_ms) k;
    UPDATE {{schema}}.monitor_source s
       SET declared = true, labels = x.labels,
           base = CASE WHEN {{rules}}.monitor_moves_from_parent(e.config, s.labels, x.labels) THEN (SELECT n.moment FROM {{rules}}.monitor_now(p_latest) n) ELSE s.base END
      FROM {{schema}}.monitor_event e, (SELECT k.id, p_labels[k.i]::jsonb AS labels FROM unnest(v_known.i, v_known.id, v_known.fresh) k (i, id, fresh) WHERE NOT k.fresh ORDER BY k.id) x
     WHERE s.id = x.id AND e.id = s.event AND (NOT s.declared OR s.labels <> x.labels);
    RETURN QUERY SELECT k.i, k.fresh FROM unnest(v_known.i, v_known.fresh) k (i, fresh);
END $$;

-- A check as package monitor reads it.
CREATE FUNCTION {{rules}}.monitor_check_json(e {{schema}}.monitor_event) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT (e.config || jsonb_build_object('ID', e.id, 'Rev', e.rev, 'Removed', e.removed, 'paused', e.paused))::text
$$;

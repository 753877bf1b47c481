-- Alarms that are held for their groups, and reminders.

-- Groups that have members to report, or none left; a row for each member, the oldest first. age is for how long an alarm has been
-- held, by the monitor's clock: a group does not wait for the wall clock to come back to where it was.
CREATE FUNCTION {{rules}}.monitor_held_groups(p_latest bigint, p_most integer, p_lock_timeout_ms bigint)
RETURNS TABLE (grp text, event text, alarm text, since timestamptz, standing bigint, n bigint, age bigint, member {{schema}}.monitor_alarm) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    t bigint;
BEGIN
    PERFORM {{rules}}.monitor_configure_statement(p_lock_timeout_ms);
    SELECT n.moment INTO t FROM {{rules}}.monitor_now(p_latest) n;
    RETURN QUERY SELECT g.grp, coalesce(a.event, (m.alarm).event), coalesce(a.id, ''), a.started, coalesce(n.standing, 0), coalesce(g.n, 0), t - o.onset, m.alarm
       FROM (SELECT h.grp, sum(h.n)::bigint AS n FROM (
                SELECT h.grp, count(*) AS n FROM {{schema}}.monitor_alarm h WHERE h.held GROUP BY h.grp
                UNION ALL SELECT h.grp, 0 FROM {{schema}}.monitor_alarm h WHERE h.source = '' AND h.ended IS NULL) h GROUP BY h.grp) g
       LEFT JOIN {{schema}}.monitor_alarm a ON a.grp = g.grp AND a.source = '' AND a.ended IS NULL
       LEFT JOIN LATERAL (SELECT count(*) AS standing FROM {{schema}}.monitor_alarm x WHERE x.group_alarm = a.id AND x.group_alarm <> '' AND x.ended IS NULL) n ON true
       LEFT JOIN LATERAL (SELECT x AS alarm, x.raised, x.id FROM {{schema}}.monitor_alarm x WHERE x.grp = g.grp AND x.held ORDER BY x.raised, x.id LIMIT p_most) m ON true
       LEFT JOIN LATERAL (SELECT s.onset FROM {{schema}}.monitor_event e JOIN {{schema}}.monitor_source s ON s.event = e.id AND s.name = (m.alarm).source
          WHERE e.name = (m.alarm).event OFFSET 0) o ON true
      WHERE m.id IS NOT NULL OR a.id IS NOT NULL AND n.standing = 0
      ORDER BY g.grp COLLATE "C", m.raised, m.id;
END $$;

-- Reports held alarms, with one of their group or each by itself, or ends that of the group.
CREATE FUNCTION {{rules}}.monitor_report_group(p_latest bigint, p_group text, p_alarm text, p_members text[], p_end text, p_at bigint,
    p_sinks text[], p_keys text[], p_nids text[], p_payloads bytea[], p_lock_timeout_ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    c record;
    f {{schema}}.monitor_alarm;
    v_at timestamptz;
    v_started timestamptz;
    v_n bigint;
BEGIN
    PERFORM {{rules}}.monitor_configure_statement(p_lock_timeout_ms);
    SELECT * INTO c FROM {{rules}}.monitor_now(p_latest);
    v_at := coalesce({{rules}}.monitor_wall(nullif(p_at, 0)), c.wall);
    PERFORM FROM (SELECT x.id FROM unnest(p_members || p_alarm) x (id) ORDER BY x.id COLLATE "C") x,
        LATERAL (SELECT FROM {{schema}}.monitor_alarm a WHERE a.id = x.id FOR NO KEY UPDATE) l;
    IF p_end <> '' THEN
        UPDATE {{schema}}.monitor_alarm a SET ended = v_at, finish = p_end
         WHERE a.id = p_alarm AND a.source = '' AND a.ended IS NULL
           AND NOT EXISTS (SELECT FROM {{schema}}.monitor_alarm x WHERE x.group_alarm = p_alarm AND x.group_alarm <> '' AND x.ended IS NULL)
        RETURNING a.started INTO v_started;
        IF NOT FOUND THEN
            RETURN false;
        END IF;
        PERFORM {{rules}}.monitor_record_history(c.wall, ARRAY[p_group], ARRAY[p_end], ARRAY[{{rules}}.nanoseconds(greatest(v_at - v_started, '0'))]);
    ELSE
        SELECT count(*) INTO v_n FROM unnest(p_members) x (id) JOIN {{schema}}.monitor_alarm a ON a.id = x.id AND a.held AND a.grp = p_group;
        IF v_n <> cardinality(p_members) THEN
            RETURN false;
        END IF;
        IF p_alarm <> '' THEN
            SELECT a.* INTO f FROM {{schema}}.monitor_alarm a WHERE a.id = p_members[1];
            UPDATE {{schema}}.monitor_alarm a SET members = a.members + v_n WHERE a.id = p_alarm AND a.source = '' AND a.grp = p_group AND a.ended IS NULL;
            IF NOT FOUND THEN
                INSERT INTO {{schema}}.monitor_alarm (id, event, source, grp, members, reason, started, raised)
                VALUES (p_alarm, f.event, '', p_group, v_n, f.reason, v_at, c.wall) ON CONFLICT DO NOTHING;
                IF NOT FOUND THEN
                    RETURN false;
                END IF;
                PERFORM {{rules}}.monitor_record_history(c.wall, ARRAY[p_group], ARRAY[f.reason], ARRAY[{{rules}}.nanoseconds(greatest(c.wall - v_at, '0'))]);
            END IF;
        END IF;
        UPDATE {{schema}}.monitor_alarm a SET held = false, group_alarm = p_alarm, grp = CASE WHEN p_alarm = '' THEN '' ELSE a.grp END
          FROM unnest(p_members) x (id) WHERE a.id = x.id;
    END IF;
    PERFORM {{rules}}.monitor_notify(p_sinks, p_keys, p_nids, p_payloads);
    RETURN true;
END $$;

-- Reminds of an alarm that stands and that no one has acknowledged, and returns whether it did.
CREATE FUNCTION {{rules}}.monitor_remind(p_alarm text, p_number integer, p_sinks text[], p_keys text[], p_nids text[], p_payloads bytea[], p_lock_timeout_ms bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{rules}}.monitor_configure_statement(p_lock_timeout_ms);
    UPDATE {{schema}}.monitor_alarm a SET reminders = p_number, reminded = {{schema}}.clock()
     WHERE a.id = p_alarm AND a.reminders = p_number - 1 AND a.ended IS NULL AND a.acknowledged = '';
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM {{rules}}.monitor_notify(p_sinks, p_keys, p_nids, p_payloads);
    RETURN true;
END $$;

-- Shards: what is decided about each (a row), what its nodes' agents report (records), the
-- failover locks, and the commands that wait for nodes. JSON is kept as text: only
-- the program looks into it.
--
-- Rules that every function keeps, besides those of the others:
--   * Whatever changes a shard locks it first, and so do reports, which also show it: what one shows would
--     otherwise be older than what others saw before it was written.
--   * Then come, in this order: an address, an id, the row or the failover lock, records in the order of
--     their ids, queues in the order of their locks' numbers. A report that changes nothing but the
--     record, of an agent that lives, locks the shard and its own record alone.

-- The next two return something, so that an assignment can call them: that takes no statement.
CREATE FUNCTION {{rules}}.shard_configure_statement(p_lock_timeout_ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_settings text := set_config('lock_timeout', greatest(p_lock_timeout_ms, 1)::text, true) || set_config('enable_seqscan', 'off', true) || set_config('jit', 'off', true);
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'understudy: this needs the isolation level READ COMMITTED' USING ERRCODE = 'US003';
    END IF;
    RETURN true;
END $$;

CREATE FUNCTION {{rules}}.shard_lock_shard(p_shard text, p_lock_timeout_ms bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    v_settled boolean := {{rules}}.shard_configure_statement(p_lock_timeout_ms);
BEGIN
    RETURN pg_advisory_xact_lock(hashtext({{channel}} || ' shard'), hashtext(p_shard)) IS NOT NULL;
END $$;

CREATE FUNCTION {{rules}}.shard_us(t timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$ SELECT (extract(epoch FROM t) * 1000000)::bigint $$;

-- A shard as it stands, all at one moment: one row, or none if there is neither a row nor a record.
-- Its name, revision, row and lock; the lease as show has it, with its texts in one JSON array and its
-- times in microseconds; then each record and when it was written. All that is one text, with
-- U+001F in between, which is never in a name, a lock's value or JSON: a column that has to be parsed,
-- planned and written by itself costs the server more than what is in it. The function must stay what
-- PostgreSQL can put into the statement that calls it, whose plan is kept; show_lease is not used, because
-- what that calls is planned each time.
CREATE FUNCTION {{rules}}.shard_show(p_shard text) RETURNS SETOF text LANGUAGE sql STABLE AS $$
    SELECT concat_ws(U&'\001F', p_shard, coalesce(r.rev, 0), coalesce(r.doc, ''), coalesce(k.value, ''),
            CASE WHEN l.key IS NULL THEN '["","","","","",""]'
                 ELSE json_build_array(l.session, l.holder_id, l.holder_name, l.holder_address, l.successor, l.asked_for)::text END,
            coalesce(l.term, 0), coalesce(s.interval_ns, 0), coalesce(s.timeout_ns, 0), coalesce(s.seq, 0),
            {{rules}}.shard_us(coalesce(s.deadline, c.at)), coalesce(s.ended, false),
            {{rules}}.shard_us(coalesce(l.since, c.at)), {{rules}}.shard_us(coalesce(l.reserved, c.at)), coalesce(l.asked, false),
            (SELECT count(*) FROM {{schema}}.waiter w JOIN {{schema}}.session x ON x.id = w.session
              WHERE w.space = 'shard' AND w.key = p_shard AND NOT x.ended AND x.deadline > c.at),
            {{rules}}.shard_us(c.at), n.records)
      FROM (SELECT {{schema}}.clock() AS at OFFSET 0) c
      LEFT JOIN {{schema}}.shard_row r ON r.name = p_shard
      LEFT JOIN {{schema}}.shard_lock k ON k.primary_id = r.primary_id AND k.expires > c.at
     CROSS JOIN (SELECT string_agg(concat(x.doc, U&'\001F', {{rules}}.shard_us(x.updated)), U&'\001F') AS records
                   FROM {{schema}}.shard_node x WHERE x.shard = p_shard) n
      LEFT JOIN {{schema}}.lease l ON l.space = 'shard' AND l.key = p_shard
      LEFT JOIN {{schema}}.session s ON s.id = l.session
     WHERE r.name IS NOT NULL OR n.records IS NOT NULL
$$;

-- shard_show for those that only read: none or one, and then a page of all.
CREATE FUNCTION {{rules}}.shard_read_view(p_shard text, p_lock_timeout_ms bigint) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    RETURN QUERY SELECT * FROM {{rules}}.shard_show(p_shard);
END $$;
CREATE FUNCTION {{rules}}.shard_list(p_after text, p_most bigint, p_lock_timeout_ms bigint) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{rules}}.configure_statement(p_lock_timeout_ms);
    RETURN QUERY SELECT x.* FROM (
        (SELECT r.name FROM {{schema}}.shard_row r WHERE r.name > p_after ORDER BY r.name LIMIT p_most)
        UNION
        (SELECT DISTINCT n.shard FROM {{schema}}.shard_node n WHERE n.shard > p_after ORDER BY n.shard LIMIT p_most)
        ORDER BY 1 LIMIT p_most
    ) page (name), LATERAL {{rules}}.shard_show(page.name) x ORDER BY page.name COLLATE "C";
END $$;

CREATE FUNCTION {{rules}}.shard_notify(p_shard text) RETURNS void LANGUAGE sql AS $$
    SELECT pg_notify({{channel}}, json_build_object('space', 'shard:row', 'key', p_shard)::text)
$$;

-- Why a node may not be registered so, as text, or null; and by whom. The caller has locked what it
-- looks at.
CREATE FUNCTION {{rules}}.shard_conflict(p_shard text, p_id text, p_address text, p_instance bytea, t timestamptz,
    OUT why text, OUT who text, OUT what text) LANGUAGE plpgsql AS $$
BEGIN
    SELECT x.kind, x.id, x.what INTO why, who, what FROM (
        SELECT CASE WHEN n.shard <> p_shard THEN 'shard' ELSE 'instance' END AS kind, n.id,
               CASE WHEN n.shard <> p_shard THEN n.shard ELSE encode(n.instance, 'escape') END AS what, 1 AS rank
          FROM {{schema}}.shard_node n
         WHERE n.id = p_id AND (n.shard <> p_shard OR n.instance <> p_instance AND t - n.updated BETWEEN -n.timeout_us * interval '1 microsecond' AND n.timeout_us * interval '1 microsecond')
        UNION ALL
        SELECT CASE WHEN n.shard <> p_shard THEN 'address of shard' ELSE 'address' END, n.id, n.shard, 2
          FROM {{schema}}.shard_node n
         WHERE n.address = p_address AND n.id <> p_id AND (n.shard <> p_shard OR t - n.updated BETWEEN -n.timeout_us * interval '1 microsecond' AND n.timeout_us * interval '1 microsecond')
    ) x ORDER BY x.rank, x.id LIMIT 1;
END $$;

-- Writes a record, and returns the shard as it is after it; or, if that is not possible, why, and
-- who and what stands against it, after an U+001F. p_light: the report need not be on disk before the answer if it says the
-- same as the last one.
CREATE FUNCTION {{rules}}.shard_report(p_shard text, p_id text, p_address text, p_instance bytea, p_timeout_us bigint, p_doc text,
    p_gist bytea, p_light boolean, p_notify boolean, p_lock_timeout_ms bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_entered boolean := {{rules}}.shard_lock_shard(p_shard, p_lock_timeout_ms);
    v_again boolean;
    v_commit text;
    t timestamptz;
    v_taken record;
BEGIN
    -- The usual case. A take-over of the address of a node locks its row first: if that
    -- was waited for, the condition is looked at again, by the clock of then.
    UPDATE {{schema}}.shard_node n SET updated = {{schema}}.clock(), timeout_us = p_timeout_us, again = n.gist = p_gist, gist = p_gist, doc = p_doc
     WHERE n.id = p_id AND n.shard = p_shard AND n.address = p_address AND n.instance = p_instance
       AND {{schema}}.clock() - n.updated BETWEEN -n.timeout_us * interval '1 microsecond' AND n.timeout_us * interval '1 microsecond'
    RETURNING n.again INTO v_again;
    IF v_again AND p_light THEN
        -- Nobody waits for the disk for a report that only says "still so". A crash of the server
        -- may then lose those of the last second: it is as if the agent had been late. What was
        -- decided by what they show is not lost without them, for the log is written in order.
        v_commit := set_config('synchronous_commit', 'off', true);
    ELSIF v_again IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext({{channel}} || ' shard address'), hashtext(p_address));
        -- A new id has no row to lock.
        PERFORM pg_advisory_xact_lock(hashtext({{channel}} || ' shard node'), hashtext(p_id));
        PERFORM FROM {{schema}}.shard_node n WHERE n.id IN (
            SELECT p_id UNION SELECT x.id FROM {{schema}}.shard_node x WHERE x.address = p_address
        ) ORDER BY n.id FOR NO KEY UPDATE;
        t := {{schema}}.clock();
        SELECT * INTO v_taken FROM {{rules}}.shard_conflict(p_shard, p_id, p_address, p_instance, t);
        IF v_taken.why IS NOT NULL THEN
            RETURN U&'\001F' || concat_ws(U&'\001F', v_taken.why, v_taken.who, v_taken.what);
        END IF;
        INSERT INTO {{schema}}.shard_node AS n (id, shard, address, instance, timeout_us, updated, gist, doc)
        VALUES (p_id, p_shard, p_address, p_instance, p_timeout_us, t, p_gist, p_doc)
        ON CONFLICT (id) DO UPDATE SET address = p_address, instance = p_instance, timeout_us = p_timeout_us, updated = t,
               again = false, gist = p_gist, doc = p_doc;
    END IF;
    IF p_notify THEN
        PERFORM {{rules}}.shard_notify(p_shard);
    END IF;
    RETURN (SELECT * FROM {{rules}}.shard_show(p_shard));
END $$;

-- Locks queues, so that what is numbered first is seen first.
CREATE FUNCTION {{rules}}.shard_lock_queues(p_nodes text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_number integer;
BEGIN
    FOR v_number IN SELECT DISTINCT hashtext(x) AS h FROM unnest(p_nodes) x ORDER BY h LOOP
        PERFORM pg_advisory_xact_lock(hashtext({{channel}} || ' shard queue'), v_number);
    END LOOP;
END $$;

-- Appends commands, of each its node, id, how long it may wait and text, in order. A queue keeps
-- its latest p_most.
CREATE FUNCTION {{rules}}.shard_enqueue_commands(p_nodes text[], p_ids text[], p_within_us bigint[], p_docs text[], p_most bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    v_node text;
BEGIN
    PERFORM {{rules}}.shard_lock_queues(p_nodes);
    t := {{schema}}.clock();
    DELETE FROM {{schema}}.shard_command q WHERE q.node = ANY (p_nodes) AND q.expires <= t;
    INSERT INTO {{schema}}.shard_command (node, id, expires, doc)
    SELECT x.node, x.id, t + x.within_us * interval '1 microsecond', x.doc
      FROM unnest(p_nodes, p_ids, p_within_us, p_docs) WITH ORDINALITY x (node, id, within_us, doc, i) ORDER BY x.i
    ON CONFLICT (node, id) DO NOTHING;
    FOR v_node IN SELECT DISTINCT x FROM unnest(p_nodes) x LOOP
        DELETE FROM {{schema}}.shard_command q WHERE q.node = v_node AND q.n IN (
            SELECT y.n FROM {{schema}}.shard_command y WHERE y.node = v_node ORDER BY y.n DESC OFFSET p_most);
        PERFORM pg_notify({{channel}}, json_build_object('space', 'shard:queue', 'key', v_node)::text);
    END LOOP;
END $$;

CREATE FUNCTION {{rules}}.shard_send_commands(p_nodes text[], p_ids text[], p_within_us bigint[], p_docs text[], p_most bigint, p_lock_timeout_ms bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{rules}}.shard_configure_statement(p_lock_timeout_ms);
    PERFORM {{rules}}.shard_enqueue_commands(p_nodes, p_ids, p_within_us, p_docs, p_most);
END $$;

-- Takes the oldest command of a queue that has not expired; null if there is none. A queue is
-- locked by those that append, so that a look that finds nothing takes no lock.
CREATE FUNCTION {{rules}}.shard_next_command(p_node text, p_lock_timeout_ms bigint) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    v_doc text;
    v_expires timestamptz;
BEGIN
    PERFORM {{rules}}.shard_configure_statement(p_lock_timeout_ms);
    LOOP
        DELETE FROM {{schema}}.shard_command q WHERE q.node = p_node AND q.n = (
            SELECT x.n FROM {{schema}}.shard_command x WHERE x.node = p_node ORDER BY x.n LIMIT 1 FOR UPDATE SKIP LOCKED)
        RETURNING q.doc, q.expires INTO v_doc, v_expires;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        IF v_expires > {{schema}}.clock() THEN
            RETURN v_doc;
        END IF;
    END LOOP;
END $$;

-- Changes a row whose revision is p_rev, and does what follows. Returns whether, and the revision
-- after it. That tells the time too: a database that has lost its newest transactions, and a
-- backup that was restored, give none of theirs again.
CREATE FUNCTION {{rules}}.shard_update_row(p_shard text, p_rev bigint, p_remove boolean, p_primary text, p_doc text, p_drop text[],
    p_nodes text[], p_ids text[], p_within_us bigint[], p_docs text[], p_most bigint,
    p_event boolean, p_part text, p_subject text, p_from text, p_to text, p_term bigint, p_reason text, p_duration_ns bigint,
    p_lock_timeout_ms bigint, OUT decided boolean, OUT rev bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_next bigint;
BEGIN
    PERFORM {{rules}}.shard_lock_shard(p_shard, p_lock_timeout_ms);
    SELECT r.rev INTO rev FROM {{schema}}.shard_row r WHERE r.name = p_shard FOR NO KEY UPDATE;
    t := {{schema}}.clock();
    v_next := greatest(p_rev + 1, (extract(epoch FROM t) * 1000000)::bigint);
    decided := coalesce(rev, 0) = p_rev;
    IF decided AND p_remove THEN
        DELETE FROM {{schema}}.shard_row r WHERE r.name = p_shard;
        v_next := 0;
    ELSIF decided AND rev IS NULL THEN
        INSERT INTO {{schema}}.shard_row (name, rev, primary_id, doc) VALUES (p_shard, v_next, p_primary, p_doc)
        ON CONFLICT (name) DO NOTHING;
        decided := FOUND;
        IF NOT decided THEN
            SELECT r.rev INTO rev FROM {{schema}}.shard_row r WHERE r.name = p_shard;
        END IF;
    ELSIF decided THEN
        UPDATE {{schema}}.shard_row r SET rev = v_next, primary_id = p_primary, doc = p_doc WHERE r.name = p_shard;
    END IF;
    IF NOT decided THEN
        rev := coalesce(rev, 0);
        RETURN;
    END IF;
    rev := v_next;
    IF cardinality(p_drop) > 0 THEN
        PERFORM FROM {{schema}}.shard_node n WHERE n.id = ANY (p_drop) AND n.shard = p_shard ORDER BY n.id FOR UPDATE;
        DELETE FROM {{schema}}.shard_node n WHERE n.id = ANY (p_drop) AND n.shard = p_shard;
        -- The queue of a node that is another shard's stays.
        p_drop := ARRAY(SELECT x FROM unnest(p_drop) x WHERE NOT EXISTS (SELECT FROM {{schema}}.shard_node n WHERE n.id = x));
    END IF;
    IF cardinality(p_drop) + cardinality(p_nodes) > 0 THEN
        PERFORM {{rules}}.shard_lock_queues(p_drop || p_nodes);
        DELETE FROM {{schema}}.shard_command q WHERE q.node = ANY (p_drop);
        PERFORM {{rules}}.shard_enqueue_commands(p_nodes, p_ids, p_within_us, p_docs, p_most);
    END IF;
    IF p_event THEN
        INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
        VALUES (t, p_part, p_subject, p_from, p_to, p_term, p_reason, p_duration_ns);
    END IF;
    PERFORM {{rules}}.shard_notify(p_shard);
END $$;

-- Takes, renews or takes over a failover lock whose value is p_instead, '' for a free one. Returns
-- null, or the value of who has it. Locks that have expired long ago are forgotten by the way.
CREATE FUNCTION {{rules}}.shard_acquire_lock(p_primary text, p_shard text, p_value text, p_instead text, p_life_us bigint, p_lock_timeout_ms bigint)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    t timestamptz;
    v_held text;
BEGIN
    PERFORM {{rules}}.shard_lock_shard(p_shard, p_lock_timeout_ms);
    PERFORM pg_advisory_xact_lock(hashtext({{channel}} || ' shard lock'), hashtext(p_primary));
    t := {{schema}}.clock();
    SELECT CASE WHEN k.expires > t THEN k.value ELSE '' END INTO v_held FROM {{schema}}.shard_lock k WHERE k.primary_id = p_primary;
    IF coalesce(v_held, '') <> p_instead THEN
        RETURN coalesce(v_held, '');
    END IF;
    INSERT INTO {{schema}}.shard_lock AS k (primary_id, shard, value, expires)
    VALUES (p_primary, p_shard, p_value, t + p_life_us * interval '1 microsecond')
    ON CONFLICT (primary_id) DO UPDATE SET shard = p_shard, value = p_value, expires = EXCLUDED.expires;
    RETURN NULL;
END $$;

CREATE FUNCTION {{rules}}.shard_release_lock(p_primary text, p_shard text, p_value text, p_lock_timeout_ms bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{rules}}.shard_lock_shard(p_shard, p_lock_timeout_ms);
    PERFORM pg_advisory_xact_lock(hashtext({{channel}} || ' shard lock'), hashtext(p_primary));
    DELETE FROM {{schema}}.shard_lock k WHERE k.primary_id = p_primary AND k.value = p_value;
END $$;

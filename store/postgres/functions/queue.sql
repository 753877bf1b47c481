-- Delivery of queues: the exchange with a dispatcher.
--
-- The claim row of a key is only locked while messages are delivered: what changes
-- with each of them is written in the row of the message, so that no row is written
-- again and again. Its "done" follows from time to time. The tail row of a key
-- belongs to those who enqueue, who lock it, and changes only when the key becomes
-- idle: which a transaction with an older snapshot meets as a serialization failure.
--
-- Locks are taken in this order, and what comes before is never waited for:
-- Dispatchers: claims in the order of their keys, the messages of these, tails (never
-- waited for). Enqueuers: tails in order, then the claims of idle keys, which no
-- dispatcher holds. Operators: the claim, then the message; for a message that is
-- finished, which dispatchers do not touch, the message, then as an enqueuer. A removal: all
-- tails of its queue, and before them its advisory lock, which an enqueuer of more than one
-- message, or to a new key, has before its first tail, too.

-- One exchange with a dispatcher. The keys are sorted, and each is there once: with a
-- result if its term in p_rterms is not null, and to be begun with if that in
-- p_bterms is not. Every key is one row of the answer. What is polled has been undecided since its submission.
CREATE FUNCTION {{rules}}.exchange(p_queue text, p_session text, p_restart boolean, p_window bigint, p_keys text[], p_bterms bigint[],
    p_rterms bigint[], p_seqs bigint[], p_states text[], p_afters text[], p_waits bigint[], p_attempts integer[], p_codes integer[],
    p_details text[], p_links text[], p_lock_timeout_ms bigint)
RETURNS TABLE (key text, accepted boolean, holding text, work text, seq bigint, term bigint, attempt integer, id text,
    content_type text, age bigint, code integer, detail text, link text, payload bytea, headers text, retried boolean,
    undecided bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    t timestamptz;
    v_space text := 'queue/' || p_queue;
    v_lives boolean;
    v_n int := coalesce(cardinality(p_keys), 0);
    v_none boolean[] := array_fill(false, ARRAY[v_n]);
    v_accepted boolean[] := v_none;
    v_holding text[] := array_fill(NULL::text, ARRAY[v_n]);
    v_work text[] := v_holding;
    v_tid tid[];                 -- of the claim, as are the next three
    v_term bigint[];             -- null when it is not this session's
    v_done bigint[];
    v_interrupted boolean[];
    v_was_blocked boolean[];
    v_after bigint[] := array_fill(NULL::bigint, ARRAY[v_n]); -- the head is looked for behind this
    h_tid tid[] := array_fill(NULL::tid, ARRAY[v_n]);
    h_seq bigint[] := v_after;
    h_state text[] := v_holding;
    h_step boolean[] := v_none;
    h_size int[] := array_fill(0, ARRAY[v_n]);
    v_empty text[] := '{}';
    v_given boolean[] := v_none;
    v_ready timestamptz[] := array_fill(NULL::timestamptz, ARRAY[v_n]); -- of a key that is given back; null: not at all
    v_blocked text[] := v_holding;
    v_changed boolean := false;
    v_bytes bigint := 0;
    v_woken bigint := 0;
    i int;
    r record;
BEGIN
    PERFORM {{rules}}.configure_key_statement(p_lock_timeout_ms);
    PERFORM {{rules}}.require_queue(p_queue);
    SELECT array_agg(c.tid), array_agg(c.term), array_agg(c.done), array_agg(c.interrupted), array_agg(c.blocked) INTO v_tid, v_term, v_done, v_interrupted, v_was_blocked
      FROM unnest(p_keys) k (key) LEFT JOIN LATERAL (
        SELECT c.ctid AS tid, c.term, c.done, c.interrupted, c.blocked IS NOT NULL AS blocked FROM {{schema}}.claim c
         WHERE c.space = v_space AND c.key = k.key AND c.session = p_session AND p_session <> '' FOR NO KEY UPDATE) c ON true;
    t := {{schema}}.clock();
    v_lives := {{rules}}.is_alive(p_session, t);

    FOR i IN SELECT {{rules}}.record_results(p_queue, t, p_keys, p_rterms, v_term, v_done, p_seqs, p_states, p_afters,
        p_attempts, p_codes, p_details, p_links)
    LOOP
        v_accepted[i] := true;
    END LOOP;
    FOR i IN 1 .. v_n LOOP
        IF v_accepted[i] AND p_afters[i] IN ('again', 'block') THEN
            v_given[i] := true;
            v_holding[i] := 'given';
            v_changed := true;
            IF p_afters[i] = 'again' THEN
                v_ready[i] := t + {{rules}}.microseconds(p_waits[i]);
                v_woken := v_woken + (p_waits[i] <= 0)::int;
            END IF;
        ELSIF v_term[i] IS NULL OR v_term[i] <> coalesce(p_bterms[i], p_rterms[i]) THEN
            v_holding[i] := 'lost';
        ELSIF v_accepted[i] AND p_afters[i] = 'next' THEN
            v_after[i] := p_seqs[i];
        ELSE
            v_after[i] := v_done[i];
        END IF;
        IF v_accepted[i] AND p_afters[i] IN ('block', 'stuck') THEN
            v_blocked[i] := coalesce(nullif(p_details[i], ''), p_states[i]);
        END IF;
        v_changed := v_changed OR v_accepted[i] AND (v_interrupted[i] OR v_was_blocked[i] OR v_blocked[i] IS NOT NULL);
    END LOOP;

    FOR pass IN 1 .. 2 LOOP
        FOR r IN
            SELECT x.i, h.* FROM unnest(p_keys, v_after) WITH ORDINALITY x (key, after, i), LATERAL {{rules}}.head(p_queue, x.key, x.after) h
             WHERE x.after IS NOT NULL
        LOOP
            h_tid[r.i] := r.tid;
            h_seq[r.i] := r.seq;
            h_state[r.i] := r.state;
            h_step[r.i] := r.hold IS NOT NULL AND r.term = v_term[r.i];
            h_size[r.i] := r.size;
        END LOOP;
        FOR i IN 1 .. v_n LOOP
            v_after[i] := NULL;
            IF v_holding[i] IS NOT NULL THEN
                CONTINUE;
            ELSIF h_seq[i] IS NULL THEN
                v_empty := v_empty || p_keys[i];
                CONTINUE;
            END IF;
            v_changed := v_changed OR h_seq[i] > v_done[i] + 64;
            IF h_state[i] IN ('pending', 'valid') AND (p_bterms[i] IS NULL OR NOT v_lives OR v_accepted[i]) THEN
                v_holding[i] := 'held';
            ELSIF h_state[i] NOT IN ('pending', 'valid') AND h_step[i] AND NOT (p_restart AND p_bterms[i] IS NOT NULL) THEN
                v_holding[i] := 'held';
            ELSIF p_bterms[i] IS NULL OR NOT v_lives OR v_bytes > 0 AND v_bytes + h_size[i] > 33554432 THEN
                v_holding[i] := 'ready'; -- more would be too much for one answer
            ELSE
                v_bytes := v_bytes + h_size[i];
                v_holding[i] := 'held';
                v_work[i] := CASE
                    WHEN h_state[i] IN ('pending', 'valid') THEN 'poll'
                    WHEN h_state[i] = 'unknown' OR v_interrupted[i] AND NOT v_accepted[i] THEN 'ask'
                    WHEN h_step[i] THEN 'resend'
                    ELSE 'send' END;
            END IF;
        END LOOP;
        EXIT WHEN v_empty = '{}';
        -- Those with no head are idle, unless they get one at this very moment.
        SELECT * INTO r FROM {{rules}}.mark_idle(p_queue, v_empty);
        v_empty := '{}';
        FOR i IN 1 .. v_n LOOP
            IF v_holding[i] IS NOT NULL THEN
                CONTINUE;
            ELSIF p_keys[i] = ANY (r.idle || r.busy) THEN
                v_changed := true;
                v_given[i] := true;
                v_holding[i] := 'given';
                -- A busy one has a message when an enqueuer's long commit ends: its next
                -- holder will see.
                v_ready[i] := CASE WHEN p_keys[i] = ANY (r.busy) THEN t END;
            ELSE
                v_after[i] := v_done[i];
            END IF;
        END LOOP;
    END LOOP;

    IF v_changed THEN
        PERFORM {{rules}}.scan_by_ctid_only(true);
        UPDATE {{schema}}.claim c
           SET interrupted = c.interrupted AND NOT x.accepted,
               done = greatest(c.done, x.head - 1, CASE WHEN x.accepted AND x.after = 'next' THEN x.seq END),
               session = CASE WHEN x.given THEN '' ELSE c.session END, since = CASE WHEN x.given THEN t ELSE c.since END,
               ready_at = CASE WHEN x.given THEN x.ready ELSE c.ready_at END,
               blocked = CASE WHEN x.given OR x.accepted THEN x.blocked ELSE c.blocked END
          FROM unnest(v_tid, v_accepted, p_afters, p_seqs, v_given, v_ready, v_blocked, v_was_blocked, v_interrupted, v_done, h_seq)
               x (tid, accepted, after, seq, given, ready, blocked, was_blocked, interrupted, done, head)
         WHERE c.ctid = x.tid AND (x.given OR x.accepted AND (x.interrupted OR x.was_blocked OR x.blocked IS NOT NULL) OR x.head > x.done + 64);
        PERFORM {{rules}}.scan_by_ctid_only(false);
        INSERT INTO {{schema}}.event (at, part, subject, from_label, to_label, term, reason, duration_ns)
        SELECT t, 'batch', p_queue || '/' || x.key, coalesce(h.label, ''), coalesce(h.label, ''), x.term,
               {{rules}}.shorten_reason(coalesce('blocked: ' || x.blocked, 'unblocked: ' || x.state)), 0
          FROM unnest(p_keys, v_term, v_accepted, v_blocked, v_was_blocked, p_afters, p_states) x (key, term, accepted, blocked, was_blocked, after, state)
          LEFT JOIN LATERAL (SELECT {{rules}}.label(s.name, s.instance_id) AS label FROM {{schema}}.session s WHERE s.id = p_session OFFSET 0) h ON true
         WHERE x.accepted AND (x.after = 'block' OR (x.blocked IS NOT NULL) <> x.was_blocked);
        IF v_woken > 0 THEN
            PERFORM {{rules}}.wake_members(v_space, v_woken);
        END IF;
    END IF;

    RETURN QUERY SELECT x.key, x.accepted, CASE WHEN v_lives THEN x.holding ELSE 'lost' END, x.work, b.seq, x.term, b.attempts, b.id, b.content_type,
            {{rules}}.nanoseconds(t - b.enqueued) / 1000, 0, '', b.link, b.payload, b.headers::text, false, {{rules}}.nanoseconds(t - b.begun) / 1000
      FROM unnest(p_keys, v_accepted, v_holding, v_work, v_term, h_tid) x (key, accepted, holding, work, term, tid)
      LEFT JOIN LATERAL (SELECT b.* FROM {{schema}}.batch b WHERE b.ctid = x.tid OFFSET 0) b ON x.work = 'poll'
     WHERE x.work IS NULL OR x.work = 'poll';
    IF 'send' = ANY (v_work) OR 'ask' = ANY (v_work) OR 'resend' = ANY (v_work) THEN
        RETURN QUERY SELECT b.key, NULL::boolean, 'held', CASE WHEN b.state = 'unknown' THEN 'ask' ELSE 'send' END, b.seq, b.term, b.attempts,
                b.id, b.content_type, {{rules}}.nanoseconds(t - b.enqueued) / 1000, b.code, b.detail, b.link, b.payload, b.headers::text,
                b.state <> 'unknown' AND coalesce(b.trail @? '$[*] ? (@.action starts with "retry")', false), 0::bigint
          FROM {{rules}}.start_heads(t, t + {{rules}}.microseconds(p_window),
            ARRAY(SELECT x.tid FROM unnest(h_tid, v_work) x (tid, work) WHERE x.work <> 'poll'),
            ARRAY(SELECT x.term FROM unnest(v_term, v_work) x (term, work) WHERE x.work <> 'poll'),
            ARRAY(SELECT x.work FROM unnest(v_work) x (work) WHERE x.work <> 'poll')) b;
        -- … and of those that were begun, whether their result was accepted.
        RETURN QUERY SELECT x.key, x.accepted, 'held', NULL::text, NULL::bigint, NULL::bigint, NULL::int, NULL::text, NULL::text, NULL::bigint, NULL::int, NULL::text, NULL::text, NULL::bytea, NULL::text, false, 0::bigint
          FROM unnest(p_keys, v_accepted, v_work, p_rterms) x (key, accepted, work, rterm)
         WHERE x.work <> 'poll' AND x.rterm IS NOT NULL;
    END IF;
END $$;

-- Records results where the claim is held, and returns the places of those in the list. What a result means for its message is
-- decided by the caller (dispatch/rule.go): p_states and p_afters. An attempt that was certainly not sent is no attempt: p_attempts may be one less.
CREATE FUNCTION {{rules}}.record_results(p_queue text, t timestamptz, p_keys text[], p_terms bigint[], p_held bigint[], p_done bigint[],
    p_seqs bigint[], p_states text[], p_afters text[], p_attempts integer[], p_codes integer[], p_details text[], p_links text[])
RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    v_tids tid[];
BEGIN
    -- What was begun with is the head; of what was not, that has to be looked up.
    v_tids := ARRAY(SELECT l.tid FROM unnest(p_keys, p_terms, p_held, p_done, p_seqs) x (key, term, held, done, seq) LEFT JOIN LATERAL (
        SELECT b.ctid AS tid FROM {{schema}}.batch b
         WHERE b.queue = p_queue AND b.key = x.key AND b.seq = x.seq AND NOT b.over AND b.state NOT IN ('invalid', 'failed')
           AND (b.state <> 'queued' OR b.seq = (SELECT h.seq FROM {{rules}}.head(p_queue, x.key, x.done) h))
        OFFSET 0) l ON x.term = x.held);
    PERFORM {{rules}}.scan_by_ctid_only(true);
    RETURN QUERY UPDATE {{schema}}.batch b
       SET state = x.state, over = x.after = 'next', hold = NULL, term = x.term,
           ended = CASE WHEN x.after = 'next' OR x.state IN ('committed', 'invalid', 'failed') THEN t END,
           aside = CASE WHEN x.state IN ('invalid', 'failed') THEN true END,
           attempts = x.attempt, code = x.code, detail = x.detail,
           link = CASE WHEN x.link = '' THEN b.link ELSE x.link END,
           trail = CASE WHEN b.trail IS NOT NULL OR b.state <> 'submitting' OR x.state <> 'committed'
                        THEN {{rules}}.append_to_trail(b, {{rules}}.trail_entry(t, x.state, x.term, x.attempt, x.code, x.detail)) END
      FROM unnest(v_tids, p_terms, p_states, p_afters, p_attempts, p_codes, p_details, p_links) WITH ORDINALITY
           x (tid, term, state, after, attempt, code, detail, link, i)
     WHERE b.ctid = x.tid
    RETURNING x.i;
    PERFORM {{rules}}.scan_by_ctid_only(false);
END $$;

-- Marks keys that have nothing to do as idle, and returns which; those that got a
-- message meanwhile are not among them. The claims are locked. A tail that an enqueuer
-- has locked is waited for a moment; "busy" are those that stay locked.
CREATE FUNCTION {{rules}}.mark_idle(p_queue text, p_keys text[], OUT idle text[], OUT busy text[]) LANGUAGE plpgsql AS $$
DECLARE
    v_tids tid[] := '{}';
    v_lasts bigint[];
    v_key text;
    r record;
BEGIN
    idle := '{}';
    busy := p_keys;
    FOR try IN 1 .. 8 LOOP -- a commit's time
        FOR r IN
            SELECT k.key, l.tid, l.last FROM unnest(busy) k (key), LATERAL (
                SELECT e.ctid AS tid, e.last FROM {{schema}}.tail e WHERE e.queue = p_queue AND e.key = k.key FOR NO KEY UPDATE SKIP LOCKED) l
        LOOP
            idle := idle || r.key;
            v_tids := v_tids || r.tid;
            v_lasts := v_lasts || r.last;
            busy := array_remove(busy, r.key);
        END LOOP;
        EXIT WHEN busy = '{}';
        -- Perhaps who had it locked is through, and the key has something to do.
        busy := ARRAY(SELECT k.key FROM unnest(busy) k (key)
            LEFT JOIN LATERAL (SELECT c.done FROM {{schema}}.claim c WHERE c.space = 'queue/' || p_queue AND c.key = k.key OFFSET 0) c ON true
            WHERE NOT EXISTS (SELECT FROM {{rules}}.head(p_queue, k.key, c.done) OFFSET 0));
        EXIT WHEN busy = '{}';
        PERFORM pg_sleep(0.001 * (try + 1) / 2);
    END LOOP;
    -- In a statement of its own, which sees what the last holders of the locks did.
    SELECT coalesce(array_agg(k.key), '{}'), array_agg(k.tid), array_agg(greatest(k.last, m.last)) INTO idle, v_tids, v_lasts
      FROM unnest(idle, v_tids, v_lasts) k (key, tid, last)
      LEFT JOIN LATERAL (SELECT c.done FROM {{schema}}.claim c WHERE c.space = 'queue/' || p_queue AND c.key = k.key OFFSET 0) c ON true
      LEFT JOIN LATERAL (SELECT b.seq AS last FROM {{schema}}.batch b
        WHERE b.queue = p_queue AND b.key = k.key AND b.seq > k.last ORDER BY b.seq DESC LIMIT 1) m ON true
     WHERE NOT EXISTS (SELECT FROM {{rules}}.head(p_queue, k.key, c.done) OFFSET 0);
    PERFORM {{rules}}.scan_by_ctid_only(true);
    UPDATE {{schema}}.tail e SET last = x.last FROM unnest(v_tids, v_lasts) x (tid, last) WHERE e.ctid = x.tid;
    PERFORM {{rules}}.scan_by_ctid_only(false);
    -- A key that nothing was ever enqueued to was offered by hand.
    FOREACH v_key IN ARRAY busy LOOP
        IF NOT EXISTS (SELECT FROM {{schema}}.tail e WHERE e.queue = p_queue AND e.key = v_key) THEN
            idle := idle || v_key;
            busy := array_remove(busy, v_key);
        END IF;
    END LOOP;
END $$;

-- Starts the work on heads: a send counts as an attempt, and starts a step, which "hold" bounds.
CREATE FUNCTION {{rules}}.start_heads(t timestamptz, p_hold timestamptz, p_tids tid[], p_terms bigint[], p_works text[])
RETURNS SETOF {{schema}}.batch LANGUAGE plpgsql AS $$
BEGIN
    PERFORM {{rules}}.scan_by_ctid_only(true);
    RETURN QUERY UPDATE {{schema}}.batch b
       SET hold = p_hold, term = x.term,
           state = CASE WHEN x.work = 'ask' THEN 'unknown' ELSE 'submitting' END,
           begun = CASE WHEN x.work = 'ask' THEN b.begun ELSE t END,
           attempts = CASE WHEN x.work = 'send' THEN b.attempts + 1 ELSE b.attempts END,
           code = CASE WHEN x.work = 'ask' THEN b.code ELSE 0 END, detail = CASE WHEN x.work = 'ask' THEN b.detail ELSE '' END,
           trail = CASE WHEN x.work = 'ask' AND b.state <> 'unknown'
                        THEN {{rules}}.append_to_trail(b, {{rules}}.trail_entry(t, 'unknown', x.term, b.attempts, 0, 'its instance was interrupted'))
                        WHEN x.work = 'send' AND (b.trail IS NOT NULL OR b.attempts > 0)
                        THEN {{rules}}.append_to_trail(b, {{rules}}.trail_entry(t, 'submitting', x.term, b.attempts + 1, 0, ''))
                        ELSE b.trail END
      FROM unnest(p_tids, p_terms, p_works) x (tid, term, work)
     WHERE b.ctid = x.tid
    RETURNING b.*;
    PERFORM {{rules}}.scan_by_ctid_only(false);
END $$;

-- What is first in the order of a key and not over.
CREATE TYPE {{rules}}.head AS (tid tid, seq bigint, state text, term bigint, hold timestamptz, size integer);

CREATE FUNCTION {{rules}}.head(p_queue text, p_key text, p_after bigint) RETURNS SETOF {{rules}}.head LANGUAGE sql STABLE ROWS 1 AS $$
    SELECT b.ctid, b.seq, b.state, b.term, b.hold, octet_length(b.payload) FROM {{schema}}.batch b
     WHERE b.queue = p_queue AND b.key = p_key AND b.seq > p_after AND NOT b.over ORDER BY b.seq LIMIT 1
$$;

CREATE FUNCTION {{rules}}.trail_entry(at timestamptz, state text, term bigint, attempt integer, code integer, detail text, action text DEFAULT '') RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_strip_nulls(jsonb_build_object('at', at, 'state', state, 'term', nullif(term, 0), 'attempt', nullif(attempt, 0),
        'code', nullif(code, 0), 'detail', nullif(detail, ''), 'action', nullif(action, '')))
$$;

-- The message's trail with one more entry; the oldest give way, but for the latest retry (as dispatch.TruncateTrail says). When it
-- was queued is in no trail, but as the first entry if it went to the end of its key since; of a message that has no trail yet, the
-- first submission is in the columns.
CREATE FUNCTION {{rules}}.append_to_trail(b {{schema}}.batch, p_entry jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_trail jsonb := b.trail;
    v_oldest int := 0; -- that may give way
BEGIN
    IF v_trail IS NULL THEN
        v_trail := '[]';
        IF b.begun IS NOT NULL THEN
            v_trail := jsonb_build_array({{rules}}.trail_entry(b.begun, 'submitting', b.term, b.attempts, 0, ''));
        END IF;
    END IF;
    v_trail := v_trail || p_entry;
    IF v_trail -> 0 ->> 'state' = 'queued' AND v_trail -> 0 ->> 'action' IS NULL THEN
        v_oldest := 1;
    END IF;
    IF jsonb_array_length(v_trail) > 49 + v_oldest THEN
        IF v_trail -> v_oldest ->> 'action' LIKE 'retry%' AND NOT (v_trail - v_oldest) @? '$[*] ? (@.action starts with "retry")' THEN
            v_oldest := v_oldest + 1;
        END IF;
        v_trail := v_trail - v_oldest;
    END IF;
    RETURN v_trail;
END $$;

CREATE FUNCTION {{rules}}.require_queue(p_queue text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM {{schema}}.queue q WHERE q.name = p_queue) THEN
        RAISE EXCEPTION 'understudy: there is no queue %', coalesce(quote_literal(p_queue), 'null') USING
            ERRCODE = 'US002', HINT = 'Create it first: its deliverers do, or "understudy queue add --create".';
    END IF;
END $$;

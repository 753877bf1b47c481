CREATE FUNCTION {{rules}}.refuse_term(p_space text, p_key text, p_term bigint, l {{schema}}.lease) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'understudy: term % of %/% is not current', p_term, p_space, p_key USING
        ERRCODE = 'US001',
        DETAIL = CASE
            WHEN l.term IS NULL THEN 'The lease was never held.'
            WHEN l.session = '' THEN format('The lease is free; its last term was %s.', l.term)
            ELSE format('The lease is held under term %s.', l.term) END,
        HINT = 'Another instance may do this work now: stop, and do not try again under this term.';
END $$;

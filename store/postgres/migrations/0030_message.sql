-- readers: 11
-- Where the Go package enqueues: the messages' own columns, of the table, by which a caller is spared the function enqueue. Who may
-- call that may insert here; the trigger number_batches checks both.
CREATE VIEW {{schema}}.message AS SELECT b.queue, b.key, b.id, b.content_type, b.payload FROM {{schema}}.batch b;
DO $$ BEGIN
    IF coalesce(has_function_privilege('public', to_regprocedure('{{schema}}.enqueue(text, text, bytea, text, text)'), 'EXECUTE'), true) THEN
        GRANT INSERT ON {{schema}}.message TO PUBLIC;
        GRANT USAGE ON SEQUENCE {{schema}}.batch_n TO PUBLIC;
        GRANT SELECT (name) ON {{schema}}.queue TO PUBLIC;
    END IF;
END $$;
-- Functions with the owner's rights call these, whatever the search_path of their callers is.
CREATE OR REPLACE FUNCTION {{schema}}.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$ SELECT pg_catalog.clock_timestamp() $$;
CREATE OR REPLACE FUNCTION {{schema}}.new_id() RETURNS text LANGUAGE sql VOLATILE
AS $$ SELECT pg_catalog.md5(pg_catalog.concat_ws(' ', pg_catalog.random(), pg_catalog.random(), pg_catalog.random(),
    pg_catalog.clock_timestamp(), pg_catalog.pg_backend_pid())) $$;

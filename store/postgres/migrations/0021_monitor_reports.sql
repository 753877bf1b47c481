-- readers: 11
-- The newest report of each source, the run that it is in, reminders of alarms, and the secret that signs links.
CREATE TABLE {{schema}}.monitor_report (
    id   bigint PRIMARY KEY REFERENCES {{schema}}.monitor_source ON DELETE CASCADE,
    at   timestamptz NOT NULL,
    kind text NOT NULL,
    code integer NOT NULL,
    run  text NOT NULL,
    body bytea NOT NULL
);

ALTER TABLE {{schema}}.monitor_beat ADD COLUMN run_key bigint NOT NULL DEFAULT 0;

ALTER TABLE {{schema}}.monitor_alarm ADD COLUMN reminded timestamptz; -- NULL: when it was raised
ALTER TABLE {{schema}}.monitor_alarm ADD COLUMN reminders integer NOT NULL DEFAULT 0;

ALTER TABLE {{schema}}.monitor_setting ADD COLUMN secret bytea NOT NULL DEFAULT '';
UPDATE {{schema}}.monitor_setting SET secret = sha256((gen_random_uuid()::text || gen_random_uuid()::text)::bytea);

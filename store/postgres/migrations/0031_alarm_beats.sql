-- readers: 11
-- How many heartbeats its source had sent when an alarm was raised: more of them since have ended it, and not a configuration. Null
-- in the alarms of a version before.
ALTER TABLE {{schema}}.monitor_alarm ADD COLUMN beats bigint;

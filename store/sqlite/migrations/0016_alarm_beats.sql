-- readers: 5
-- How many heartbeats its source had sent when an alarm was raised: more of them since have ended it, and not a configuration. NULL
-- in the alarms of a version before.
ALTER TABLE understudy_monitor_alarm ADD COLUMN beats INTEGER;

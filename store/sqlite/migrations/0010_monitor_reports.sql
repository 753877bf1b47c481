-- readers: 5
-- The newest report of each source, the run that it is in, reminders of alarms, and the secret that signs links.
CREATE TABLE understudy_monitor_report (
  id     INTEGER PRIMARY KEY,  -- of the source
  at_us  INTEGER NOT NULL,     -- wall time
  kind   TEXT    NOT NULL,
  code   INTEGER NOT NULL,
  run    TEXT    NOT NULL,
  body   BLOB    NOT NULL
) STRICT;

CREATE TRIGGER understudy_monitor_report_gone AFTER DELETE ON understudy_monitor_source
BEGIN
  DELETE FROM understudy_monitor_report WHERE id = OLD.id;
END;

ALTER TABLE understudy_monitor_beat ADD COLUMN run_key INTEGER NOT NULL DEFAULT 0;

-- By the id under which it is pinged. A source without labels has ''.
CREATE INDEX understudy_monitor_source_ping ON understudy_monitor_source (event, json_extract(labels, '$.ping')) WHERE labels <> '';

ALTER TABLE understudy_monitor_alarm ADD COLUMN reminded_us INTEGER NOT NULL DEFAULT 0; -- wall time; 0: when it was raised
ALTER TABLE understudy_monitor_alarm ADD COLUMN reminders INTEGER NOT NULL DEFAULT 0;

ALTER TABLE understudy_monitor ADD COLUMN secret BLOB NOT NULL DEFAULT x'';
UPDATE understudy_monitor SET secret = randomblob(32);

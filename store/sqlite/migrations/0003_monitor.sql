-- The monitor. Times named *_us are microseconds on the monitor's own clock, but
-- for those of which it is said that they are wall time. 0 is never, unless NULL is.

-- The clock, as it was when something was stored last, and what all instances share.
CREATE TABLE understudy_monitor (
  one           INTEGER PRIMARY KEY CHECK (one = 1),
  boot          TEXT    NOT NULL DEFAULT '',
  boot_us       INTEGER NOT NULL DEFAULT 0,  -- on the boot-time clock of that boot
  moment_us     INTEGER NOT NULL DEFAULT 0,
  wall_us       INTEGER NOT NULL DEFAULT 0,  -- wall time
  generation    INTEGER NOT NULL DEFAULT 1,
  configured_us INTEGER NOT NULL DEFAULT 0,  -- wall time
  origin        TEXT    NOT NULL DEFAULT '',
  error         TEXT    NOT NULL DEFAULT ''
) STRICT;

INSERT INTO understudy_monitor (one) VALUES (1);

-- "config" is as it was configured, with its defaults; "paused" is what holds.
-- "spread" is the name of the source up to which all were made due since the event
-- changed; NULL when all were.
CREATE TABLE understudy_monitor_event (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  name      TEXT    NOT NULL UNIQUE,
  config    TEXT    NOT NULL,
  paused    INTEGER NOT NULL,
  rev       INTEGER NOT NULL DEFAULT 1,
  base_us   INTEGER NOT NULL DEFAULT 0,
  removed   INTEGER NOT NULL DEFAULT 0,
  flaps     INTEGER NOT NULL,
  window_us INTEGER NOT NULL,
  every_us  INTEGER NOT NULL,
  spread    TEXT
) STRICT;

CREATE INDEX understudy_monitor_event_spread ON understudy_monitor_event (id) WHERE spread IS NOT NULL;
CREATE INDEX understudy_monitor_event_removed ON understudy_monitor_event (id) WHERE removed = 1;

-- How many sources of an event there are: counted by triggers, so that no page counts.
CREATE TABLE understudy_monitor_count (
  event    INTEGER PRIMARY KEY,
  up       INTEGER NOT NULL DEFAULT 0,
  down     INTEGER NOT NULL DEFAULT 0,
  paused   INTEGER NOT NULL DEFAULT 0,
  retired  INTEGER NOT NULL DEFAULT 0,
  unseen   INTEGER NOT NULL DEFAULT 0,
  standing INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TRIGGER understudy_monitor_event_made AFTER INSERT ON understudy_monitor_event
BEGIN
  INSERT INTO understudy_monitor_count (event) VALUES (NEW.id);
END;

CREATE TRIGGER understudy_monitor_event_gone AFTER DELETE ON understudy_monitor_event
BEGIN
  DELETE FROM understudy_monitor_count WHERE event = OLD.id;
END;

-- What changes seldom of a source. due_us NULL: nobody has to look.
CREATE TABLE understudy_monitor_source (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  event    INTEGER NOT NULL,
  name     TEXT    NOT NULL,
  labels   TEXT    NOT NULL DEFAULT '',  -- JSON, '' for none
  declared INTEGER NOT NULL DEFAULT 0,
  seen     INTEGER NOT NULL DEFAULT 0,   -- it has beaten
  state    TEXT    NOT NULL DEFAULT 'up',
  rev      INTEGER NOT NULL DEFAULT 1,
  due_us   INTEGER,
  base_us  INTEGER NOT NULL,
  until_us INTEGER NOT NULL DEFAULT 0,
  ended_us INTEGER NOT NULL DEFAULT 0,
  asked    INTEGER NOT NULL DEFAULT 0,
  alarm    TEXT    NOT NULL DEFAULT '',  -- that stands
  reason   TEXT    NOT NULL DEFAULT '',
  onset_us INTEGER NOT NULL DEFAULT 0,
  well_us  INTEGER NOT NULL DEFAULT 0,
  note     TEXT    NOT NULL DEFAULT '',
  UNIQUE (event, name)
) STRICT;

CREATE INDEX understudy_monitor_source_due ON understudy_monitor_source (id % 64, due_us) WHERE due_us IS NOT NULL;
CREATE INDEX understudy_monitor_source_old ON understudy_monitor_source (ended_us) WHERE state = 'retired' AND declared = 0;
CREATE INDEX understudy_monitor_source_state ON understudy_monitor_source (event, state, name);

-- What changes with every beat, and no more. It has no index but its rowid. A beat of
-- a source that is watched, in a run or failing makes it due; of all others it
-- changes this row alone. "recent" has a bit for each of the last 64 times every_us,
-- the lowest for the one in which the last beat came.
CREATE TABLE understudy_monitor_beat (
  id       INTEGER PRIMARY KEY,
  at_us    INTEGER NOT NULL DEFAULT 0,
  recent   INTEGER NOT NULL DEFAULT 0,
  every_us INTEGER NOT NULL,
  blind_us INTEGER NOT NULL DEFAULT 0,
  path     INTEGER NOT NULL DEFAULT 0,
  sent_us  INTEGER NOT NULL DEFAULT 0,  -- by the sender's clock
  seq      INTEGER NOT NULL DEFAULT 0,
  code     INTEGER NOT NULL DEFAULT 0,
  beats    INTEGER NOT NULL DEFAULT 0,
  starts   INTEGER NOT NULL DEFAULT 0,
  run_us   INTEGER NOT NULL DEFAULT 0,
  failing  INTEGER NOT NULL DEFAULT 0,
  watched  INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TRIGGER understudy_monitor_source_made AFTER INSERT ON understudy_monitor_source
BEGIN
  UPDATE understudy_monitor_count
  SET up = up + (NEW.state = 'up'), down = down + (NEW.state = 'down'), paused = paused + (NEW.state = 'paused'),
      retired = retired + (NEW.state = 'retired'), unseen = unseen + (NEW.seen = 0 AND NEW.state IN ('up', 'down')),
      standing = standing + (NEW.alarm <> '')
  WHERE event = NEW.event;
  INSERT INTO understudy_monitor_beat (id, every_us)
  SELECT NEW.id, every_us FROM understudy_monitor_event WHERE id = NEW.event;
END;

CREATE TRIGGER understudy_monitor_source_turned AFTER UPDATE OF state, seen, alarm ON understudy_monitor_source
BEGIN
  UPDATE understudy_monitor_count
  SET up = up + (NEW.state = 'up') - (OLD.state = 'up'), down = down + (NEW.state = 'down') - (OLD.state = 'down'),
      paused = paused + (NEW.state = 'paused') - (OLD.state = 'paused'),
      retired = retired + (NEW.state = 'retired') - (OLD.state = 'retired'),
      unseen = unseen + (NEW.seen = 0 AND NEW.state IN ('up', 'down')) - (OLD.seen = 0 AND OLD.state IN ('up', 'down')),
      standing = standing + (NEW.alarm <> '') - (OLD.alarm <> '')
  WHERE event = NEW.event;
END;

CREATE TRIGGER understudy_monitor_source_gone AFTER DELETE ON understudy_monitor_source
BEGIN
  UPDATE understudy_monitor_count
  SET up = up - (OLD.state = 'up'), down = down - (OLD.state = 'down'), paused = paused - (OLD.state = 'paused'),
      retired = retired - (OLD.state = 'retired'), unseen = unseen - (OLD.seen = 0 AND OLD.state IN ('up', 'down')),
      standing = standing - (OLD.alarm <> '')
  WHERE event = OLD.event;
  DELETE FROM understudy_monitor_beat WHERE id = OLD.id;
END;

-- "skipped": the clock has, and the path was not proven since.
CREATE TABLE understudy_monitor_path (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  name       TEXT    NOT NULL UNIQUE,
  proof_us   INTEGER NOT NULL DEFAULT 0,
  trust_us   INTEGER NOT NULL DEFAULT 0,
  gap_us     INTEGER NOT NULL DEFAULT 0,
  blind_us   INTEGER NOT NULL DEFAULT 0,
  resumed_us INTEGER NOT NULL DEFAULT 0,
  skipped    INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The alarm of a group has the source ''. "team" is the group's name, "lead" the
-- alarm of the group that it was reported with, "members" how many were reported
-- with this one, and "standing" how many of them stand. Wall times: started_us,
-- raised_us and ended_us.
CREATE TABLE understudy_monitor_alarm (
  n            INTEGER PRIMARY KEY,
  id           TEXT    NOT NULL UNIQUE,
  event        TEXT    NOT NULL,
  source       TEXT    NOT NULL,
  labels       TEXT    NOT NULL DEFAULT '',
  reason       TEXT    NOT NULL,
  onset_us     INTEGER NOT NULL,
  started_us   INTEGER NOT NULL,
  raised_us    INTEGER NOT NULL,
  ended_us     INTEGER,
  ended_by     TEXT    NOT NULL DEFAULT '',
  acknowledged TEXT    NOT NULL DEFAULT '',
  team         TEXT    NOT NULL DEFAULT '',
  held         INTEGER NOT NULL DEFAULT 0,
  lead         TEXT    NOT NULL DEFAULT '',
  members      INTEGER NOT NULL DEFAULT 0,
  standing     INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX understudy_monitor_alarm_raised ON understudy_monitor_alarm (raised_us, id);
CREATE INDEX understudy_monitor_alarm_standing ON understudy_monitor_alarm (raised_us, id) WHERE ended_us IS NULL;
CREATE INDEX understudy_monitor_alarm_event ON understudy_monitor_alarm (event, raised_us, id);
CREATE INDEX understudy_monitor_alarm_source ON understudy_monitor_alarm (source, raised_us, id);
CREATE INDEX understudy_monitor_alarm_ended ON understudy_monitor_alarm (ended_us) WHERE ended_us IS NOT NULL;
CREATE INDEX understudy_monitor_alarm_held ON understudy_monitor_alarm (team, onset_us) WHERE held = 1;
CREATE INDEX understudy_monitor_alarm_lead ON understudy_monitor_alarm (team) WHERE source = '' AND ended_us IS NULL;

CREATE TABLE understudy_monitor_sink (
  name TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE TABLE understudy_monitor_member (
  session    TEXT    NOT NULL PRIMARY KEY,
  process    INTEGER NOT NULL,
  host       TEXT    NOT NULL,
  service    TEXT    NOT NULL,
  active     INTEGER NOT NULL,
  partitions INTEGER NOT NULL,
  sinks      TEXT    NOT NULL,             -- JSON
  seen_us    INTEGER NOT NULL              -- wall time
) STRICT, WITHOUT ROWID;

CREATE TRIGGER understudy_monitor_member_left AFTER DELETE ON understudy_session
BEGIN
  DELETE FROM understudy_monitor_member WHERE session = OLD.id;
END;

-- The tables that people know from the first system of this kind, for programs that
-- read them. A view is left out where the file has something of that name already.
CREATE VIEW IF NOT EXISTS vnf_table_1 (event_name, heartbeat_missed_count, heartbeat_interval, closed_control_loop_name,
  policy_version, policy_name, policy_scope, target_type, target, version, source_name_count, validity_flag) AS
SELECT e.name, coalesce(e.config ->> '$.missed', 0), CAST((coalesce(e.config ->> '$.interval', 0) + 999999999) / 1000000000 AS INTEGER),
  coalesce(e.config ->> '$.control_loop.name', ''), coalesce(e.config ->> '$.control_loop.policy_version', ''),
  coalesce(e.config ->> '$.control_loop.policy_name', ''), coalesce(e.config ->> '$.control_loop.policy_scope', ''),
  coalesce(e.config ->> '$.control_loop.target_type', 'VNF'), coalesce(e.config ->> '$.control_loop.target', ''),
  coalesce(e.config ->> '$.control_loop.version', ''), c.up + c.down + c.paused + c.retired, 1 - e.removed
FROM understudy_monitor_event e JOIN understudy_monitor_count c ON c.event = e.id;

-- last_epo_time is the sender's, or, when it did not say, when it was received.
CREATE VIEW IF NOT EXISTS vnf_table_2 (event_name, source_name_key, last_epo_time, source_name, cl_flag) AS
SELECT e.name, row_number() OVER (PARTITION BY e.name ORDER BY s.id),
  CASE WHEN b.sent_us <> 0 THEN b.sent_us / 1000 WHEN b.at_us <> 0 THEN (b.at_us + m.wall_us - m.moment_us) / 1000 ELSE 0 END,
  s.name, s.alarm <> ''
FROM understudy_monitor m JOIN understudy_monitor_event e
JOIN understudy_monitor_source s ON s.event = e.id JOIN understudy_monitor_beat b ON b.id = s.id;

CREATE VIEW IF NOT EXISTS hb_common (process_id, source_name, last_accessed_time, current_state) AS
SELECT i.process, i.host || '-' || i.service, coalesce(s.renewed_us, i.seen_us) / 1000000,
  iif(m.configured_us = 0, 'RECONFIGURATION', 'RUNNING')
FROM understudy_monitor m JOIN understudy_monitor_member i LEFT JOIN understudy_session s ON s.id = i.session
ORDER BY i.active DESC, coalesce(s.ended, 1), coalesce(s.renewed_us, i.seen_us) DESC LIMIT 1;

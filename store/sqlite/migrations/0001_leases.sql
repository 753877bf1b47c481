-- Times named *_us are microseconds. Those of a session's deadline and of a
-- lease's reservation are on the boot-time clock of the kernel that "boot"
-- names; all others are wall time since 1970.

CREATE TABLE understudy_session (
  id          TEXT    NOT NULL PRIMARY KEY,
  instance    TEXT    NOT NULL,
  name        TEXT    NOT NULL,
  address     TEXT    NOT NULL,
  interval_us INTEGER NOT NULL,
  timeout_us  INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  boot        TEXT    NOT NULL,
  deadline_us INTEGER NOT NULL,
  ended       INTEGER NOT NULL DEFAULT 0,
  started_us  INTEGER NOT NULL,
  renewed_us  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A free lease has the session ''. Rows are never deleted: the term stays.
CREATE TABLE understudy_lease (
  space       TEXT    NOT NULL,
  key         TEXT    NOT NULL,
  term        INTEGER NOT NULL,
  session     TEXT    NOT NULL,
  since_us    INTEGER NOT NULL,
  successor   TEXT    NOT NULL DEFAULT '',
  reserved_us INTEGER NOT NULL DEFAULT 0,
  boot        TEXT    NOT NULL DEFAULT '',
  asked       INTEGER NOT NULL DEFAULT 0,
  asked_for   TEXT    NOT NULL DEFAULT '',
  PRIMARY KEY (space, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX understudy_lease_session ON understudy_lease (session) WHERE session <> '';

CREATE TABLE understudy_waiter (
  n       INTEGER PRIMARY KEY,
  space   TEXT NOT NULL,
  key     TEXT NOT NULL,
  session TEXT NOT NULL,
  UNIQUE (space, key, session)
) STRICT;

CREATE INDEX understudy_waiter_session ON understudy_waiter (session);

CREATE TRIGGER understudy_session_forgotten AFTER DELETE ON understudy_session
BEGIN
  DELETE FROM understudy_waiter WHERE session = OLD.id;
END;

-- AUTOINCREMENT: an id is never given twice, also after every event was trimmed.
-- "change" is what a watcher is told: 0 anything, 1 taken or asked for, 2 freed,
-- for the successor alone if that is not ''.
CREATE TABLE understudy_event (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  at_us       INTEGER NOT NULL,
  part        TEXT    NOT NULL,
  subject     TEXT    NOT NULL,
  from_label  TEXT    NOT NULL,
  to_label    TEXT    NOT NULL,
  term        INTEGER NOT NULL,
  reason      TEXT    NOT NULL,
  duration_ns INTEGER NOT NULL,
  change      INTEGER NOT NULL DEFAULT 0,
  successor   TEXT    NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX understudy_event_subject ON understudy_event (subject, part);

-- The table that people know from the first system of this kind. Like that
-- table it cannot tell the time: a holder that fell silent is shown, with the
-- time of its last heartbeat, until its session is ended.
CREATE VIEW heartbeats (uuid, utype, uname, timestamp) AS
SELECT iif(s.ended = 0, s.instance, ''), l.key, iif(s.ended = 0, s.name, ''),
       strftime('%Y-%m-%d %H:%M:%f', coalesce(s.renewed_us, l.since_us) / 1e6, 'unixepoch')
FROM understudy_lease l LEFT JOIN understudy_session s ON s.id = l.session
WHERE l.space = 'role';

-- INSERT INTO understudy_guard VALUES (space, key, term) rolls the transaction
-- back unless the lease is held under that term. The insert itself takes the
-- file's write lock, so that nobody can take the lease over before the commit.
CREATE VIEW understudy_guard (space, key, term) AS
SELECT l.space, l.key, l.term
FROM understudy_lease l JOIN understudy_session s ON s.id = l.session
WHERE s.ended = 0;

CREATE TRIGGER understudy_guard_check INSTEAD OF INSERT ON understudy_guard
WHEN NOT EXISTS (
  SELECT 1 FROM understudy_guard g
  WHERE g.space = NEW.space AND g.key = NEW.key AND g.term = NEW.term
)
BEGIN
  SELECT RAISE(ROLLBACK, 'understudy: the lease is not held under this term; the transaction was rolled back');
END;

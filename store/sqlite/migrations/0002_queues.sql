-- Keys of work. A free key has the session ''. Rows of queues are never deleted:
-- their terms and sequence numbers stay. Times named *_us are wall time in
-- microseconds since 1970, but for hold_us, which is on the boot-time clock of
-- the session's boot.
CREATE TABLE understudy_claim (
  space       TEXT    NOT NULL,
  key         TEXT    NOT NULL,
  term        INTEGER NOT NULL DEFAULT 0,
  session     TEXT    NOT NULL DEFAULT '',
  since_us    INTEGER NOT NULL,
  ready_us    INTEGER,                     -- NULL: idle, or blocked
  offered_us  INTEGER,                     -- when it was offered to be ready, since the step began
  step        INTEGER NOT NULL DEFAULT 0,  -- the term under which a step was begun, 0 when none is under way
  begun_us    INTEGER NOT NULL DEFAULT 0,  -- when the last one was begun
  hold_us     INTEGER NOT NULL DEFAULT 0,  -- until when it keeps others from the key
  interrupted INTEGER NOT NULL DEFAULT 0,  -- the term of a step that nobody knows the end of
  -- Of a queue's keys: the sequence number that was given last, the one up to
  -- which all are over, how many are not over, and how many are.
  last        INTEGER NOT NULL DEFAULT 0,
  done        INTEGER NOT NULL DEFAULT 0,
  waiting     INTEGER NOT NULL DEFAULT 0,
  over        INTEGER NOT NULL DEFAULT 0,
  blocked     INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (space, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX understudy_claim_free ON understudy_claim (space, ready_us) WHERE session = '' AND ready_us IS NOT NULL;
CREATE INDEX understudy_claim_held ON understudy_claim (session, space) WHERE session <> '';
CREATE INDEX understudy_claim_blocked ON understudy_claim (space, key) WHERE blocked = 1;

CREATE TABLE understudy_member (
  space   TEXT    NOT NULL,
  session TEXT    NOT NULL,
  asleep  INTEGER NOT NULL,
  PRIMARY KEY (space, session)
) STRICT, WITHOUT ROWID;

CREATE INDEX understudy_member_session ON understudy_member (session);

CREATE TRIGGER understudy_session_left AFTER DELETE ON understudy_session
BEGIN
  DELETE FROM understudy_member WHERE session = OLD.id;
END;

-- What watchers are told: a row for each member that is woken. A thousand are kept.
CREATE TABLE understudy_wake (
  n       INTEGER PRIMARY KEY AUTOINCREMENT,
  space   TEXT NOT NULL,
  session TEXT NOT NULL
) STRICT;

CREATE TRIGGER understudy_wake_up AFTER INSERT ON understudy_wake
BEGIN
  UPDATE understudy_member SET asleep = 0 WHERE space = NEW.space AND session = NEW.session;
  DELETE FROM understudy_wake WHERE n <= NEW.n - 1000;
END;

CREATE TABLE understudy_queue (
  name    TEXT    NOT NULL PRIMARY KEY,
  made_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- "submitting" is no state of this table: it is what the first batch of a key is
-- while its key is in a step. "trail" has only what the other columns do not tell.
CREATE TABLE understudy_batch (
  queue        TEXT    NOT NULL,
  key          TEXT    NOT NULL,
  seq          INTEGER NOT NULL,
  id           TEXT    NOT NULL,
  body         INTEGER NOT NULL,            -- of understudy_payload
  size         INTEGER NOT NULL,
  content_type TEXT    NOT NULL,
  state        TEXT    NOT NULL DEFAULT 'queued',
  blocks       INTEGER NOT NULL DEFAULT 0,
  attempts     INTEGER NOT NULL DEFAULT 0,
  term         INTEGER NOT NULL DEFAULT 0,
  code         INTEGER NOT NULL DEFAULT 0,
  detail       TEXT    NOT NULL DEFAULT '',
  link         TEXT    NOT NULL DEFAULT '',
  enqueued_us  INTEGER NOT NULL,
  begun_us     INTEGER,
  ended_us     INTEGER,
  trail        TEXT    NOT NULL DEFAULT '',
  PRIMARY KEY (queue, key, seq)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX understudy_batch_id ON understudy_batch (id, queue);
CREATE INDEX understudy_batch_state ON understudy_batch (queue, state, key, seq) WHERE state NOT IN ('queued', 'committed');
CREATE INDEX understudy_batch_ended ON understudy_batch (queue, ended_us) WHERE ended_us IS NOT NULL AND blocks = 0;

-- Apart from the batches, so that a change of state never writes a payload again.
CREATE TABLE understudy_payload (
  n       INTEGER PRIMARY KEY,
  payload BLOB    NOT NULL
) STRICT;

-- INSERT INTO understudy_enqueue (queue, key, id, payload, content_type) VALUES …
-- enqueues, in any transaction of any SQLite client. What has the id of a batch
-- of the queue is left out. id and content_type may be left out; enqueued_us is
-- the time now by default.
CREATE VIEW understudy_enqueue (queue, key, id, payload, content_type, enqueued_us) AS
SELECT b.queue, b.key, b.id, p.payload, b.content_type, b.enqueued_us
FROM understudy_batch b JOIN understudy_payload p ON p.n = b.body;

-- Nothing in here may depend on how a conflict is resolved: the caller's OR
-- REPLACE or OR IGNORE would hold for these statements too.
CREATE TRIGGER understudy_enqueue_insert INSTEAD OF INSERT ON understudy_enqueue
WHEN NOT EXISTS (SELECT 1 FROM understudy_batch WHERE id = NEW.id AND queue = NEW.queue)
BEGIN
  INSERT INTO understudy_claim (space, key, since_us)
  SELECT 'queue/' || NEW.queue, NEW.key, coalesce(NEW.enqueued_us, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))
  WHERE NOT EXISTS (SELECT 1 FROM understudy_claim WHERE space = 'queue/' || NEW.queue AND key = NEW.key);
  UPDATE understudy_claim SET last = last + 1, waiting = waiting + 1 WHERE space = 'queue/' || NEW.queue AND key = NEW.key;
  INSERT INTO understudy_payload (payload) VALUES (CAST(coalesce(NEW.payload, '') AS BLOB));
  INSERT INTO understudy_batch (queue, key, seq, id, body, size, content_type, enqueued_us)
  SELECT NEW.queue, NEW.key, c.last, coalesce(NEW.id, lower(hex(randomblob(16)))), last_insert_rowid(),
         length(CAST(coalesce(NEW.payload, '') AS BLOB)), coalesce(NEW.content_type, 'application/octet-stream'),
         coalesce(NEW.enqueued_us, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))
  FROM understudy_claim c WHERE c.space = 'queue/' || NEW.queue AND c.key = NEW.key;
  UPDATE understudy_claim SET ready_us = coalesce(NEW.enqueued_us, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))
  WHERE space = 'queue/' || NEW.queue AND key = NEW.key AND ready_us IS NULL AND blocked = 0;
  INSERT INTO understudy_wake (space, session)
  SELECT m.space, m.session FROM understudy_member m JOIN understudy_session s ON s.id = m.session
  WHERE changes() > 0 AND m.space = 'queue/' || NEW.queue AND m.asleep = 1 AND s.ended = 0
  ORDER BY s.renewed_us DESC LIMIT 1;
END;

-- Made last, because SQLite then has it speak first.
CREATE TRIGGER understudy_enqueue_check INSTEAD OF INSERT ON understudy_enqueue
BEGIN
  SELECT RAISE(ABORT, 'understudy: no such queue')
  WHERE NOT EXISTS (SELECT 1 FROM understudy_queue WHERE name = NEW.queue);
  SELECT RAISE(ABORT, 'understudy: the key must be text of 1 to 200 bytes without control characters or blanks at its ends')
  WHERE typeof(NEW.key) <> 'text' OR length(CAST(NEW.key AS BLOB)) NOT BETWEEN 1 AND 200 OR trim(NEW.key) <> NEW.key
     OR instr(CAST(NEW.key AS BLOB), x'00') > 0 OR NEW.key GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*';
  SELECT RAISE(ABORT, 'understudy: the batch id must be text of 1 to 200 bytes without control characters or blanks at its ends')
  WHERE NEW.id IS NOT NULL AND (typeof(NEW.id) <> 'text' OR length(CAST(NEW.id AS BLOB)) NOT BETWEEN 1 AND 200 OR trim(NEW.id) <> NEW.id
     OR instr(CAST(NEW.id AS BLOB), x'00') > 0 OR NEW.id GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*');
  SELECT RAISE(ABORT, 'understudy: the content type must be text of 1 to 200 bytes without control characters or blanks at its ends')
  WHERE NEW.content_type IS NOT NULL AND (typeof(NEW.content_type) <> 'text' OR length(CAST(NEW.content_type AS BLOB)) NOT BETWEEN 1 AND 200
     OR trim(NEW.content_type) <> NEW.content_type OR instr(CAST(NEW.content_type AS BLOB), x'00') > 0
     OR NEW.content_type GLOB '*[' || char(1) || '-' || char(31) || char(127) || ']*');
  SELECT RAISE(ABORT, 'understudy: the payload has more than 16 MiB')
  WHERE length(CAST(NEW.payload AS BLOB)) > 16777216;
END;

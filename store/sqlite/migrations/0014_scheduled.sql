-- readers: 5
-- Messages that are not to be sent before a time. They are in a table of their own until then, which no program knows that
-- does not wait for that time, and whose size is nobody's cost who delivers.
CREATE TABLE understudy_scheduled (
  n             INTEGER PRIMARY KEY, -- its place among them
  queue         TEXT    NOT NULL,
  key           TEXT    NOT NULL,
  id            TEXT    NOT NULL,
  content_type  TEXT    NOT NULL,
  headers       TEXT    NOT NULL,
  enqueued_us   INTEGER NOT NULL,
  not_before_us INTEGER NOT NULL,
  size          INTEGER NOT NULL,
  payload       BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX understudy_scheduled_id ON understudy_scheduled (id, queue);
CREATE INDEX understudy_scheduled_due ON understudy_scheduled (queue, not_before_us, n);
CREATE INDEX understudy_scheduled_key ON understudy_scheduled (queue, key, n);

-- With its triggers, which are made again below with the new column.
DROP VIEW understudy_enqueue;

-- INSERT INTO understudy_enqueue (queue, key, id, payload, content_type) VALUES …
-- enqueues, in any transaction of any SQLite client. What has the id of a batch
-- of the queue is left out. id and content_type may be left out; enqueued_us is
-- the time now by default; headers is a JSON object of strings; not_before_us is
-- when it may be sent, in microseconds since 1970.
CREATE VIEW understudy_enqueue (queue, key, id, payload, content_type, enqueued_us, headers, not_before_us) AS
SELECT b.queue, b.key, b.id, p.payload, b.content_type, b.enqueued_us, b.headers, NULL
FROM understudy_batch b JOIN understudy_payload p ON p.n = b.body;

-- Nothing in here may depend on how a conflict is resolved: the caller's OR
-- REPLACE or OR IGNORE would hold for these statements too.
CREATE TRIGGER understudy_enqueue_insert INSTEAD OF INSERT ON understudy_enqueue
WHEN coalesce(NEW.not_before_us, 0) <= coalesce(NEW.enqueued_us, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))
 AND NOT EXISTS (SELECT 1 FROM understudy_batch WHERE id = NEW.id AND queue = NEW.queue)
 AND (NEW.not_before_us IS NULL OR NOT EXISTS (SELECT 1 FROM understudy_scheduled WHERE id = NEW.id AND queue = NEW.queue))
BEGIN
  INSERT INTO understudy_claim (space, key, since_us)
  SELECT 'queue/' || NEW.queue, NEW.key, coalesce(NEW.enqueued_us, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))
  WHERE NOT EXISTS (SELECT 1 FROM understudy_claim WHERE space = 'queue/' || NEW.queue AND key = NEW.key);
  UPDATE understudy_claim SET last = last + 1, waiting = waiting + 1 WHERE space = 'queue/' || NEW.queue AND key = NEW.key;
  INSERT INTO understudy_payload (payload) VALUES (CAST(coalesce(NEW.payload, '') AS BLOB));
  INSERT INTO understudy_batch (queue, key, seq, id, body, size, content_type, headers, enqueued_us)
  SELECT NEW.queue, NEW.key, c.last, coalesce(NEW.id, lower(hex(randomblob(16)))), last_insert_rowid(),
         length(CAST(coalesce(NEW.payload, '') AS BLOB)), coalesce(NEW.content_type, 'application/octet-stream'), coalesce(NEW.headers, ''),
         coalesce(NEW.enqueued_us, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))
  FROM understudy_claim c WHERE c.space = 'queue/' || NEW.queue AND c.key = NEW.key;
  UPDATE understudy_claim SET ready_us = coalesce(NEW.enqueued_us, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))
  WHERE space = 'queue/' || NEW.queue AND key = NEW.key AND ready_us IS NULL AND blocked = 0;
  INSERT INTO understudy_wake (space, session)
  SELECT m.space, m.session FROM understudy_member m JOIN understudy_session s ON s.id = m.session
  WHERE changes() > 0 AND m.space = 'queue/' || NEW.queue AND m.asleep = 1 AND s.ended = 0
  ORDER BY s.renewed_us DESC LIMIT 1;
END;

-- Who enqueues the same id without a time later does not look here: this one gives way
-- to that when it is due.
CREATE TRIGGER understudy_enqueue_later INSTEAD OF INSERT ON understudy_enqueue
WHEN coalesce(NEW.not_before_us, 0) > coalesce(NEW.enqueued_us, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))
 AND NOT EXISTS (SELECT 1 FROM understudy_batch WHERE id = NEW.id AND queue = NEW.queue)
 AND NOT EXISTS (SELECT 1 FROM understudy_scheduled WHERE id = NEW.id AND queue = NEW.queue)
BEGIN
  INSERT INTO understudy_scheduled (queue, key, id, content_type, headers, enqueued_us, not_before_us, size, payload)
  SELECT NEW.queue, NEW.key, coalesce(NEW.id, lower(hex(randomblob(16)))), coalesce(NEW.content_type, 'application/octet-stream'), coalesce(NEW.headers, ''),
         coalesce(NEW.enqueued_us, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)),
         NEW.not_before_us, length(CAST(coalesce(NEW.payload, '') AS BLOB)), CAST(coalesce(NEW.payload, '') AS BLOB);
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
  SELECT RAISE(ABORT, 'understudy: the headers must be a JSON object of strings, of at most 16 KiB')
  WHERE coalesce(NEW.headers, '') <> '' AND (length(CAST(NEW.headers AS BLOB)) > 16384 OR NOT json_valid(NEW.headers) OR json_type(NEW.headers) <> 'object'
     OR EXISTS (SELECT 1 FROM json_each(NEW.headers) WHERE type <> 'text'));
  SELECT RAISE(ABORT, 'understudy: not_before_us must be a whole number of microseconds since 1970, before the year 10000')
  WHERE NEW.not_before_us IS NOT NULL AND (typeof(NEW.not_before_us) <> 'integer' OR NEW.not_before_us NOT BETWEEN 0 AND 253402300799999999);
END;

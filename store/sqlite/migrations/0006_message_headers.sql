-- readers: 5
-- What a message carries to its target besides its payload: an object of strings, such as traceparent.
ALTER TABLE understudy_batch ADD COLUMN headers TEXT NOT NULL DEFAULT '';

-- With its triggers, which are made again below with the new column.
DROP VIEW understudy_enqueue;

-- INSERT INTO understudy_enqueue (queue, key, id, payload, content_type) VALUES …
-- enqueues, in any transaction of any SQLite client. What has the id of a batch
-- of the queue is left out. id and content_type may be left out; enqueued_us is
-- the time now by default; headers is a JSON object of strings.
CREATE VIEW understudy_enqueue (queue, key, id, payload, content_type, enqueued_us, headers) AS
SELECT b.queue, b.key, b.id, p.payload, b.content_type, b.enqueued_us, b.headers
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
END;

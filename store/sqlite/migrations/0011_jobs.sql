-- readers: 5
-- Jobs and their runs, one row for each scheduled time. doc is JSON, as package job writes it; times are wall time in
-- milliseconds. due_ms is when an instance should attend to the job.
CREATE TABLE understudy_job (
  name    TEXT    NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL,
  due_ms  INTEGER NOT NULL,
  doc     TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX understudy_job_due ON understudy_job (due_ms);

-- output is the end of what the run has written, of total bytes in all.
CREATE TABLE understudy_job_run (
  job          TEXT    NOT NULL,
  scheduled_ms INTEGER NOT NULL,
  state        TEXT    NOT NULL,
  term         INTEGER NOT NULL,
  doc          TEXT    NOT NULL,
  total        INTEGER NOT NULL DEFAULT 0,
  output       BLOB    NOT NULL DEFAULT x'',
  PRIMARY KEY (job, scheduled_ms)
) STRICT;

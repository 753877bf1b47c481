-- readers: 11
-- Jobs and their runs, one row for each scheduled time. doc is JSON, as package job writes it; scheduled times are in
-- milliseconds, as in the keys. due_ms is when an instance should attend to the job.
CREATE TABLE {{schema}}.job (
    name    text COLLATE "C" PRIMARY KEY,
    version bigint NOT NULL,
    due_ms  bigint NOT NULL,
    doc     text NOT NULL
);
CREATE INDEX job_due ON {{schema}}.job (due_ms);

-- output is the end of what the run has written, of total bytes in all.
CREATE TABLE {{schema}}.job_run (
    job          text COLLATE "C" NOT NULL,
    scheduled_ms bigint NOT NULL,
    state        text NOT NULL,
    term         bigint NOT NULL,
    doc          text NOT NULL,
    total        bigint NOT NULL DEFAULT 0,
    output       bytea NOT NULL DEFAULT '',
    PRIMARY KEY (job, scheduled_ms)
);

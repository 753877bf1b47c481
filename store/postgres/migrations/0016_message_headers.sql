-- readers: 11
-- What a message carries to its target besides its payload: an object of strings, such as traceparent.
ALTER TABLE {{schema}}.batch ADD COLUMN headers jsonb;

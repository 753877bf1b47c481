-- Tokens of the API. A token's secret is not here: sum is its SHA-256. Times are wall time in
-- microseconds, 0 for never. There are a thousand at most, and all are read at once.

CREATE TABLE understudy_token (
  id         TEXT    NOT NULL PRIMARY KEY,
  name       TEXT    NOT NULL,
  scopes     TEXT    NOT NULL, -- separated by spaces
  sum        BLOB    NOT NULL,
  created_us INTEGER NOT NULL,
  made_by    TEXT    NOT NULL,
  expires_us INTEGER NOT NULL,
  revoked_us INTEGER NOT NULL,
  revoked_by TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

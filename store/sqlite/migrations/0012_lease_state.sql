-- readers: 5
-- What the holders of a lease keep beside it for those that follow, and the term under which it was written.
CREATE TABLE understudy_lease_state (
  space TEXT NOT NULL,
  key   TEXT NOT NULL,
  term  INTEGER NOT NULL,
  data  BLOB NOT NULL,
  PRIMARY KEY (space, key)
) STRICT;

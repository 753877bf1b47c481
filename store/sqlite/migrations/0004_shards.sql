-- Shards. "doc" is JSON as package shard has it; the columns beside it are what the
-- store itself looks into. at_us and expires_us are on the boot-time clock of the
-- kernel that "boot" names, updated_us is wall time.

CREATE TABLE understudy_shard (
  name    TEXT    NOT NULL PRIMARY KEY,
  rev     INTEGER NOT NULL,
  doc     TEXT    NOT NULL
) STRICT;

-- A report changes neither the place nor the address of its node, and so no index.
CREATE TABLE understudy_shard_node (
  id         TEXT    NOT NULL PRIMARY KEY,
  shard      TEXT    NOT NULL,
  address    TEXT    NOT NULL,
  instance   TEXT    NOT NULL,
  timeout_ns INTEGER NOT NULL,
  boot       TEXT    NOT NULL,
  at_us      INTEGER NOT NULL,
  updated_us INTEGER NOT NULL,
  doc        TEXT    NOT NULL
) STRICT;

CREATE INDEX understudy_shard_node_shard ON understudy_shard_node (shard, id);
CREATE INDEX understudy_shard_node_address ON understudy_shard_node (address);

-- The failover lock of a primary.
CREATE TABLE understudy_shard_lock (
  node       TEXT    NOT NULL PRIMARY KEY,
  value      TEXT    NOT NULL,
  boot       TEXT    NOT NULL,
  expires_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The queues of the nodes, in the order of n.
CREATE TABLE understudy_shard_command (
  n          INTEGER PRIMARY KEY AUTOINCREMENT,
  node       TEXT    NOT NULL,
  id         TEXT    NOT NULL,
  boot       TEXT    NOT NULL,
  expires_us INTEGER NOT NULL,
  doc        TEXT    NOT NULL,
  UNIQUE (node, id)
) STRICT;

CREATE INDEX understudy_shard_command_node ON understudy_shard_command (node, n);

-- Shards of which those who watch are told. Who is late by more than a thousand looks anew.
CREATE TABLE understudy_shard_wake (
  n     INTEGER PRIMARY KEY AUTOINCREMENT,
  shard TEXT NOT NULL
) STRICT;

CREATE TRIGGER understudy_shard_woke AFTER INSERT ON understudy_shard_wake
BEGIN
  DELETE FROM understudy_shard_wake WHERE n <= NEW.n - 1000;
END;

-- readers: 5
-- Those who watch follow one table. Shards are woken in understudy_shard_wake as before, which processes of the version before follow
-- until a later step drops it.
CREATE TRIGGER understudy_shard_wake_up AFTER INSERT ON understudy_shard_wake
BEGIN
  INSERT INTO understudy_wake (space, session) VALUES ('shard:row', NEW.shard);
END;

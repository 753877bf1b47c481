-- KEYS: row. ARGV: clock, shard.
local shard = ARGV[2]
if not redis.call('ZSCORE', shards, shard) then return {'none'} end
return {'ok', view(shard, now())}

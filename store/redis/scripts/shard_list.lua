-- KEYS: index of shards. ARGV: clock, after, limit. Returns names and views.
local t = now()
local out = {}
for _, shard in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], '(' .. ARGV[2], '+', 'LIMIT', 0, ARGV[3])) do
  out[#out + 1] = {shard, view(shard, t)}
end
return out

-- KEYS: node. ARGV: clock, shard, id, address, instance, tell ('1' or ''), channel, and then
-- names and values of the record's fields.
local shard, id, address, instance, told = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] == '1'
local t = now()
local old = node(id)
if old and old.shard ~= shard then return {'shard', id, old.shard} end
if old and old.instance ~= instance and reports(old, t) then return {'instance', id, old.instance} end
for _, other in ipairs(redis.call('SMEMBERS', address_key(address))) do
  local n = other ~= id and node(other)
  if n and n.shard ~= shard then return {'address of shard', other, n.shard} end
  if n and reports(n, t) then return {'address', other, ''} end
end
-- A write that is allowed when memory is full, and so is then what follows.
redis.call('PERSIST', KEYS[1])
if not old or old.address ~= address then
  if old then redis.call('SREM', address_key(old.address), id) end
  redis.call('SADD', address_key(address), id)
  redis.call('SADD', nodes_key(shard), id)
  redis.call('ZADD', shards, 0, shard)
end
local fields = {'last_updated', int(t)}
for i = 8, #ARGV do fields[#fields + 1] = ARGV[i] end
redis.call('HSET', KEYS[1], unpack(fields))
if told then tell(shard, ARGV[7]) end
return {'ok', view(shard, t)}

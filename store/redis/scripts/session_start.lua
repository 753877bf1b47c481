-- KEYS: session. ARGV: clock, id, instance, name, address, label, interval and
-- timeout in µs, schema.
local id, timeout, schema = ARGV[2], tonumber(ARGV[8]), tonumber(ARGV[9])
local t = now()
local found = tonumber(redis.call('GET', root .. 'schema') or '0')
if found > schema then return {'schema', found} end
if redis.call('EXISTS', KEYS[1]) == 1 then return {'used'} end
-- What a renewal reads and writes comes first: a small hash is searched in order.
redis.call('HSET', KEYS[1], 'over', '0', 'deadline', int(t + timeout), 'timeout', ARGV[8], 'seq', '1',
  'interval', ARGV[7], 'instance', ARGV[3], 'name', ARGV[4], 'address', ARGV[5], 'label', ARGV[6], 'started', int(t))
redis.call('PEXPIRE', KEYS[1], int(timeout / 1000 + 86400000))
redis.call('ZADD', session_index, int(t), id)
if found == 0 then
  -- Whoever opened the store made sure of its schema: somebody has deleted
  -- everything since (FLUSHALL), under the hands of those who hold.
  redis.call('SET', root .. 'schema', schema)
  redis.call('SET', root .. 'lost', int(t), 'PX', 86400000)
end
for _, other in ipairs(redis.call('ZRANDMEMBER', session_index, 8)) do
  if forgotten(other, t) then redis.call('ZREM', session_index, other) end
end
return {'ok', '1', redis.call('GET', changed) or '0'}

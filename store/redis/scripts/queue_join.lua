-- KEYS: queue, session. ARGV: clock, space, key, session. Returns the lease, as the session sees it.
local space, key, id = ARGV[2], ARGV[3], ARGV[4]
local t = now()
if not lives(session(id), t) then return {'lapsed'} end
local name = name_of(space, key)
if not redis.call('ZSCORE', KEYS[1], id) then
  local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2] or '0'
  redis.call('ZADD', KEYS[1], int(last + 1), id)
  redis.call('SADD', joined_key(id), name)
  redis.call('ZADD', queue_index(space), 0, key)
end
for _, other in ipairs(redis.call('ZRANDMEMBER', KEYS[1], 8)) do
  if forgotten(other, t) then unqueue(space, key, name, other) end
end
return {'ok', show(key, name, lease(name), t, id)}

-- Called until it returns 0: the first call ends the session, so that it counts
-- as over at once, and each clears up no more than a chunk.
-- KEYS: session. ARGV: clock, id, reason, chunk, keep, channel.
local id, reason, chunk = ARGV[2], ARGV[3], ARGV[4]
local t = now()
local s = session(id)
if s and not s.over then close(s, math.min(t, s.deadline)) end
for _, name in ipairs(redis.call('SRANDMEMBER', held_key(id), chunk)) do
  local l = lease(name)
  if l.session == id then
    free(t, name, l, reason, '', 0, ARGV[5], ARGV[6])
  else
    redis.call('SREM', held_key(id), name)
  end
end
for _, name in ipairs(redis.call('SRANDMEMBER', joined_key(id), chunk)) do
  local space, key = parts_of(name)
  unqueue(space, key, name, id)
  redis.call('SREM', joined_key(id), name)
end
return redis.call('SCARD', held_key(id)) + redis.call('SCARD', joined_key(id))

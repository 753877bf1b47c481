-- Called until it does not return 'more': each call takes no more than a chunk of dead waiters off the list.
-- KEYS: lease. ARGV: clock, space, key, the term, session and seq that were seen, reason, keep, channel, chunk.
local space, key = ARGV[2], ARGV[3]
local t = now()
local name = name_of(space, key)
local l = lease(name)
if not l.known then return {'never'} end
local old = l.session ~= '' and session(l.session)
if l.term ~= ARGV[4] or l.session ~= ARGV[5] or (old and old.seq or '0') ~= ARGV[6] or lives(old, t) or waiting(name, t) > 0 then
  return {'held'}
end
for _, id in ipairs(redis.call('ZRANGE', queue_key(name), 0, ARGV[10] - 1)) do
  if lives(session(id), t) then return {'held'} end -- amid the dead, where waiting does not look
  unqueue(space, key, name, id)
end
if redis.call('EXISTS', queue_key(name)) == 1 then return {'more'} end
-- A removal comes first, as in close.
redis.call('ZREM', lease_index(space), key)
redis.call('DEL', KEYS[1], root .. 'st:' .. name)
if redis.call('EXISTS', lease_index(space)) == 0 then redis.call('ZREM', spaces, space) end
if l.session ~= '' then redis.call('SREM', held_key(l.session), name) end
if old and not old.over then close(old, old.deadline) end
redis.call('SET', forgotten_term, int(math.max(l.term, redis.call('GET', forgotten_term) or 0)))
record(t, ARGV[8], ARGV[9],
  {part = space, subject = key, from = '', to = '', term = l.term, reason = ARGV[7], duration = '0'},
  {space, key, l.term, 'free', ''})
return {'ok'}

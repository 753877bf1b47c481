-- KEYS: session, changed. ARGV: clock.
local s = redis.call('HMGET', KEYS[1], 'over', 'deadline', 'timeout', 'seq')
if s[1] ~= '0' then return {'lapsed'} end
local t = now()
if t >= tonumber(s[2]) then
  redis.call('HSET', KEYS[1], 'over', '1')
  return {'lapsed'}
end
local seq = int(s[4] + 1)
-- This first: it is allowed when memory is full, and so is then what follows.
redis.call('PEXPIRE', KEYS[1], int(s[3] / 1000 + 86400000))
redis.call('HSET', KEYS[1], 'deadline', int(t + s[3]), 'seq', seq)
return {'ok', seq, redis.call('GET', KEYS[2]) or '0'}

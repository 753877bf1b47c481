-- KEYS: lock. ARGV: clock, value, the value that it replaces or '', seconds.
-- A free lock is taken by NX, so that nobody's is written over.
if ARGV[3] == '' then
  if redis.call('SET', KEYS[1], ARGV[2], 'NX', 'EX', ARGV[4]) then return {'ok'} end
  return {'locked', redis.call('GET', KEYS[1])}
end
local held = redis.call('GET', KEYS[1]) or ''
if held ~= ARGV[3] then return {'locked', held} end
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[4])
return {'ok'}

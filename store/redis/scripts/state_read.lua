-- KEYS: lease. ARGV: clock, space, key.
local v = redis.call('HMGET', root .. 'st:' .. name_of(ARGV[2], ARGV[3]), 'term', 'data')
return {v[1] or '0', v[2] or ''}

-- KEYS: lease. ARGV: clock, space, key, term, data.
local name = name_of(ARGV[2], ARGV[3])
local l = lease(name)
if l.session == '' or l.term ~= ARGV[4] then return {'not held'} end
redis.call('HSET', root .. 'st:' .. name, 'term', l.term, 'data', ARGV[5])
return {'ok'}

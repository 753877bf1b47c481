-- KEYS: lease. ARGV: clock, space, key, session, term, successor, reserve in µs,
-- reason, keep, channel.
local t = now()
local name = name_of(ARGV[2], ARGV[3])
local l = lease(name)
if l.session == '' or l.session ~= ARGV[4] or l.term ~= ARGV[5] then return {'not held'} end
free(t, name, l, ARGV[8], ARGV[6], t + ARGV[7], ARGV[9], ARGV[10])
return {'ok'}

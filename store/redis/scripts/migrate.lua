-- KEYS: schema. ARGV: clock, wanted. Returns the version before.
local found = tonumber(redis.call('GET', KEYS[1]) or '0')
if found < tonumber(ARGV[2]) then redis.call('SET', KEYS[1], ARGV[2]) end
return found

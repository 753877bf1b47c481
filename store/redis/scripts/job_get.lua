-- KEYS: jobs. ARGV: clock, name.
local v = redis.call('HMGET', root .. 'jd:' .. ARGV[2], 'version', 'doc')
return {int(now()), v[1] or '0', v[2] or ''}

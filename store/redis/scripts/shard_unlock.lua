-- KEYS: lock. ARGV: clock, the value of its creator.
if redis.call('GET', KEYS[1]) == ARGV[2] then redis.call('DEL', KEYS[1]) end
return {'ok'}

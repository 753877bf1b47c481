-- KEYS: events. ARGV: clock, keep.
return redis.call('XTRIM', KEYS[1], 'MAXLEN', ARGV[2])

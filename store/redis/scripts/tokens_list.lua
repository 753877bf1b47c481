-- KEYS: tokens. ARGV: clock.
return {int(now()), redis.call('HGETALL', KEYS[1])}

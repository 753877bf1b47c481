-- KEYS: a queue. ARGV: clock, and of each command its node, text and how long it may wait in µs.
local t = now()
for i = 2, #ARGV, 3 do send(ARGV[i], ARGV[i + 1], ARGV[i + 2], t) end
for i = 2, #ARGV, 3 do redis.call('LTRIM', node_queue(ARGV[i]), 0, most - 1) end
return {'ok'}

-- KEYS: tokens. ARGV: clock, revision that was read, id, doc, part, subject, reason, duration in µs, keep,
-- channel, ids that go.
local rev = redis.call('HGET', KEYS[1], 'rev') or '0'
if rev ~= ARGV[2] then return {'changed'} end
for i = 11, #ARGV do redis.call('HDEL', KEYS[1], ARGV[i]) end
redis.call('HSET', KEYS[1], 'rev', int(rev + 1), ARGV[3], ARGV[4])
record(now(), ARGV[9], ARGV[10],
  {part = ARGV[5], subject = ARGV[6], from = '', to = '', term = '0', reason = ARGV[7], duration = ARGV[8]},
  {'', '', '0', '', ''})
return {'ok'}

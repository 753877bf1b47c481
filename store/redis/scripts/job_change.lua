-- A job is a hash (version, doc) under jd:NAME; jr:NAME has its runs as "TERM DOC" by their keys, jx:NAME those keys in
-- order, jo:NAME the outputs as "TOTAL BYTES". jobs has the names, jobs:due when to attend to them.
-- KEYS: jobs. ARGV: clock, name, version that was read, new version (0: forget), due, doc, prune, runs and outputs to keep,
-- part, reason and term of the event, keep, channel, and of each run its key, term and doc.
local name = ARGV[2]
local function key(kind) return root .. kind .. ':' .. name end
if (redis.call('HGET', key('jd'), 'version') or '0') ~= ARGV[3] then return {'changed'} end
if ARGV[4] == '0' then
  redis.call('DEL', key('jd'), key('jr'), key('jx'), key('jo'))
  redis.call('ZREM', KEYS[1], name)
  redis.call('ZREM', KEYS[1] .. ':due', name)
else
  redis.call('HSET', key('jd'), 'version', ARGV[4], 'doc', ARGV[6])
  redis.call('ZADD', KEYS[1], 0, name)
  redis.call('ZADD', KEYS[1] .. ':due', ARGV[5], name)
  for i = 15, #ARGV, 3 do
    redis.call('HSET', key('jr'), ARGV[i], ARGV[i + 1] .. ' ' .. ARGV[i + 2])
    redis.call('ZADD', key('jx'), ARGV[i], ARGV[i])
  end
  if ARGV[7] == '1' then
    for _, at in ipairs(redis.call('ZREVRANGE', key('jx'), ARGV[8], -1)) do
      redis.call('HDEL', key('jr'), at)
      redis.call('HDEL', key('jo'), at)
      redis.call('ZREM', key('jx'), at)
    end
    for _, at in ipairs(redis.call('ZREVRANGE', key('jx'), ARGV[9], -1)) do redis.call('HDEL', key('jo'), at) end
  end
end
if ARGV[10] ~= '' then
  record(now(), ARGV[13], ARGV[14],
    {part = ARGV[10], subject = name, from = '', to = '', term = ARGV[12], reason = ARGV[11], duration = '0'},
    {'', '', '0', '', ''})
end
return {'ok'}

-- KEYS: jobs. ARGV: clock, name, key of the run, 'get'; or 'put', its term, bytes in all, and the last of them.
local run = redis.call('HGET', root .. 'jr:' .. ARGV[2], ARGV[3])
if not run then return {'none'} end
if ARGV[4] == 'put' then
  if string.match(run, '^%d+') ~= ARGV[5] then return {'none'} end
  redis.call('HSET', root .. 'jo:' .. ARGV[2], ARGV[3], ARGV[6] .. ' ' .. ARGV[7])
  return {'ok'}
end
local kept = redis.call('HGET', root .. 'jo:' .. ARGV[2], ARGV[3]) or '0 '
local total, tail = string.match(kept, '^(%d+) (.*)$')
return {'ok', total, tail}

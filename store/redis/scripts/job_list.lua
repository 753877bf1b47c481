-- KEYS: jobs. ARGV: clock, name after which, due within so many ms (0: all), limit.
local t, names = now(), nil
local limit = tonumber(ARGV[4])
if ARGV[3] == '0' then
  names = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[2] == '' and '-' or '(' .. ARGV[2], '+', 'LIMIT', 0, limit)
else
  names = redis.call('ZRANGEBYSCORE', KEYS[1] .. ':due', '-inf', int(math.floor(t / 1000) + ARGV[3]))
  table.sort(names)
end
local out = {int(t)}
for _, name in ipairs(names) do
  if name > ARGV[2] and limit > 0 then
    local v = redis.call('HMGET', root .. 'jd:' .. name, 'version', 'doc')
    out[#out + 1], out[#out + 2], out[#out + 3] = name, v[1], v[2]
    limit = limit - 1
  end
end
return out

-- KEYS: jobs. ARGV: clock, name after which, limit. Text is not compared here: Lua does that by the server's locale.
local out = {int(now())}
for _, name in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], ARGV[2] == '' and '-' or '(' .. ARGV[2], '+', 'LIMIT', 0, ARGV[3])) do
  local v = redis.call('HMGET', root .. 'jd:' .. name, 'version', 'doc')
  out[#out + 1], out[#out + 2], out[#out + 3] = name, v[1], v[2]
end
return out

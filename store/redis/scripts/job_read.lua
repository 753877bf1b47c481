-- KEYS: jobs. ARGV: clock, names. Those that are gone are left out.
local out = {int(now())}
for i = 2, #ARGV do
  local v = redis.call('HMGET', root .. 'jd:' .. ARGV[i], 'version', 'doc')
  if v[1] then out[#out + 1], out[#out + 2], out[#out + 3] = ARGV[i], v[1], v[2] end
end
return out

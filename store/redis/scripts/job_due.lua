-- KEYS: jobs. ARGV: clock, due within so many ms. The names come in no order: see job_list.lua.
local t = now()
local out = {int(t)}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1] .. ':due', '-inf', int(math.floor(t / 1000) + ARGV[2]))) do
  out[#out + 1] = name
end
return out

-- KEYS: spaces. ARGV: clock.
local out = {}
for _, space in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], '-', '+')) do
  local n = redis.call('ZCARD', lease_index(space))
  if n > 0 then
    out[#out + 1] = space
    out[#out + 1] = int(n)
  end
end
return out

-- KEYS: index of the space. ARGV: clock, space, after, limit.
local t = now()
local rows = {}
for _, key in ipairs(redis.call('ZRANGEBYLEX', KEYS[1], '(' .. ARGV[3], '+', 'LIMIT', 0, ARGV[4])) do
  local name = name_of(ARGV[2], key)
  rows[#rows + 1] = show(key, name, lease(name), t)
end
return rows

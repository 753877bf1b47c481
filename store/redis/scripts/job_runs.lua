-- KEYS: jobs. ARGV: clock, name, before which, state or '', limit.
local out, limit, state = {}, tonumber(ARGV[5]), '"state":"' .. ARGV[4] .. '"'
local keys = redis.call('ZREVRANGEBYSCORE', root .. 'jx:' .. ARGV[2], '(' .. ARGV[3], '-inf')
for _, at in ipairs(keys) do
  if #out == limit then break end
  local doc = string.match(redis.call('HGET', root .. 'jr:' .. ARGV[2], at), '^%d+ (.*)$')
  -- Inside a text the quotes would be escaped.
  if ARGV[4] == '' or string.find(doc, state, 1, true) then out[#out + 1] = doc end
end
return out

-- KEYS: index of the space. ARGV: clock, space, after, limit. Returns the last
-- key that was looked at, '' at the end, and then a row for each that waits.
local t = now()
local keys = redis.call('ZRANGEBYLEX', KEYS[1], '(' .. ARGV[3], '+', 'LIMIT', 0, ARGV[4])
local out = {keys[#keys] or ''}
for _, key in ipairs(keys) do
  for _, id in ipairs(redis.call('ZRANGE', queue_key(name_of(ARGV[2], key)), 0, -1)) do
    local s = session(id)
    if lives(s, t) then
      out[#out + 1] = {key, id, s.instance, s.name, s.address, s.interval, s.timeout, s.seq, int(s.deadline - t), s.started}
    end
  end
end
return out

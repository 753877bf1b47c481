-- KEYS: sessions. ARGV: clock, ids.
local t = now()
local out = {}
for i = 2, #ARGV do
  local s = session(ARGV[i])
  if lives(s, t) then
    out[#out + 1] = {s.id, s.instance, s.name, s.address, s.interval, s.timeout, s.seq, int(s.deadline - t), s.started}
  end
end
return out

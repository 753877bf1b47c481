-- KEYS: lease. ARGV: clock, space, key, successor, reason, keep, channel.
local space, key = ARGV[2], ARGV[3]
local t = now()
local name = name_of(space, key)
local l = lease(name)
if l.session == '' or not lives(session(l.session), t) then return {'not held'} end
l.asked, l.asked_for = '1', ARGV[4]
put(name, l)
record(t, ARGV[6], ARGV[7],
  {part = space, subject = key, from = l.label, to = l.label, term = l.term, reason = ARGV[5], duration = int(t - l.since)},
  {space, key, l.term, '', ''})
return {'ok'}

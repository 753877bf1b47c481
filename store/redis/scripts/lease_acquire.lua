-- KEYS: lease, own session. ARGV: clock, space, key, own session, the term,
-- session and seq that were seen, waited ('1' or ''), keep, channel, places.
local space, key, own, waited = ARGV[2], ARGV[3], ARGV[4], ARGV[8] == '1'
local t = now()
local me = session(own)
if not lives(me, t) then return {'lapsed'} end
local name = name_of(space, key)
local l = lease(name)
if l.session == own then return {'ok', show(key, name, l, t, own)} end

local old = l.session ~= '' and session(l.session)
local reason
if l.term == ARGV[5] and l.session == ARGV[6] then
  if l.session == '' and l.successor ~= '' and (l.successor == me.name or l.successor == me.instance) then
    reason = 'successor'
  elseif l.session == '' then
    if waited or l.successor == '' or l.reserved <= t then reason = 'vacant' end
  elseif not old then
    if waited and ARGV[7] == '0' then reason = 'lapsed' end
  elseif old.seq == ARGV[7] and (waited or not lives(old, t)) then
    reason = 'lapsed'
  end
end
if not reason then return {'held', show(key, name, l, t, own)} end

-- After the server may have lost data, somebody who has not heard of it may
-- still trust what looks free here: nothing is given away for one T. Who has
-- waited is refused too: what he saw may be what came back.
local lost = tonumber(redis.call('GET', root .. 'lost') or 0)
if lost > t then
  -- The clock was set back since, as at boot: count from now on.
  lost = t
  redis.call('SET', root .. 'lost', int(lost), 'PX', 86400000)
end
local kept = lost + me.timeout - t
if kept > 0 then return {'kept', int(kept)} end

local from, vacant = '', t - (l.since or t)
if old then
  vacant = t - old.deadline
  if not old.over then close(old, old.deadline) end
end
if reason == 'lapsed' then
  from = l.label
  redis.call('SREM', held_key(l.session), name)
end
if not l.known then l.term = redis.call('GET', forgotten_term) or '0' end
l.term = int(math.max(l.term + 1, math.floor(t / 1000)))
l.session, l.since, l.successor, l.reserved, l.asked, l.asked_for = own, t, '', 0, '', ''
l.instance, l.name, l.address, l.label = me.instance, me.name, me.address, me.label
l.places = ARGV[11]
put(name, l)
if not l.known then redis.call('ZADD', lease_index(space), 0, key) end
redis.call('ZADD', spaces, 0, space) -- each time: versions before this one did not
l.known = true
redis.call('SADD', held_key(own), name)
unqueue(space, key, name, own)
record(t, ARGV[9], ARGV[10],
  {part = space, subject = key, from = from, to = me.label, term = l.term, reason = reason, duration = int(math.max(0, vacant))},
  {space, key, l.term, '', ''})
return {'ok', show(key, name, l, t, own)}

-- Where everything is. All keys begin with the same hash tag, so that they share
-- a slot; those that depend on what a row says cannot be known to the caller.
local root = string.match(KEYS[1], '^{[^}]*}:')
local changed, event_id, events = root .. 'changed', root .. 'event-id', root .. 'events'
local session_index = root .. 'sessions'
local spaces = root .. 'spaces'
local forgotten_term = root .. 'forgotten-term' -- the greatest of a lease that was deleted

local function session_key(id) return root .. 's:' .. id end
local function held_key(id) return root .. 'h:' .. id end   -- names of the leases that point to a session
local function joined_key(id) return root .. 'j:' .. id end -- names of the leases that it waits for
local function lease_key(name) return root .. 'l:' .. name end
local function queue_key(name) return root .. 'w:' .. name end
local function lease_index(space) return root .. 'ls:' .. space end
local function queue_index(space) return root .. 'ws:' .. space end

-- A lease's name holds the length of its space, so that no two are alike.
local function name_of(space, key) return #space .. ':' .. space .. ':' .. key end
local function parts_of(name)
  local digits = string.match(name, '^%d+')
  local first = #digits + 2
  local last = first + tonumber(digits) - 1
  return string.sub(name, first, last), string.sub(name, last + 2)
end

local sessions = {}
local function session(id)
  local s = sessions[id]
  if s == nil then
    local v = redis.call('HMGET', session_key(id), 'deadline', 'over', 'seq', 'interval', 'timeout',
      'instance', 'name', 'address', 'label', 'started')
    s = v[1] and {
      id = id, deadline = tonumber(v[1]), over = v[2] == '1', seq = v[3], interval = v[4], timeout = v[5],
      instance = v[6], name = v[7], address = v[8], label = v[9], started = v[10],
    } or false
    sessions[id] = s
  end
  return s
end

local function lives(s, t) return s and not s.over and t < s.deadline end

local function close(s, deadline)
  s.over, s.deadline = true, deadline
  -- A removal first: it is allowed when memory is full, and so is then the rest.
  redis.call('ZREM', session_index, s.id)
  redis.call('HSET', session_key(s.id), 'over', '1', 'deadline', int(deadline))
end

-- A session that lapsed longer ago than its own timeout is not shown any more:
-- the clock may have been stepped, but not unnoticed for so long.
local function forgotten(id, t)
  local s = session(id)
  return not s or s.over or t > s.deadline + s.timeout
end

local function lease(name)
  local v = redis.call('HMGET', lease_key(name), 'term', 'session', 'since', 'successor', 'reserved', 'asked',
    'asked-for', 'instance', 'name', 'address', 'label', 'places')
  if not v[1] then return {known = false, term = '0', session = '', successor = '', asked = ''} end
  return {
    known = true, term = v[1], session = v[2], since = tonumber(v[3]), successor = v[4], reserved = tonumber(v[5]),
    asked = v[6], asked_for = v[7], instance = v[8], name = v[9], address = v[10], label = v[11],
    places = v[12] or '0',
  }
end

local function put(name, l)
  redis.call('HSET', lease_key(name), 'term', l.term, 'session', l.session, 'since', int(l.since),
    'successor', l.successor, 'reserved', int(l.reserved), 'asked', l.asked, 'asked-for', l.asked_for,
    'instance', l.instance, 'name', l.name, 'address', l.address, 'label', l.label, 'places', l.places)
end

local function unqueue(space, key, name, id)
  if redis.call('ZREM', queue_key(name), id) == 0 then return end
  redis.call('SREM', joined_key(id), name)
  if redis.call('EXISTS', queue_key(name)) == 0 then redis.call('ZREM', queue_index(space), key) end
end

-- The number only spreads the attempts of those who wait: of a long list no more than both ends are looked at, and
-- the rest is taken to live if anyone there does. To a session that waits it is the number of those before it.
local function waiting(name, t, viewer)
  local all = viewer and redis.call('ZRANK', queue_key(name), viewer) or redis.call('ZCARD', queue_key(name))
  local n = 0
  local function look(first, last)
    for _, id in ipairs(redis.call('ZRANGE', queue_key(name), first, last)) do
      if lives(session(id), t) then n = n + 1 end
    end
  end
  if all == 0 then return 0 end
  look(0, math.min(all, 64) - 1)
  if all > 64 then look(math.max(64, all - 64), all - 1) end
  return n > 0 and n + math.max(0, all - 128) or 0
end

-- show is a lease as the caller's decoder expects it; viewer is the session that sees it, if it may wait.
local function show(key, name, l, t, viewer)
  local n = waiting(name, t, viewer)
  if not l.known then return {key, n, l.term, '0'} end
  local s = l.session ~= '' and session(l.session)
  local reserved = l.successor ~= '' and math.max(0, l.reserved - t) or 0
  local row = {
    key, n, l.term, int(reserved), l.session, int(l.since), int(t - l.since), l.successor, l.asked, l.asked_for,
    l.instance, l.name, l.address, l.session ~= '' and l.places or '0',
  }
  if s then
    for _, v in ipairs({s.interval, s.timeout, s.seq, int(s.deadline - t), s.over and '1' or ''}) do
      row[#row + 1] = v
    end
  end
  return row
end

-- record writes an event and wakes whoever watches. 'changed' moves even when
-- the server has lost events: it tells the time. The ids start from the clock too,
-- here if a server lost everything and in arrive.lua if it lost the newest, so that
-- they go on above the old ones.
local function record(t, keep, channel, e, change)
  local id = redis.call('INCR', event_id)
  if id == 1 then
    id = math.floor(t / 1000)
    redis.call('SET', event_id, int(id))
  end
  redis.call('SET', changed, int(t))
  redis.call('XADD', events, 'MAXLEN', '~', keep, int(id) .. '-0', 'at', int(t), 'part', e.part, 'subject', e.subject,
    'from', e.from, 'to', e.to, 'term', e.term, 'reason', e.reason, 'duration', e.duration)
  redis.call('PUBLISH', channel, cjson.encode(change))
end

-- free releases a lease and keeps its term. A removal comes first, as in close.
local function free(t, name, l, reason, successor, reserved, keep, channel)
  local space, key = parts_of(name)
  local old = l.label
  local held = t - l.since
  redis.call('SREM', held_key(l.session), name)
  l.session, l.since, l.successor, l.reserved, l.asked, l.asked_for = '', t, successor, reserved, '', ''
  l.instance, l.name, l.address, l.label = '', '', '', ''
  put(name, l)
  record(t, keep, channel,
    {part = space, subject = key, from = old, to = '', term = l.term, reason = reason, duration = int(held)},
    {space, key, l.term, 'free', successor})
end

-- KEYS: row. ARGV: clock, shard, rev that was read, row ('' deletes it), primary, keep, channel of events, channel of
-- shards, number of members, of nodes to drop, of commands, '1' if an event follows; then these: ids, ids,
-- node, command and how long it may wait in µs of each, and the event's fields.
local shard, primary, channel = ARGV[2], ARGV[5], ARGV[8]
local t = now()
local old = redis.call('HMGET', KEYS[1], 'rev', 'primary')
local rev = old[1] or '0'
if rev ~= ARGV[3] then return {'changed', rev} end
local at = 12
local function take(n)
  local some = {}
  for i = 1, n do some[i] = ARGV[at + i] end
  at = at + n
  return some
end
local members, dropped, commands = take(tonumber(ARGV[9])), take(tonumber(ARGV[10])), take(3 * tonumber(ARGV[11]))
local event = ARGV[12] == '1' and take(7)

local removed = ARGV[4] == ''
if removed then
  rev = '0'
  redis.call('DEL', KEYS[1])
else
  redis.call('PERSIST', KEYS[1])
  -- A revision tells the time: a server that has lost its newest writes gives none of theirs again.
  rev = int(math.max(rev + 1, t))
  redis.call('HSET', KEYS[1], 'rev', rev, 'primary', primary, 'doc', ARGV[4])
  redis.call('ZADD', shards, 0, shard)
end
if old[2] and old[2] ~= '' and old[2] ~= primary then redis.call('DEL', replicas_key(old[2])) end
if primary ~= '' then
  redis.call('DEL', replicas_key(primary))
  for _, id in ipairs(members) do
    if id ~= primary then redis.call('SADD', replicas_key(primary), id) end
  end
end
for _, id in ipairs(dropped) do
  -- The queue of a node that has joined another shard is that shard's.
  if not drop(shard, id) then
    redis.call('DEL', node_queue(id))
    if id ~= primary then redis.call('DEL', replicas_key(id)) end
  end
end
if removed and redis.call('EXISTS', nodes_key(shard)) == 0 then redis.call('ZREM', shards, shard) end
for i = 1, #commands, 3 do send(commands[i], commands[i + 1], commands[i + 2], t) end
for i = 1, #commands, 3 do redis.call('LTRIM', node_queue(commands[i]), 0, most - 1) end
if event then
  record(t, ARGV[6], ARGV[7],
    {part = event[1], subject = event[2], from = event[3], to = event[4], term = event[5], reason = event[6], duration = event[7]},
    {'', '', '0', '', ''})
end
tell(shard, channel)
return {'ok', rev}

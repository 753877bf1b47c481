-- Run on every new connection. A server that was started since, or another one
-- that took over, may have lost what an earlier one acknowledged.
-- KEYS: server. ARGV: clock, run id and age of the server in µs.
local known = redis.call('GET', KEYS[1])
if known == ARGV[2] then return {'ok'} end
local lost = now()
if not known then
  -- The first server of all can have lost nothing since before it was started. Or else all was deleted since (FLUSHALL), and a
  -- session that started on an older connection has noticed: that stands.
  lost = math.max(lost - ARGV[3], math.min(lost, tonumber(redis.call('GET', root .. 'lost') or 0)))
end
-- A removal first: it is allowed when memory is full, and so is then the rest. Those who hold must get in.
redis.call('DEL', root .. 'lost')
redis.call('SET', KEYS[1], ARGV[2])
redis.call('SET', root .. 'lost', int(lost), 'PX', 86400000)
-- Readers of the history ask for what comes after the ids they have seen: those of lost events are not given again.
local id = redis.call('GET', event_id)
if id then redis.call('SET', event_id, int(math.max(tonumber(id), math.floor(now() / 1000)))) end
return {'ok'}

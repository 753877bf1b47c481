-- What the scripts about shards share. A node's id is 40 hexadecimal digits, so that its
-- keys are like none of the store's others.
local shards = root .. 'shards'
local function node_key(id) return root .. id end
local function replicas_key(id) return root .. id .. '_replicas' end
local function lock_key(id) return root .. id .. '_FAILOVER' end
local function node_queue(id) return root .. id .. '_queue' end
local function row_key(shard) return root .. 'shard:' .. shard end
local function nodes_key(shard) return root .. 'shard-nodes:' .. shard end
local function address_key(address) return root .. 'node-address:' .. address end

local function node(id)
  local v = redis.call('HMGET', node_key(id), 'shard_name', 'node_address', 'instance', 'last_updated', 'timeout_ns')
  return v[1] and {
    shard = v[1], address = v[2], instance = v[3], updated = tonumber(v[4]), timeout = tonumber(v[5]) / 1000,
  }
end

-- One that is stamped further ahead was written before the clock was stepped back.
local function reports(n, t) return math.abs(t - n.updated) <= n.timeout end

-- drop deletes a node's record, if it is of this shard.
local function drop(shard, id)
  local n = node(id)
  if not n or n.shard ~= shard then return n end
  redis.call('DEL', node_key(id))
  redis.call('SREM', nodes_key(shard), id)
  redis.call('SREM', address_key(n.address), id)
end

-- view is a shard as the caller's decoder expects it: clock, rev, row, lock, lease, and then each
-- node's fields.
local function view(shard, t)
  local row = redis.call('HMGET', row_key(shard), 'rev', 'doc', 'primary')
  local primary = row[3] or ''
  local name = name_of('shard', shard)
  local out = {
    int(t), row[1] or '0', row[2] or '', primary ~= '' and redis.call('GET', lock_key(primary)) or '',
    show(shard, name, lease(name), t),
  }
  local ids = redis.call('SMEMBERS', nodes_key(shard))
  table.sort(ids)
  for _, id in ipairs(ids) do out[#out + 1] = redis.call('HGETALL', node_key(id)) end
  return out
end

-- tell wakes those who watch a shard: on its own channel, and on that of all.
local function tell(shard, channel)
  redis.call('PUBLISH', channel, shard)
  redis.call('PUBLISH', channel .. ':' .. shard, shard)
end

-- send appends a command to a queue; what has expired is not counted. JSON that
-- is no command is somebody else's, and is left alone.
local function expired(text, t)
  local ok, c = pcall(cjson.decode, text)
  if not ok or type(c) ~= 'table' or type(c.expires_us) ~= 'number' then return false, nil end
  return c.expires_us <= t, c.id
end
local function send(id, text, within, t)
  local key = node_queue(id)
  local own = cjson.decode(text).id
  for _, other in ipairs(redis.call('LRANGE', key, 0, -1)) do
    local over, known = expired(other, t)
    if over then
      redis.call('LREM', key, 1, other)
    elseif known == own then
      return
    end
  end
  redis.call('LPUSH', key, '{"expires_us":' .. int(t + within) .. ',' .. string.sub(text, 2))
end
local most = 64

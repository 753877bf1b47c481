-- The store's only clock: the server's, in microseconds. ARGV[1] moves it in
-- tests, and is 0 otherwise. Numbers stay below 2^53, where a double is exact;
-- int writes all of their digits, which tostring does not.
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2] + ARGV[1]
end
local function int(n) return string.format('%.0f', n) end

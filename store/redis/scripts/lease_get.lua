-- KEYS: lease. ARGV: clock, space, key.
local name = name_of(ARGV[2], ARGV[3])
return show(ARGV[3], name, lease(name), now())

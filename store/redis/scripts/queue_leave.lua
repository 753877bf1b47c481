-- KEYS: queue. ARGV: clock, space, key, session.
unqueue(ARGV[2], ARGV[3], name_of(ARGV[2], ARGV[3]), ARGV[4])
return {'ok'}

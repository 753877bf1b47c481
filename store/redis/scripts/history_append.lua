-- KEYS: events. ARGV: clock, part, subject, from, to, term, reason, duration in
-- µs, keep, channel.
record(now(), ARGV[9], ARGV[10],
  {part = ARGV[2], subject = ARGV[3], from = ARGV[4], to = ARGV[5], term = ARGV[6], reason = ARGV[7], duration = ARGV[8]},
  {'', '', '0', '', ''})
return {'ok'}

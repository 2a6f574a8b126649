-- Whether a lease is still held: its time left in ms and no outcome; or 0, how it ended and its taken, as far as that is
-- known.
-- KEYS: lease page-note head notes
-- ARGV: place host(label) token taken
local token, taken = ARGV[3], tonumber(ARGV[4])
local now = clock()
local got = read(3)
local held, over, kept = lease(got[1]), ended(got[1]), entry(got[3])
if over and over.token == token then
  return { now, 0, over.outcome, over.taken }
end
if taken > 0 and taken <= said(got[2], KEYS[4], ARGV[1], ARGV[2] .. (kept and kept.labels or '')).newest then
  return { now, 0, revoked, taken }
end
if held and held.token == token then
  join(KEYS[1], held)
  return { now, redis.call('PTTL', KEYS[1]), false, 0 }
end
return { now, 0, false, 0 }

-- Whether a lease is still held: its time left in ms and no outcome, or 0, how it ended and its taken, as far as that is known.
-- KEYS: lease page-note notes
-- ARGV: place host(label) token
local now = clock()
local got = read(2)
local held, over = lease(got[1]), ended(got[1])
if held and held.token == ARGV[3] and held.taken > said(got[2], KEYS[3], ARGV[1], ARGV[2]).newest then
  join(KEYS[1], held)
  return { now, redis.call('PTTL', KEYS[1]), false, 0 }
end
if over and over.token == ARGV[3] then
  return { now, 0, over.outcome, over.taken }
end
return { now, 0, false, 0 }
